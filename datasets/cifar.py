"""CIFAR-10 and CIFAR-100 from the owner's "python version": pickled batches of rows of 3,072 bytes (R, G, B planes).

Means and deviations are those of FedMR's public code (notes on the data sets, section 10).
"""

from __future__ import annotations

import codecs
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from datasets.core.base import Facts, RawDataset, Split, published
from datasets.core.download import RawOptions, RawTree, bad_file, folder_of, read_bytes, verify
from datasets.core.registry import dataset

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
ROW = 3 * 32 * 32
# What unpickling raises on files that are cut off, damaged or something else.
BAD_PICKLE = (
    *(pickle.UnpicklingError, EOFError, AttributeError, LookupError, TypeError, ValueError),
    *(RuntimeError, OverflowError, MemoryError),
)


@dataclass(frozen=True)
class Kind:
    """What distinguishes the two sets: file names, keys inside the pickles, and md5 of the files."""

    tree: RawTree
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: str
    names: str
    classes: int
    md5: Mapping[str, str]


def _tree(name: str, folder: str, other: str, size: str, sizes: Mapping[str, int]) -> RawTree:
    short = folder.rpartition("-")[0].removesuffix("-batches")  # cifar-10, cifar-100
    compact = name.lower().replace("-", "")
    return RawTree(
        title=name,
        folders=(folder, f"{folder}/{folder}", compact, f"{compact}/{folder}", f"{name}/{folder}", "."),
        files=tuple(sizes),
        page=PAGE,
        archive=f"{short}-python.tar.gz ({size})",
        torchvision=name.replace("-", ""),
        arguments=({"train": True},),
        sizes=sizes,
        images={file: 50_000 if file == "train" else 10_000 for file in sizes if "meta" not in file},
        hints={
            f"{short}-python.tar*": "the archive is not unpacked (tar xzf)",
            f"{short}-b*-bin*": "the binary version for C; the python version is needed",
            f"{short}-bin*": "the binary version for C; the python version is needed",
            f"{short}-*mat*": "the Matlab version; the python version is needed",
            f"{other}*": f"this is {other}, not {short}",
        },
    )


CIFAR10 = Kind(
    tree=_tree(
        "CIFAR-10",
        "cifar-10-batches-py",
        "cifar-100",
        "163 MB",
        {
            "data_batch_1": 31_035_704,
            "data_batch_2": 31_035_320,
            "data_batch_3": 31_035_999,
            "data_batch_4": 31_035_696,
            "data_batch_5": 31_035_623,
            "test_batch": 31_035_526,
            "batches.meta": 158,
        },
    ),
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test=("test_batch",),
    meta="batches.meta",
    labels="labels",
    names="label_names",
    classes=10,
    md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
)

CIFAR100 = Kind(
    tree=_tree(
        "CIFAR-100",
        "cifar-100-python",
        "cifar-10-",
        "161 MB",
        {"train": 155_249_918, "test": 31_049_659, "meta": 1_499},
    ),
    train=("train",),
    test=("test",),
    meta="meta",
    labels="fine_labels",
    names="fine_label_names",
    classes=100,
    md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)


@dataset("cifar10", options=RawOptions, facts=lambda options: _facts(CIFAR10))
def cifar10(options: RawOptions, root: Path) -> RawDataset:
    """CIFAR-10 photographs: 50,000 + 10,000 colour images of 32 x 32, 10 classes; downloads by itself."""
    return _read(CIFAR10, root, options.strict, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615))


@dataset("cifar100", options=RawOptions, facts=lambda options: _facts(CIFAR100))
def cifar100(options: RawOptions, root: Path) -> RawDataset:
    """CIFAR-100 photographs: 50,000 + 10,000 colour images of 32 x 32, 100 fine classes; downloads by itself."""
    return _read(CIFAR100, root, options.strict, (0.50707, 0.48655, 0.44092), (0.26733, 0.25644, 0.27615))


def _facts(kind: Kind) -> Facts:
    return Facts(50_000, 10_000, kind.classes, 3, 32, raw=kind.tree.archive, page=kind.tree.page)


def _read(
    kind: Kind, root: Path, strict: bool, mean: tuple[float, ...], std: tuple[float, ...]
) -> RawDataset:
    folder = folder_of(kind.tree, root)
    meta = _unpickle(kind, folder, kind.meta, strict)
    classes = tuple(meta.get(kind.names, ()))
    if len(classes) != kind.classes:
        problem = f"{kind.meta} names {len(classes)} classes, {kind.tree.title} has {kind.classes}."
        raise bad_file(kind.tree, folder / kind.meta, problem, "files of CIFAR-10 and CIFAR-100 mixed")
    return RawDataset(
        train=_split(kind, folder, kind.train, strict),
        test=_split(kind, folder, kind.test, strict),
        classes=classes,
        mean=mean,
        std=std,
        expected=published(
            {
                part: (images // kind.classes,) * kind.classes
                for part, images in (("train", 50_000), ("test", 10_000))
            },
            classes,
        ),
    )


def _split(kind: Kind, folder: Path, files: tuple[str, ...], strict: bool) -> Split:
    images, labels = [], []
    for name in files:
        batch = _unpickle(kind, folder, name, strict)
        rows, numbers = np.asarray(batch.get("data", ())), np.asarray(batch.get(kind.labels, ()))
        if (
            numbers.dtype.kind not in "iu"
            or rows.dtype != np.uint8
            or rows.ndim != 2
            or rows.shape[1] != ROW
            or len(rows) != len(numbers)
            or not len(rows)
        ):
            problem = (
                f"{name} holds {rows.dtype} {rows.shape} as `data` and {len(numbers)} `{kind.labels}`; "
                f"uint8 (N, {ROW}) and N labels belong there, N > 0."
            )
            raise bad_file(kind.tree, folder / name, problem, "another data set under this name")
        if numbers.size and not (0 <= numbers.min() and numbers.max() < kind.classes):
            problem = (
                f"{name} has labels from {numbers.min()} to {numbers.max()}; "
                f"labels from 0 to {kind.classes - 1} belong there."
            )
            raise bad_file(kind.tree, folder / name, problem, "another data set, or labels that were changed")
        images.append(rows.reshape(-1, 3, 32, 32))
        labels.append(numbers.astype(np.int64))
    return Split(np.concatenate(images), np.concatenate(labels))


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that makes arrays and plain values only: a pickle from somewhere could run any code."""

    ALLOWED: ClassVar[dict[str, Any]] = {
        "_reconstruct": np.empty(0).__reduce__()[0],
        "_frombuffer": np.empty(1).__reduce_ex__(5)[0],
        "ndarray": np.ndarray,
        "dtype": np.dtype,
        "encode": codecs.encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in ("numpy", "_codecs") and name in self.ALLOWED:
            return self.ALLOWED[name]
        raise pickle.UnpicklingError(f"it wants to create {module}.{name}")


def _unpickle(kind: Kind, folder: Path, name: str, strict: bool) -> dict[str, Any]:
    path = folder / name
    content = read_bytes(kind.tree, path)
    if strict:
        verify(kind.tree, path, content, kind.md5[name])
    try:
        # The owner's pickles are of Python 2, whose strings are bytes; copies of Python 3 may have bytes as keys.
        batch = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
    except BAD_PICKLE as error:
        problem = f"{name} cannot be read as a batch ({error})."
        raise bad_file(
            kind.tree, path, problem, "a download that broke off, or not the python version"
        ) from error
    return batch
