"""Arrays of a prepared data set: images decoded from their files, moments of the channels, and the fingerprint."""

import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from datasets.core.base import PARTS, DataError, Dataset, RawDataset, Split, UInt8Array
from datasets.core.images import Files, ListedDataset

NAMES = ("classes", "attributes", "sources", "mean", "std")
"""What the fingerprint covers beside the arrays."""

ROWS = 256
"""Images whose values are counted at a time."""

SHOWN = 64
"""Parts of more images show their progress."""


def decode_into(listed: ListedDataset, folder: Path, name: str) -> RawDataset:
    """Decode all files into ``<folder>/<part>_images.npy`` and return the data set with these arrays, memory-mapped.

    Raises:
        DataError: A file cannot be decoded, or not into the shape.
        OSError: The folder cannot be written.
    """
    parts = {part: _decode_part(part, listed, folder, name) for part in PARTS}
    same = {field.name: getattr(listed, field.name) for field in fields(RawDataset)}
    return RawDataset(**same | parts)


def _decode_part(part: str, listed: ListedDataset, folder: Path, name: str) -> Split:
    files: Files = getattr(listed, part)
    path = folder / f"{part}_images.npy"
    images = np.lib.format.open_memmap(path, "w+", np.uint8, (len(files), *listed.shape))

    def decode(index: int) -> None:
        image = listed.decode(files.paths[index])
        if image.dtype != np.uint8 or image.shape != listed.shape:
            got = f"{image.dtype} {image.shape}"
            raise DataError(f"{files.paths[index]}: decoded into {got}; expected uint8 {listed.shape}.")
        images[index] = image

    # Pillow decodes and resizes without Python's lock.
    pool, console = ThreadPoolExecutor(), Console(file=sys.stderr)
    title = f"{name}: decoding {len(files):,} {part} images"
    try:
        done = pool.map(decode, range(len(files)))
        for _ in track(done, title, len(files), console=console, transient=True, disable=len(files) <= SHOWN):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
    images.flush()
    return Split(np.load(path, mmap_mode="r"), files.labels, files.attributes, files.sources)


def channel_moments(images: UInt8Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of uint8 [N, C, H, W], on the 0..1 scale."""
    # From a histogram of the 256 values: exact, and without a float copy of the images.
    values = np.arange(256) / 255.0
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    for start in range(0, len(images), ROWS):
        for channel, count in enumerate(counts):
            count += np.bincount(images[start : start + ROWS, channel].ravel(), minlength=256)
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
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
