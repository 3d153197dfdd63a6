"""What is computed over all images of a data set: moments of the channels, and the fingerprint."""

import hashlib
import json
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from datasets.core.base import Dataset, UInt8Array

NAMES = ("classes", "attributes", "sources", "mean", "std")
"""What the fingerprint covers beside the arrays."""

ROWS = 256
"""Images at a time where a large array is read."""


def channel_moments(images: UInt8Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of uint8 [N, C, H, W], on the 0..1 scale."""
    # From a histogram of the 256 values: exact, and without a float copy of the images.
    values = np.arange(256) / 255.0
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    for rows in _rows(images):
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


def fingerprint(data: Dataset) -> str:
    """sha256 (hex) of arrays, names and normalisation: all of the data that a run can depend on."""
    digest = hashlib.sha256()
    names = {key: getattr(data, key) for key in NAMES}
    digest.update(json.dumps(names, sort_keys=True).encode())
    for name, array in data.arrays().items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        for rows in _rows(array):
            digest.update(rows.data)
    return digest.hexdigest()


def _rows(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """The array, `ROWS` rows at a time. Of a memory-mapped file only these rows stay in memory."""
    for start in range(0, len(array), ROWS):
        yield np.ascontiguousarray(array[start : start + ROWS])
        mapped = getattr(array, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)
