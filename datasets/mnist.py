"""MNIST and FashionMNIST: files of the same names and format.

Layout as torchvision leaves it, `<set>/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]`. An idx file is a header
of big-endian numbers (2051, count, rows, columns for images; 2049, count for labels) and the bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets.core.base import Facts, RawDataset, RawOptions, Split, UInt8Array, published
from datasets.core.download import DownloadTree, RawFolder, fetch
from datasets.core.registry import dataset

IMAGES, LABELS, SIDE = 2051, 2049, 28


@dataclass(frozen=True)
class Kind:
    """What distinguishes the two sets: files, names of the classes, and images of each class by part."""

    tree: DownloadTree
    classes: tuple[str, ...]
    counts: Mapping[str, tuple[int, ...]]


def _tree(
    name: str, archive: str, unpacked: tuple[str, ...], packed: tuple[str, ...], **about: Any
) -> DownloadTree:
    """The four files with their md5: train images and labels, test images and labels."""
    files = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    return DownloadTree(
        title=name,
        folders=(f"{name}/raw", name, "raw"),
        files=dict(zip(files, unpacked, strict=True)),
        published=dict(zip((f"{file}.gz" for file in files), packed, strict=True)),
        archive=f"four files *-ubyte.gz, {archive}",
        **about,
    )


MNIST = Kind(
    tree=_tree(
        "MNIST",
        "11 MB together",
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        page="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0",
        mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
    ),
    classes=tuple(str(digit) for digit in range(10)),
    counts={
        "train": (5_923, 6_742, 5_958, 6_131, 5_842, 5_421, 5_918, 6_265, 5_851, 5_949),
        "test": (980, 1_135, 1_032, 1_010, 982, 892, 958, 1_028, 974, 1_009),
    },
)

FASHION = Kind(
    tree=_tree(
        "FashionMNIST",
        "31 MB together",
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        page="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    ),
    classes=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    counts={"train": (6_000,) * 10, "test": (1_000,) * 10},
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
    train, test = (_read_split(folder, prefix, strict) for prefix in ("train", "t10k"))
    return train, test, folder.files


def _read_split(folder: RawFolder, prefix: str, strict: bool) -> Split:
    labels = _read_array(folder, f"{prefix}-labels-idx1-ubyte", strict, LABELS)
    images = _read_array(folder, f"{prefix}-images-idx3-ubyte", strict, IMAGES, SIDE, SIDE)
    if len(images) != len(labels):
        got = f"got {len(labels):,} labels for {len(images):,} images"
        raise folder.bad(f"{prefix}-labels-idx1-ubyte", got)
    return Split(images[:, None], labels.astype(np.int64))


def _read_array(folder: RawFolder, name: str, strict: bool, magic: int, *inner: int) -> UInt8Array:
    """The content of an idx file, uint8 [N, *inner], if its header and its size are right."""
    content = folder.read(name, verify=strict)
    start = 4 * (2 + len(inner))
    header = [int.from_bytes(content[k : k + 4], "big") for k in range(0, start, 4)]
    shape = (header[1], *inner)
    if header != [magic, *shape] or len(content) != start + np.prod(shape):
        got = f"got {len(content):,} bytes unpacked that begin with the numbers {header}"
        raise folder.bad(name, got, f"{[magic, 'N', *inner]} and N images or labels")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
