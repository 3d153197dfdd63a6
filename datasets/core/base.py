"""What a data set is: arrays, names, normalisation, and the error of a user's mistake in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from benchmark.errors import UserError

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]

Expected = tuple[tuple[str, str, str, int], ...]
"""Published numbers of images by (split, class, source or attribute); "" means all classes or groups together."""

PARTS = ("train", "test")
FIELDS = ("images", "labels", "attributes", "sources")


class DataError(UserError):
    """A mistake in the data, in their folder or in a data set's options. Whatever reads raw files raises it."""


class Options(BaseModel):
    """Base of every builder's options: unknown keys are refused and values cannot change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class UserFileOptions(Options):
    """Options of a data set of the user's files; ``path`` is their folder or .npz file, from the current folder on."""

    path: str | None = None


class RawOptions(Options):
    """Options of a data set made of raw files; ``strict`` requires the published counts and checksums."""

    strict: bool = True


@dataclass(frozen=True, eq=False)
class Split:
    """One part (train or test) of a data set.

    Attributes:
        images: uint8 [N, C, H, W]; read-only and memory-mapped if it comes from `datasets.load`.
        labels: int64 [N], index into the data set's `classes`.
        attributes: int64 [N], index into `attributes`, or None if the data set has none.
        sources: int64 [N], index into `sources` (site, scanner, archive), or None if there is none.
    """

    images: UInt8Array
    labels: Int64Array
    attributes: Int64Array | None = None
    sources: Int64Array | None = None

    def __len__(self) -> int:
        return int(self.images.shape[0])

    def subset(self, indices: Int64Array | npt.NDArray[np.bool_]) -> "Split":
        """The images at `indices` (integers, or a boolean mask of length N) in that order, copied into memory."""
        return Split(**{name: array[indices] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that this split has, by name, in the order of `FIELDS`."""
        arrays = {name: getattr(self, name) for name in FIELDS}
        return {name: array for name, array in arrays.items() if array is not None}


@dataclass(frozen=True, eq=False)
class Files:
    """One part (train or test) of a data set whose images are not decoded yet; otherwise as `Split`."""

    paths: Sequence[Path]
    labels: Int64Array
    attributes: Int64Array | None = None
    sources: Int64Array | None = None

    def __len__(self) -> int:
        return len(self.paths)


AnyPart = TypeVar("AnyPart", Split, Files)


@dataclass(frozen=True, eq=False)
class Built(Generic[AnyPart]):
    """What a builder returns, whether its images are decoded (`RawDataset`) or not (`images.ListedDataset`).

    Attributes:
        train, test: The two parts.
        classes, attributes, sources: Names by index; empty if there are no attributes or sources.
        mean, std: Per channel, on the 0..1 scale, for `(image / 255 - mean) / std`; None: measured on the training
            images.
        note: Which data set is replaced by which stand-in, or a remark on the files; often empty.
        expected: Published counts for `data check`; empty if they are not known. `published` makes them.
        files: Raw files that the builder has read, and folders whose content matters. If one of them changes, the set
            is prepared anew. Listed images belong to them anyway.
    """

    train: AnyPart
    test: AnyPart
    classes: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    note: str = ""
    expected: Expected = ()
    files: Iterable[Path] = ()

    def rows(self, part: str, label: str = "", group: str = "") -> npt.NDArray[np.bool_]:
        """Which images of a part belong to a class and to an attribute or source, bool [N]; "" means all."""
        split = getattr(self, part)
        rows = split.labels == self.classes.index(label) if label else np.ones(len(split), dtype=np.bool_)
        if group in self.attributes:
            rows = rows & (split.attributes == self.attributes.index(group))
        elif group:
            rows = rows & (split.sources == self.sources.index(group))
        return rows

    def count(self, part: str, label: str = "", group: str = "") -> int:
        """The number of `rows`."""
        return int(self.rows(part, label, group).sum())


@dataclass(frozen=True, eq=False)
class RawDataset(Built[Split]):
    """What a builder returns that has the whole data set in memory."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset(RawDataset):
    """A prepared data set.

    Attributes:
        name: Name of the builder in the registry.
        fingerprint: sha256 (hex) of arrays, names and normalisation: all of the data that a run can depend on.
        folder: Where it lies.
    """

    name: str
    fingerprint: str
    folder: Path = Path()
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of both splits, by names such as `train_images`."""
        parts = {"train": self.train.arrays(), "test": self.test.arrays()}
        return {f"{part}_{field}": array for part in parts for field, array in parts[part].items()}


def published(
    counts: Mapping[str, npt.ArrayLike], classes: Sequence[str], groups: Sequence[str] = ("",)
) -> Expected:
    """Published numbers of images as `Built.expected`; `counts` has for each split a table [classes, groups]."""
    return tuple(
        (part, name, group, int(number))
        for part, table in counts.items()
        for name, row in zip(classes, np.reshape(table, (len(classes), len(groups))), strict=True)
        for group, number in zip(groups, row, strict=True)
    )


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before its files are there."""

    train: int
    test: int
    classes: int
    channels: int
    size: int
    sources: int = 0

    @classmethod
    def of(cls, expected: Expected, classes: int, size: int, channels: int = 3, sources: int = 0) -> "Facts":
        """With the sums of the published numbers of images."""
        train, test = (sum(row[-1] for row in expected if row[0] == part) for part in PARTS)
        return cls(train, test, classes, channels, size, sources)

    @property
    def prepared_bytes(self) -> int:
        """Size of the prepared images."""
        return (self.train + self.test) * self.channels * self.size**2


def validate(name: str, built: Built[Split] | Built[Files]) -> None:
    """Check what the builder `name` returned: types, shapes and ranges of all arrays that it has made."""
    shape = built.train.images.shape[1:] if isinstance(built, RawDataset) else ()
    for part in PARTS:
        split: Split | Files = getattr(built, part)
        got = f"{name}: {part} images: got"
        if isinstance(split, Split):
            images = split.images
            if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != shape or 0 in shape:
                wanted = "uint8 [N, C, H, W], of the same size for train and test"
                raise DataError(f"{got} {images.dtype} {images.shape}; expected {wanted}.")
        if not len(split):
            raise DataError(f"{got} none; expected at least one.")
        for column, names in zip(FIELDS[1:], (built.classes, built.attributes, built.sources), strict=True):
            values = getattr(split, column)
            if values is None:
                continue
            got = f"{name}: {part} {column}: got"
            if values.dtype != np.int64 or values.shape != (len(split),):
                raise DataError(f"{got} {values.dtype} {values.shape}; expected int64 ({len(split)},).")
            if values.min() < 0 or values.max() >= len(names):
                raise DataError(
                    f"{got} {values.min()} to {values.max()}; expected indices of {len(names)} names."
                )
    for what, numbers in (("mean", built.mean), ("std", built.std)):
        if shape and numbers is not None and len(numbers) != shape[0]:
            raise DataError(f"{name}: {what}: got {len(numbers)} numbers; expected {shape[0]} (channels).")
