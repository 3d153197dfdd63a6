"""MNIST and FashionMNIST: the same file names and format, so the first labels tell which of the two it is.

Layout as torchvision leaves it, `<set>/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]`. An idx file is a header
of big-endian numbers (2051, count, rows, columns for images; 2049, count for labels) and the bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.core.base import Facts, RawDataset, RawOptions, Split, UInt8Array, published
from datasets.core.download import DownloadTree, RawFile, RawFolder, fetch
from datasets.core.registry import dataset

IMAGES, LABELS, SIDE = 2051, 2049, 28


@dataclass(frozen=True)
class Kind:
    """What distinguishes the two sets: files, names and images per class, and the first labels of each part."""

    tree: DownloadTree
    classes: tuple[str, ...]
    counts: Mapping[str, tuple[int, ...]]
    first_labels: Mapping[str, tuple[int, ...]]


def _tree(
    name: str, page: str, licence: str, mirrors: tuple[str, ...], archive: str, md5: tuple[str, ...]
) -> DownloadTree:
    """The four files; `md5` of their unpacked content: train images and labels, test images and labels."""
    sizes = {
        "train-images-idx3-ubyte": 47_040_016,
        "train-labels-idx1-ubyte": 60_008,
        "t10k-images-idx3-ubyte": 7_840_016,
        "t10k-labels-idx1-ubyte": 10_008,
    }
    dots = "a copy with dots in the names; rename them (train-images.idx3-ubyte -> train-images-idx3-ubyte)"
    return DownloadTree(
        title=name,
        folders=(f"{name}/raw", name, "raw"),
        depth=2,
        files={file: RawFile(code, size) for (file, size), code in zip(sizes.items(), md5, strict=True)},
        page=page,
        licence=licence,
        archive=archive,
        mirrors=mirrors,
        gzipped=True,
        hints={"*.idx?-ubyte": dots, "*mnist_t*.csv": "the csv copy; the idx files are needed"},
    )


MNIST = Kind(
    tree=_tree(
        "MNIST",
        "http://yann.lecun.com/exdb/mnist/ (mirror: https://ossci-datasets.s3.amazonaws.com/mnist/)",
        "CC BY-SA 3.0",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        "four files *-ubyte.gz, 11 MB together",
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    classes=tuple(str(digit) for digit in range(10)),
    counts={
        "train": (5_923, 6_742, 5_958, 6_131, 5_842, 5_421, 5_918, 6_265, 5_851, 5_949),
        "test": (980, 1_135, 1_032, 1_010, 982, 892, 958, 1_028, 974, 1_009),
    },
    first_labels={"train": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4), "test": (7, 2, 1, 0, 4, 1, 4, 9, 5, 9)},
)

FASHION = Kind(
    tree=_tree(
        "FashionMNIST",
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        "four files *-ubyte.gz, 31 MB together",
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
    classes=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    counts={"train": (6_000,) * 10, "test": (1_000,) * 10},
    first_labels={"train": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5), "test": (9, 2, 1, 1, 6, 1, 4, 6, 5, 7)},
)
MNIST_COUNTS, FASHION_COUNTS = (published(kind.counts, kind.classes) for kind in (MNIST, FASHION))


@dataset(
    "mnist", options=RawOptions, tree=MNIST.tree, facts=lambda _: Facts.of(MNIST_COUNTS, 10, SIDE, channels=1)
)
def mnist(options: RawOptions, root: Path) -> RawDataset:
    """MNIST handwritten digits: 60,000 + 10,000 grey images of 28 x 28, 10 classes; downloads by itself."""
    train, test, files = read(MNIST, root, options.strict)
    return RawDataset(
        train, test, MNIST.classes, mean=(0.1307,), std=(0.3081,), expected=MNIST_COUNTS, files=files
    )


@dataset(
    "fashionmnist",
    options=RawOptions,
    tree=FASHION.tree,
    facts=lambda _: Facts.of(FASHION_COUNTS, 10, SIDE, channels=1),
)
def fashionmnist(options: RawOptions, root: Path) -> RawDataset:
    """FashionMNIST articles of clothing: 60,000 + 10,000 grey images of 28 x 28, 10 classes; downloads by itself."""
    # FedMR, the paper that uses it, only scales to 0..1.
    train, test, files = read(FASHION, root, options.strict)
    return RawDataset(
        train, test, FASHION.classes, mean=(0.0,), std=(1.0,), expected=FASHION_COUNTS, files=files
    )


def read(kind: Kind, root: Path, strict: bool) -> tuple[Split, Split, list[Path]]:
    """Train and test split, uint8 [N, 1, H, W], of MNIST or FashionMNIST, and their files.

    `strict` requires the owner's checksums.
    """
    folder = fetch(kind.tree, root)
    train, test = (_read_split(kind, folder, part, strict) for part in ("train", "test"))
    return train, test, folder.files


def _read_split(kind: Kind, folder: RawFolder, part: str, strict: bool) -> Split:
    prefix = {"train": "train", "test": "t10k"}[part]
    image_file, label_file = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    contents = {name: folder.read(name) for name in (image_file, label_file)}
    labels = _array(folder, label_file, contents[label_file], LABELS).astype(np.int64)
    # Before any checksum: "this is the other set" says more than "this is not the published file".
    other = FASHION if kind is MNIST else MNIST
    if tuple(labels[:10]) == other.first_labels[part]:
        problem = f"is a file of {other.tree.title} by its first labels"
        cause = f"both sets use the same file names; move these to {other.tree.folders[0]}"
        raise folder.bad(label_file, problem, cause)
    images = _array(folder, image_file, contents[image_file], IMAGES, SIDE, SIDE)
    if len(images) != len(labels):
        problem = f"has {len(labels):,} labels for {len(images):,} images in {image_file}"
        raise folder.bad(label_file, problem)
    for name in contents if strict else ():
        folder.verify(name, contents[name])
    return Split(images[:, None], labels)


def _array(folder: RawFolder, name: str, content: bytes, magic: int, *inner: int) -> UInt8Array:
    """The content of an idx file, uint8 [N, *inner], if its header and its size are right."""
    start, each = 4 * (2 + len(inner)), int(np.prod(inner))
    header = [int.from_bytes(content[k : k + 4], "big") for k in range(0, start, 4)]
    shape = (header[1], *inner)
    if header != [magic, *shape] or len(content) != start + shape[0] * each or not shape[0]:
        problem = f"has {len(content):,} bytes unpacked that begin with the numbers {header}"
        wanted = ", ".join(map(str, [magic, "N", *inner]))
        raise folder.bad(name, f"{problem}; expected [{wanted}] and {start} + N x {each} bytes, N > 0")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
