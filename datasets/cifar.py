"""CIFAR-10 and CIFAR-100 from the owner's "python version": pickled batches of rows of 3,072 bytes (R, G, B planes).

Means and deviations are those of FedMR's public code.
"""

import codecs
import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from datasets.core.base import Facts, RawDataset, RawOptions, Split, published
from datasets.core.download import DownloadTree, RawFolder, fetch
from datasets.core.registry import dataset

ROW = 3 * 32 * 32
BAD_PICKLE = (
    *(pickle.UnpicklingError, EOFError, AttributeError, LookupError, TypeError, ValueError),
    *(RuntimeError, OverflowError, MemoryError),
)
"""What unpickling raises on files that are cut off, damaged or of another kind."""


@dataclass(frozen=True)
class Kind:
    """What distinguishes the two sets.

    Attributes:
        tree: Its files are the training batches, the test batch, and the names of the classes, in this order.
        classes: Number of classes.
        prefix: Of the pickles' keys for labels and names.
        mean, std: Normalisation.
    """

    tree: DownloadTree
    classes: int
    prefix: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


def _tree(name: str, folder: str, size: str, md5: str, files: dict[str, str]) -> DownloadTree:
    archive = f"{name.lower()}-python.tar.gz"
    return DownloadTree(
        title=name,
        folders=(folder, name.lower(), name.lower().replace("-", "")),
        files=files,
        published={archive: md5},
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="not stated by the owner",
        archive=f"{archive}, {size}",
    )


CIFAR10 = Kind(
    tree=_tree(
        "CIFAR-10",
        "cifar-10-batches-py",
        "163 MB",
        "c58f30108f718f92721af3b95e74349a",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        },
    ),
    classes=10,
    prefix="",
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2615),
)

CIFAR100 = Kind(
    tree=_tree(
        "CIFAR-100",
        "cifar-100-python",
        "161 MB",
        "eb9058c3a382ffc7106e4002c42a8d85",
        {
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            "meta": "7973b15100ade9c7d40fb424638fde48",
        },
    ),
    classes=100,
    prefix="fine_",
    mean=(0.50707, 0.48655, 0.44092),
    std=(0.26733, 0.25644, 0.27615),
)


TOTALS = (("train", "", "", 50_000), ("test", "", "", 10_000))


@dataset("cifar10", options=RawOptions, tree=CIFAR10.tree, facts=lambda _: Facts.of(TOTALS, 10, 32))
def cifar10(options: RawOptions, root: Path) -> RawDataset:
    """CIFAR-10 photographs: 50,000 + 10,000 colour images of 32 x 32, 10 classes; downloads by itself."""
    return _read(CIFAR10, root, options.strict)


@dataset("cifar100", options=RawOptions, tree=CIFAR100.tree, facts=lambda _: Facts.of(TOTALS, 100, 32))
def cifar100(options: RawOptions, root: Path) -> RawDataset:
    """CIFAR-100 photographs: 50,000 + 10,000 colour images of 32 x 32, 100 fine classes; downloads by itself."""
    return _read(CIFAR100, root, options.strict)


def _read(kind: Kind, root: Path, strict: bool) -> RawDataset:
    folder = fetch(kind.tree, root)
    *train, test, meta = kind.tree.files
    classes = tuple(_unpickle(folder, meta, strict).get(f"{kind.prefix}label_names", ()))
    if len(classes) != kind.classes:
        raise folder.bad(meta, f"got names of {len(classes)} classes", f"{kind.classes} names")
    batches = [_batch(kind, folder, name, strict) for name in train]
    counts = {part: [total // kind.classes] * kind.classes for part, _, _, total in TOTALS}
    return RawDataset(
        train=Split(*(np.concatenate([getattr(b, name) for b in batches]) for name in ("images", "labels"))),
        test=_batch(kind, folder, test, strict),
        classes=classes,
        mean=kind.mean,
        std=kind.std,
        expected=published(counts, classes),
        files=folder.files,
    )


def _batch(kind: Kind, folder: RawFolder, name: str, strict: bool) -> Split:
    batch, key = _unpickle(folder, name, strict), f"{kind.prefix}labels"
    rows, labels = np.asarray(batch.get("data", ())), np.asarray(batch.get(key, ()))
    good = rows.dtype == np.uint8 and rows.shape == (len(labels), ROW) and labels.dtype.kind in "iu"
    if not good or not len(rows):
        got = f"got {rows.dtype} {rows.shape} as `data` and {len(labels)} `{key}`"
        raise folder.bad(name, got, f"uint8 (N, {ROW}) and N labels, N > 0")
    return Split(rows.reshape(-1, 3, 32, 32), labels.astype(np.int64))


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that makes arrays and plain values only: any other pickle could run any code."""

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


def _unpickle(folder: RawFolder, name: str, strict: bool) -> dict[str, Any]:
    content = folder.read(name, verify=strict)
    try:
        # The owner's pickles are of Python 2, whose strings are bytes; copies of Python 3 may have bytes as keys.
        batch = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
        return {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
    except BAD_PICKLE as error:
        raise folder.bad(name, f"got a file that cannot be read as a batch ({error})") from error
