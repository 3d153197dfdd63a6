"""What a data set is: arrays, names, normalisation, and the error that user mistakes raise."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from benchmark.errors import UserError

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]


class DataError(UserError):
    """A mistake in the data, in their place or in a data set's options; its message is meant for the user."""


class Options(BaseModel):
    """Base of every builder's options: unknown keys are refused and values cannot change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, eq=False)
class Split:
    """One part (train or test) of a data set.

    Attributes:
        images: uint8 [N, C, H, W]; read-only and memory-mapped when it comes from `datasets.load`.
        labels: int64 [N], index into the data set's `classes`.
        attributes: int64 [N], index into `attributes`, or None where the data set has none.
        sources: int64 [N], index into `sources` (site, scanner, archive), or None where there is none.
    """

    images: UInt8Array
    labels: Int64Array
    attributes: Int64Array | None = None
    sources: Int64Array | None = None

    def __len__(self) -> int:
        """Number of images N."""
        return int(self.images.shape[0])

    def subset(self, indices: npt.ArrayLike) -> Split:
        """The images at `indices` (integers, or a boolean mask of length N) in that order, copied into memory.

        Raises:
            DataError: `indices` are neither integers nor a mask of length N, or one lies outside 0..N-1.
        """
        chosen = np.asarray(indices)
        if chosen.size == 0 and chosen.dtype != np.bool_:
            chosen = chosen.astype(np.int64)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iub":
            raise DataError(f"a subset needs a list of indices or a mask, got {chosen.dtype} {chosen.shape}")
        if chosen.dtype == np.bool_ and chosen.size != len(self):
            raise DataError(f"a mask of {chosen.size} entries cannot choose among {len(self)} images")
        if chosen.dtype != np.bool_ and chosen.size and not (0 <= chosen.min() and chosen.max() < len(self)):
            raise DataError(f"indices {chosen.min()}..{chosen.max()} leave the range 0..{len(self) - 1}")
        return Split(
            self.images[chosen],
            self.labels[chosen],
            None if self.attributes is None else self.attributes[chosen],
            None if self.sources is None else self.sources[chosen],
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays this split has, by field name, in a fixed order."""
        fields: dict[str, npt.NDArray[Any] | None] = {
            "images": self.images,
            "labels": self.labels,
            "attributes": self.attributes,
            "sources": self.sources,
        }
        return {name: array for name, array in fields.items() if array is not None}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A prepared data set.

    Attributes:
        name: Name of the builder in the registry.
        fingerprint: sha256 (hex) of arrays, names and normalisation: all of the data that a run can depend on.
        train, test: The two splits.
        classes, attributes, sources: Names by index; empty where the data set has no attributes or sources.
        mean, std: Per channel, on the 0..1 scale, for `(image / 255 - mean) / std`.
        note: What stands in for what; empty for real data.
    """

    name: str
    fingerprint: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    attributes: tuple[str, ...]
    sources: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    note: str


class Part(Protocol):
    """What a part of a data set has, whether its images are decoded or not."""

    @property
    def labels(self) -> Int64Array:
        """As of `Split`."""

    @property
    def attributes(self) -> Int64Array | None:
        """As of `Split`."""

    @property
    def sources(self) -> Int64Array | None:
        """As of `Split`."""

    def __len__(self) -> int:
        """Number of images."""


AnyPart = TypeVar("AnyPart", bound=Part, covariant=True)

Expected = tuple[tuple[str, str, str, int], ...]
"""Published numbers of images by (split, class, source or attribute); "" stands for all classes or groups together."""


@dataclass(frozen=True, eq=False)
class Built(Generic[AnyPart]):
    """What a builder returns, whether its images are decoded (`RawDataset`) or not (`images.ListedDataset`).

    Attributes:
        train, test: The two parts.
        classes, attributes, sources: Names by index; empty where there are no attributes or sources.
        mean, std: Per channel, 0..1 scale; measured on the training images where they are None.
        note: What stands in for what, or is to be said of the files.
        expected: For `data check`; empty where it is not known. `published` makes it.
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

    def decoded(self, train: Split, test: Split) -> RawDataset:
        """The same data set with these arrays as its parts."""
        same = {field.name: getattr(self, field.name) for field in fields(Built)}
        return RawDataset(**same | {"train": train, "test": test})


@dataclass(frozen=True, eq=False)
class RawDataset(Built[Split]):
    """What a builder returns that has the whole data set in memory."""


def published(
    counts: Mapping[str, npt.ArrayLike], classes: Sequence[str], groups: Sequence[str] = ("",)
) -> Expected:
    """Published numbers of images, from a table of each split, as a builder returns them.

    Args:
        counts: [Y, G] for each split, or [Y] where there are no groups.
        classes: Y names.
        groups: G names of attributes or sources.
    """
    tables = {part: np.asarray(table).reshape(len(classes), len(groups)) for part, table in counts.items()}
    return tuple(
        (part, name, group, int(table[label, column]))
        for part, table in tables.items()
        for label, name in enumerate(classes)
        for column, group in enumerate(groups)
    )


@dataclass(frozen=True)
class Facts:
    """What is known of a data set without having it, for plans.

    Attributes:
        train, test: Number of images.
        classes, sources: Number of each; 0 sources where there are none.
        channels, size: Channels and side of the prepared images.
        raw: The raw files in words: archive and size.
        page: Where they come from.
    """

    train: int
    test: int
    classes: int
    channels: int
    size: int
    sources: int = 0
    raw: str = ""
    page: str = ""

    @property
    def prepared_bytes(self) -> int:
        """Size of the prepared images."""
        return (self.train + self.test) * self.channels * self.size**2


ROWS = 256
"""Images at a time where a large array is read through."""


def rows_of(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """The array, `ROWS` rows at a time. Of a mapped file no more than that counts as this process's memory."""
    for start in range(0, len(array), ROWS):
        yield np.ascontiguousarray(array[start : start + ROWS])
        mapped = getattr(array, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def channel_moments(images: UInt8Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of uint8 [N, C, H, W], on the 0..1 scale.

    Taken from a histogram of the 256 values, some images at a time: exact, and without a float copy of the images.
    """
    values = np.arange(256) / 255.0
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    for rows in rows_of(images):
        for channel in range(images.shape[1]):
            counts[channel] += np.bincount(rows[:, channel].ravel(), minlength=256)
    means, deviations = [], []
    for count in counts:
        share = count / count.sum()
        mean = float(share @ values)
        means.append(mean)
        # A constant channel would divide by zero when the images are normalised.
        deviations.append(float(np.sqrt(share @ (values - mean) ** 2)) or 1.0)
    return tuple(means), tuple(deviations)


def check_labels(name: str, data: Built[Part]) -> None:
    """Hold a builder to its contract on labels, attributes and sources.

    Raises:
        DataError: Their types, lengths or ranges do not fit.
    """
    for part, split in (("train", data.train), ("test", data.test)):
        if not len(split):
            raise DataError(f"{name}: {part} has no images; needed is N > 0")
        for field, labels, known in (
            ("labels", split.labels, data.classes),
            ("attributes", split.attributes, data.attributes),
            ("sources", split.sources, data.sources),
        ):
            if labels is None:
                continue
            if labels.dtype != np.int64 or labels.shape != (len(split),):
                raise DataError(
                    f"{name}: {part} {field} are {labels.dtype} {labels.shape} for {len(split)} images; "
                    f"needed is int64 ({len(split)},)"
                )
            if labels.min() < 0 or labels.max() >= len(known):
                raise DataError(
                    f"{name}: {part} {field} run from {labels.min()} to {labels.max()}, "
                    f"but there are {len(known)} names for them"
                )


def validate(name: str, raw: RawDataset) -> None:
    """Hold a builder to its contract (types, shapes, index ranges, names).

    Raises:
        DataError: What the builder `name` returned does not fit.
    """
    check_labels(name, raw)
    for part, split in (("train", raw.train), ("test", raw.test)):
        images = split.images
        if images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
            raise DataError(
                f"{name}: {part} images are {images.dtype} {images.shape}; needed is uint8 [N, C, H, W] with N > 0"
            )
    if raw.train.images.shape[1:] != raw.test.images.shape[1:]:
        raise DataError(
            f"{name}: train images are {raw.train.images.shape[1:]}, test images {raw.test.images.shape[1:]}"
        )
    channels = raw.train.images.shape[1]
    for what, numbers in (("mean", raw.mean), ("std", raw.std)):
        if numbers is not None and len(numbers) != channels:
            raise DataError(f"{name}: {what} has {len(numbers)} numbers for {channels} channels")
