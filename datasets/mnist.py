"""MNIST and FashionMNIST: the same file names and format, so their content tells them apart.

Layout as torchvision leaves it, `<set>/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]`. An idx file is a
big-endian header (magic 2051 for images with count, rows, columns; 2049 for labels with count) and the bytes.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.core.base import Facts, Int64Array, RawDataset, Split, UInt8Array, published
from datasets.core.download import RawOptions, RawTree, bad_file, existing, folder_of, read_bytes, verify
from datasets.core.registry import dataset

IMAGES, LABELS = 2051, 2049
SIDE = 28
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
IN_ALL = {"train": 60_000, "test": 10_000}
SIZES = {
    "train-images-idx3-ubyte": 47_040_016,
    "train-labels-idx1-ubyte": 60_008,
    "t10k-images-idx3-ubyte": 7_840_016,
    "t10k-labels-idx1-ubyte": 10_008,
}
HINTS = {
    "*.idx?-ubyte": "a copy with dots in the names; rename them (train-images.idx3-ubyte -> train-images-idx3-ubyte)",
    "*mnist_t*.csv": "the csv copy; the idx files are needed",
    "archive.zip": "an archive that is not unpacked",
    "*mnist*.zip": "an archive that is not unpacked",
}


@dataclass(frozen=True)
class Kind:
    """What distinguishes the two sets: names, images per class, first labels, md5 of the unpacked files."""

    tree: RawTree
    classes: tuple[str, ...]
    counts: Mapping[str, tuple[int, ...]]
    first_labels: Mapping[str, tuple[int, ...]]
    md5: Mapping[str, str]


def _tree(name: str, page: str, archive: str) -> RawTree:
    return RawTree(
        title=name,
        folders=(f"{name}/raw", f"{name}/{name}/raw", f"{name}/raw/raw", name, f"{name}/{name}", "raw", "."),
        files=tuple(file for pair in FILES.values() for file in pair),
        page=page,
        archive=archive,
        torchvision=name,
        arguments=({"train": True},),
        sizes=SIZES,
        images={file: IN_ALL[part] for part, pair in FILES.items() for file in pair},
        gzipped=True,
        hints=HINTS,
    )


MNIST = Kind(
    tree=_tree(
        "MNIST",
        "http://yann.lecun.com/exdb/mnist/ (mirror: https://ossci-datasets.s3.amazonaws.com/mnist/)",
        "four files *-ubyte.gz, 11 MB together",
    ),
    classes=tuple(str(digit) for digit in range(10)),
    counts={
        "train": (5_923, 6_742, 5_958, 6_131, 5_842, 5_421, 5_918, 6_265, 5_851, 5_949),
        "test": (980, 1_135, 1_032, 1_010, 982, 892, 958, 1_028, 974, 1_009),
    },
    first_labels={"train": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4), "test": (7, 2, 1, 0, 4, 1, 4, 9, 5, 9)},
    md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
)

FASHION = Kind(
    tree=_tree(
        "FashionMNIST",
        "https://github.com/zalandoresearch/fashion-mnist",
        "four files *-ubyte.gz, 31 MB together",
    ),
    classes=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    counts={"train": (6_000,) * 10, "test": (1_000,) * 10},
    first_labels={"train": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5), "test": (9, 2, 1, 1, 6, 1, 4, 6, 5, 7)},
    md5={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
)


@dataset("mnist", options=RawOptions, facts=lambda options: _facts(MNIST))
def mnist(options: RawOptions, root: Path) -> RawDataset:
    """MNIST handwritten digits: 60,000 + 10,000 grey images of 28 x 28, 10 classes; downloads by itself."""
    return _built(MNIST, root, options.strict, (0.1307,), (0.3081,))


@dataset("fashionmnist", options=RawOptions, facts=lambda options: _facts(FASHION))
def fashionmnist(options: RawOptions, root: Path) -> RawDataset:
    """FashionMNIST articles of clothing: 60,000 + 10,000 grey images of 28 x 28, 10 classes; downloads by itself."""
    # FedMR, the paper that uses it, only scales to 0..1.
    return _built(FASHION, root, options.strict, (0.0,), (1.0,))


def _built(
    kind: Kind, root: Path, strict: bool, mean: tuple[float, ...], std: tuple[float, ...]
) -> RawDataset:
    train, test = read(kind, root, strict)
    counts = published(kind.counts, kind.classes)
    return RawDataset(train, test, kind.classes, mean=mean, std=std, expected=counts)


def _facts(kind: Kind) -> Facts:
    return Facts(IN_ALL["train"], IN_ALL["test"], 10, 1, SIDE, raw=kind.tree.archive, page=kind.tree.page)


def read(kind: Kind, root: Path, strict: bool) -> tuple[Split, Split]:
    """Train and test split, uint8 [N, 1, H, W], of MNIST or FashionMNIST under `root`.

    Args:
        kind: Which of the two.
        root: Data root.
        strict: Require the owner's checksums.

    Raises:
        DataError: A file is missing, empty, cut off or damaged, or it belongs to the other set.
    """
    folder = folder_of(kind.tree, root)
    return _read_split(kind, folder, "train", strict), _read_split(kind, folder, "test", strict)


def _read_split(kind: Kind, folder: Path, part: str, strict: bool) -> Split:
    image_path, label_path = (existing(kind.tree, folder, name) or folder / name for name in FILES[part])
    label_bytes = _unpacked(kind, label_path)
    labels = _labels(kind, label_path, label_bytes)
    # Before any checksum: "this is the other set" says more than "this is not the published file".
    _refuse_other_set(kind, label_path, part, labels)
    image_bytes = _unpacked(kind, image_path)
    images = _images(kind, image_path, image_bytes)
    if len(images) != len(labels):
        problem = f"{len(labels):,} labels for {len(images):,} images of {image_path.name}."
        raise bad_file(
            kind.tree, label_path, problem, "files of two versions mixed, or a cut-down copy cut unevenly"
        )
    if strict:
        for path, content in ((image_path, image_bytes), (label_path, label_bytes)):
            verify(kind.tree, path, content, kind.md5[path.name.removesuffix(".gz")])
    return Split(images, labels)


def _unpacked(kind: Kind, path: Path) -> bytes:
    content = read_bytes(kind.tree, path)
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        problem = f"{path.name} cannot be unpacked ({error})."
        raise bad_file(
            kind.tree, path, problem, "a download that broke off, or no gzip file at all"
        ) from error


def _labels(kind: Kind, path: Path, content: bytes) -> Int64Array:
    (count,) = _header(kind, path, content, LABELS, 1)
    labels = np.frombuffer(content, np.uint8, count, offset=8).astype(np.int64)
    if labels.size and labels.max() >= len(kind.classes):
        raise bad_file(
            kind.tree, path, f"a label is {labels.max()}, 0..9 are possible.", "another set, such as EMNIST"
        )
    return labels


def _images(kind: Kind, path: Path, content: bytes) -> UInt8Array:
    count, rows, columns = _header(kind, path, content, IMAGES, 3)
    if (rows, columns) != (SIDE, SIDE):
        problem = f"{path.name} has images of {rows} x {columns} pixels, {SIDE} x {SIDE} belong there."
        raise bad_file(kind.tree, path, problem, "another set, or a copy that somebody resized")
    return np.frombuffer(content, np.uint8, count * rows * columns, offset=16).reshape(
        count, 1, rows, columns
    )


def _header(kind: Kind, path: Path, content: bytes, magic: int, dimensions: int) -> tuple[int, ...]:
    """Dimensions of an idx file whose size fits them."""
    start = 4 * (1 + dimensions)
    if len(content) < start:
        problem = f"{path.name} has {len(content)} bytes unpacked, its header alone needs {start}."
        raise bad_file(kind.tree, path, problem, "a download that broke off")
    found, *shape = struct.unpack(f">{1 + dimensions}I", content[:start])
    if found != magic:
        problem = f"{path.name} starts with {found}, an idx file of this kind with {magic}."
        cause = "images and labels swapped, or a web page saved under this name"
        if content[:2] == b"\x1f\x8b":
            cause = "a gzip file without the suffix .gz; rename or unpack it"
        raise bad_file(kind.tree, path, problem, cause)
    size = start + int(np.prod(shape, dtype=np.int64))
    if len(content) != size or not size > start:
        problem = f"{path.name} has {len(content):,} bytes unpacked, its header promises {size:,}."
        raise bad_file(kind.tree, path, problem, "a download that broke off, or a full disk")
    return tuple(shape)


def _refuse_other_set(kind: Kind, path: Path, part: str, labels: Int64Array) -> None:
    first = tuple(int(label) for label in labels[:10])
    other = FASHION if kind is MNIST else MNIST
    if first == other.first_labels[part]:
        name = other.tree.title
        raise bad_file(
            kind.tree,
            path,
            f"these are files of {name}: the first labels are {' '.join(map(str, first))}, "
            f"those of {kind.tree.title} are {' '.join(map(str, kind.first_labels[part]))}.",
            f"{name} and {kind.tree.title} use the same file names; move these to {other.tree.folders[0]}",
        )
