"""Data sets of image files: listed first, then decoded in parallel, a chunk at a time, into arrays of one size.

A builder lists files and labels; nothing is decoded before the whole list is known to be right. What was decoded when a
preparation stops is kept beside the cache and used by the next one, as long as the list and the files are the same.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, UnidentifiedImageError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from datasets.base import DataError, Int64Array, RawDataset, Split, UInt8Array

CHUNK = 32
"""Files that a process decodes between two reports."""

FEW = 2 * CHUNK
"""So few files are decoded in this process: starting others takes longer."""

Decode = Callable[[Path], UInt8Array]
"""File -> uint8 [C, H, W]; it must be picklable, and its repr must say all that its result depends on."""


@dataclass(frozen=True, eq=False)
class Files:
    """One part (train or test) of a listed data set: files, and what `Split` has of each."""

    paths: Sequence[Path]
    labels: Int64Array
    attributes: Int64Array | None = None
    sources: Int64Array | None = None

    def __len__(self) -> int:
        """Number of files."""
        return len(self.paths)


@dataclass(frozen=True, eq=False)
class ListedDataset:
    """What a builder of image files returns: `RawDataset` with files instead of arrays.

    Attributes:
        decode: file -> uint8 image of ``shape``.
        shape: channels, height, width of all images.
        expected: published number of images, as in `RawDataset`.
    """

    train: Files
    test: Files
    decode: Decode
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    note: str = ""
    expected: tuple[tuple[str, str, str, int], ...] = ()

    def signature(self) -> str:
        """Digest of the list, of the files' sizes and times, and of how they are decoded."""
        digest = hashlib.sha256(repr((self.decode, self.shape)).encode())
        for files in (self.train, self.test):
            for path in files.paths:
                stat = path.stat()
                digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
        return digest.hexdigest()


# Decoding ------------------------------------------------------------------------------------------------------------


def open_rgb(path: Path) -> Image.Image:
    """An image file in 8-bit RGB: transparency dropped, 16-bit grey scaled down and not clipped.

    Raises:
        DataError: It cannot be decoded.
    """
    try:
        with Image.open(path) as image:
            image.load()
            if image.mode.startswith("I"):  # 16 bits; convert() would cut everything above 255 off
                values = np.asarray(image).astype(np.int64)
                scaled = values // 257 if values.max(initial=0) > 255 else values
                return Image.fromarray(scaled.clip(0, 255).astype(np.uint8)).convert("RGB")
            return image.convert("RGB")
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path} cannot be decoded as an image ({error}). Likely a download or an unpacking that broke off: get "
            "the file anew, or its whole archive."
        ) from error


@dataclass(frozen=True)
class ToSquare:
    """Decode into size x size pixels, bilinear as torchvision's Resize on PIL images.

    ``squash``: both sides to ``size``, whatever the aspect ratio. ``cover``: the shorter side to ``size``, then the
    centre.
    """

    size: int
    how: Literal["squash", "cover"]

    def __call__(self, path: Path) -> UInt8Array:
        """As `Decode`."""
        return self.fit(open_rgb(path))

    def fit(self, image: Image.Image) -> UInt8Array:
        """The image as uint8 [3, size, size]."""
        width, height = image.size
        wanted = (self.size, self.size)
        if self.how == "cover":
            short = min(width, height)
            wanted = (int(self.size * width / short), int(self.size * height / short))
        if (width, height) != wanted:
            image = image.resize(wanted, Image.Resampling.BILINEAR)
        left, top = round((wanted[0] - self.size) / 2), round((wanted[1] - self.size) / 2)
        if wanted != (self.size, self.size):
            image = image.crop((left, top, left + self.size, top + self.size))
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


# Preparing -----------------------------------------------------------------------------------------------------------


def decode_into(listed: ListedDataset, folder: Path, name: str, workers: int | None = None) -> RawDataset:
    """Decode all files into ``<folder>/<part>_images.npy`` and return the data set with these arrays, memory-mapped.

    Goes on where an earlier call for the same list stopped. ``workers``: processes, default one per usable core.

    Raises:
        DataError: A file cannot be decoded, or not into the shape. The folder stays, to go on from.
        OSError: The folder cannot be written.
    """
    signature = folder / "list.json"
    content = json.dumps({"signature": listed.signature()})
    if not signature.exists() or signature.read_text() != content:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        signature.write_text(content)
    splits: dict[str, Split] = {}
    for part, files in (("train", listed.train), ("test", listed.test)):
        path, done = folder / f"{part}_images.npy", folder / f"{part}.done"
        if not path.exists() or not done.exists():
            np.lib.format.open_memmap(path, "w+", np.uint8, (len(files), *listed.shape)).flush()
            done.touch()
        _decode_part(files.paths, path, done, listed, f"{name}: {part}", workers)
        images = np.load(path, mmap_mode="r")
        splits[part] = Split(images, files.labels, files.attributes, files.sources)
    for leftover in (signature, folder / "train.done", folder / "test.done"):
        leftover.unlink()
    return RawDataset(
        train=splits["train"],
        test=splits["test"],
        classes=listed.classes,
        attributes=listed.attributes,
        sources=listed.sources,
        mean=listed.mean,
        std=listed.std,
        note=listed.note,
        expected=listed.expected,
    )


def _decode_part(
    paths: Sequence[Path], array: Path, done: Path, listed: ListedDataset, title: str, workers: int | None
) -> None:
    """Decode what ``done`` does not list; it holds a line with the first index of every chunk that is on the disk."""
    before = {int(line) for line in done.read_text().splitlines() if line.isdigit()}
    starts = [start for start in range(0, len(paths), CHUNK) if start not in before]
    left = sum(len(paths[start : start + CHUNK]) for start in starts)
    workers = workers or _usable_cores()
    with done.open("a") as stream, _shown(title, len(paths), len(paths) - left) as advance:
        for start in _chunks_done(starts, paths, array, listed, 1 if left <= FEW else workers):
            print(start, file=stream, flush=True)
            advance(len(paths[start : start + CHUNK]))


def _chunks_done(
    starts: Sequence[int], paths: Sequence[Path], array: Path, listed: ListedDataset, workers: int
) -> Iterator[int]:
    """Decode chunks and yield the first index of each as soon as it is on the disk."""

    def arguments(start: int) -> tuple[Path, int, list[Path], Decode, tuple[int, int, int]]:
        return array, start, list(paths[start : start + CHUNK]), listed.decode, listed.shape

    if workers == 1:
        for start in starts:
            yield _decode_chunk(*arguments(start))
        return
    # A fork of a process with threads (PyTorch's) may hang; spawned ones are clean.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context)
    try:
        waiting: set[Future[int]] = set()
        for start in starts:
            waiting.add(pool.submit(_decode_chunk, *arguments(start)))
            if len(waiting) >= 4 * workers:  # enough to keep all busy; the list itself may be long
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in ended)
        for future in waiting:
            yield future.result()
    except BrokenProcessPool as error:
        raise DataError(
            "a process that decodes images was killed, probably for want of memory; the same command goes on from "
            "where it was. Lower FEDTABLES_WORKERS for less memory."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _decode_chunk(
    array: Path, start: int, paths: Sequence[Path], decode: Decode, shape: tuple[int, int, int]
) -> int:
    images = np.load(array, mmap_mode="r+")
    for index, path in enumerate(paths, start):
        image = decode(path)
        if image.dtype != np.uint8 or image.shape != shape:
            raise DataError(f"{path}: decoded into {image.dtype} {image.shape}; expected uint8 {shape}.")
        images[index] = image
    images.flush()
    return start


def _usable_cores() -> int:
    given = os.environ.get("FEDTABLES_WORKERS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _shown:
    """A progress bar on a terminal, a line at the beginning elsewhere; for few files nothing."""

    def __init__(self, title: str, total: int, before: int) -> None:
        self._title, self._total, self._before = title, total, before
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        self._live = sys.stderr.isatty() and total > FEW

    def __enter__(self) -> Callable[[int], None]:
        if self._live:
            self._progress.start()
        elif self._total - self._before > FEW:
            before = f", {self._before:,} decoded before" if self._before else ""
            print(f"{self._title}: decoding {self._total:,} images{before}", file=sys.stderr, flush=True)
        task = self._progress.add_task(self._title, total=self._total, completed=self._before)
        return lambda number: self._progress.advance(task, number)

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._progress.stop()
