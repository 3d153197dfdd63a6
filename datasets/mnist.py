"""MNIST and FashionMNIST: the same file names and format, so the first labels tell which of the two it is.

Layout as torchvision leaves it, `<set>/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]`. An idx file is a
big-endian header (magic 2051 for images with count, rows, columns; 2049 for labels with count) and the bytes.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.core.base import Int64Array, RawDataset, RawOptions, Split, UInt8Array, published
from datasets.core.download import DownloadTree, RawFile, RawFolder, fetch
from datasets.core.registry import dataset

IMAGES, LABELS = 2051, 2049
SIDE = 28
PREFIXES = {"train": "train", "test": "t10k"}
HINTS = {
    "*.idx?-ubyte": "a copy with dots in the names; rename them (train-images.idx3-ubyte -> train-images-idx3-ubyte)",
    "*mnist_t*.csv": "the csv copy; the idx files are needed",
}


@dataclass(frozen=True)
class Kind:
    """What distinguishes the two sets: files, names and images per class, and the first labels of each part."""

    tree: DownloadTree
    classes: tuple[str, ...]
    counts: Mapping[str, tuple[int, ...]]
    first_labels: Mapping[str, tuple[int, ...]]


def _tree(
    name: str, page: str, mirrors: tuple[str, ...], archive: str, md5: tuple[str, str, str, str]
) -> DownloadTree:
    """The four files; `md5` of their unpacked content: train images and labels, test images and labels."""
    return DownloadTree(
        title=name,
        folders=(f"{name}/raw", f"{name}/{name}/raw", f"{name}/raw/raw", name, f"{name}/{name}", "raw", "."),
        files={
            "train-images-idx3-ubyte": RawFile(md5[0], 47_040_016),
            "train-labels-idx1-ubyte": RawFile(md5[1], 60_008),
            "t10k-images-idx3-ubyte": RawFile(md5[2], 7_840_016),
            "t10k-labels-idx1-ubyte": RawFile(md5[3], 10_008),
        },
        page=page,
        archive=archive,
        mirrors=mirrors,
        gzipped=True,
        hints=HINTS,
    )


MNIST = Kind(
    tree=_tree(
        "MNIST",
        "http://yann.lecun.com/exdb/mnist/ (mirror: https://ossci-datasets.s3.amazonaws.com/mnist/)",
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

LICENCE = f"CC BY-SA 3.0, {MNIST.tree.page}"
"""Of MNIST."""

FASHION = Kind(
    tree=_tree(
        "FashionMNIST",
        "https://github.com/zalandoresearch/fashion-mnist",
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


@dataset(
    "mnist",
    options=RawOptions,
    facts=lambda _: MNIST.tree.facts(60_000, 10_000, 10, SIDE, channels=1),
    licence=LICENCE,
)
def mnist(options: RawOptions, root: Path) -> RawDataset:
    """MNIST handwritten digits: 60,000 + 10,000 grey images of 28 x 28, 10 classes; downloads by itself."""
    return _built(MNIST, root, options.strict, 0.1307, 0.3081)


@dataset(
    "fashionmnist",
    options=RawOptions,
    facts=lambda _: FASHION.tree.facts(60_000, 10_000, 10, SIDE, channels=1),
    licence=f"MIT, {FASHION.tree.page}",
)
def fashionmnist(options: RawOptions, root: Path) -> RawDataset:
    """FashionMNIST articles of clothing: 60,000 + 10,000 grey images of 28 x 28, 10 classes; downloads by itself."""
    # FedMR, the paper that uses it, only scales to 0..1.
    return _built(FASHION, root, options.strict, 0.0, 1.0)


def _built(kind: Kind, root: Path, strict: bool, mean: float, std: float) -> RawDataset:
    counts = published(kind.counts, kind.classes)
    return RawDataset(*read(kind, root, strict), kind.classes, mean=(mean,), std=(std,), expected=counts)


def read(kind: Kind, root: Path, strict: bool) -> tuple[Split, Split]:
    """Train and test split, uint8 [N, 1, H, W], of MNIST or FashionMNIST; `strict` requires the owner's checksums."""
    folder = fetch(kind.tree, root)
    return _read_split(kind, folder, "train", strict), _read_split(kind, folder, "test", strict)


def _read_split(kind: Kind, folder: RawFolder, part: str, strict: bool) -> Split:
    image_file, label_file = f"{PREFIXES[part]}-images-idx3-ubyte", f"{PREFIXES[part]}-labels-idx1-ubyte"
    label_bytes = folder.read(label_file)
    labels = _array(folder, label_file, label_bytes, LABELS).astype(np.int64)
    if labels.max() > 9:
        raise folder.bad(label_file, f"has the label {labels.max()}; 0 to 9 are possible")
    # Before any checksum: "this is the other set" says more than "this is not the published file".
    _refuse_other_set(kind, folder, label_file, part, labels)
    image_bytes = folder.read(image_file)
    images = _array(folder, image_file, image_bytes, IMAGES, SIDE, SIDE)
    if len(images) != len(labels):
        problem = f"has {len(labels):,} labels for {len(images):,} images in {image_file}"
        raise folder.bad(label_file, problem)
    if strict:
        folder.verify(image_file, image_bytes)
        folder.verify(label_file, label_bytes)
    return Split(images[:, None], labels)


def _array(folder: RawFolder, name: str, content: bytes, magic: int, *inner: int) -> UInt8Array:
    """The content of an idx file, uint8 [N, *inner], if its header and its size are right."""
    start = 8 + 4 * len(inner)
    if len(content) < start:
        raise folder.bad(name, f"has {len(content)} bytes unpacked; its header alone needs {start}")
    found, *shape = struct.unpack(f">{start // 4}I", content[:start])
    if found != magic:
        raise folder.bad(name, f"starts with the number {found}; expected {magic}")
    if tuple(shape[1:]) != inner:
        problem = f"has images of {shape[1]} x {shape[2]} pixels; expected {SIDE} x {SIDE}"
        raise folder.bad(name, problem)
    size = start + int(np.prod(shape, dtype=np.int64))
    if len(content) != size or not size > start:
        raise folder.bad(name, f"has {len(content):,} bytes unpacked; expected {size:,} by its header")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _refuse_other_set(kind: Kind, folder: RawFolder, name: str, part: str, labels: Int64Array) -> None:
    first = tuple(int(label) for label in labels[:10])
    other = FASHION if kind is MNIST else MNIST
    if first == other.first_labels[part]:
        problem = f"is a file of {other.tree.title} by its first labels, {' '.join(map(str, first))}"
        cause = f"both sets use the same file names; move these to {other.tree.folders[0]}"
        raise folder.bad(name, problem, cause)
