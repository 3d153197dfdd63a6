"""Data sets of image files: listed first, then decoded in parallel, a chunk at a time, into arrays of one size.

A builder lists files and labels; nothing is decoded before the whole list is known to be right. What was decoded when a
preparation stops is kept beside the cache and used by the next one, as long as the list and the files are the same.

A decoder knows a path and nothing of the data set, and runs in other processes: of a file that gives no image it tells
no more than that (`BadImage`). `decode_into` makes the message with six parts of it, from the list and its places.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from datasets.core.base import Built, DataError, Int64Array, RawDataset, Split, UInt8Array
from datasets.core.download import below
from datasets.core.folders import BROKEN_OFF, STRICT, Place, counts_text

CHUNK = 32
"""Files that a process decodes between two reports."""

FEW = 2 * CHUNK
"""So few files are decoded in this process: starting others takes longer."""

Decode = Callable[[Path], UInt8Array]
"""File -> uint8 [C, H, W], or a `BadImage`; it must be picklable, and its repr must say all that its result depends on.
"""


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


@dataclass(frozen=True, eq=False, kw_only=True)
class ListedDataset(Built[Files]):
    """What a builder of image files returns.

    Attributes:
        decode: file -> uint8 image of ``shape``.
        shape: channels, height, width of all images.
        places: where the files come from, each file from below one of these folders; for messages.
    """

    decode: Decode
    shape: tuple[int, int, int]
    places: tuple[Place, ...]

    def signature(self) -> str:
        """Digest of the list, of the files' sizes and times, and of how they are decoded.

        Raises:
            BadImage: A file cannot be found.
        """
        digest = hashlib.sha256(repr((self.decode, self.shape)).encode())
        for files in (self.train, self.test):
            for path in files.paths:
                try:
                    stat = path.stat()
                except OSError as error:
                    raise BadImage(path, _unread(error)) from error
                digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
        return digest.hexdigest()


# Files that give no image --------------------------------------------------------------------------------------------


class BadImage(DataError):
    """A file that gives no image. `worded` makes of it what a user gets to read.

    Attributes:
        path: The file.
        problem: What is wrong with it, as the rest of a sentence that begins with its name.
        expected: What belongs there.
        cause: What probably happened; empty where the file's content has to tell.
    """

    def __init__(
        self, path: Path, problem: str, expected: str = "an image that Pillow can open", cause: str = ""
    ) -> None:
        # With the arguments of this call pickle makes the exception anew in the other process.
        super().__init__(path, problem, expected, cause)
        self.path, self.problem, self.expected, self.cause = path, problem, expected, cause

    def __str__(self) -> str:
        """Path and problem."""
        return f"{self.path} {self.problem}"


def worded(bad: BadImage, place: Place, counts: str) -> DataError:
    """The error in six parts about a file below `place` that gives no image."""
    found, cause = _content(bad.path)
    return place.error(
        f"{bad.path.name} {bad.problem}.",
        looked_at=bad.path,
        expected=f"{below(bad.path, place.root)}, {bad.expected}",
        found=found,
        cause=bad.cause or cause,
        get=f"{place.tree.page}, {place.tree.archive}; delete the bad file first",
        counts=counts,
    )


def _content(path: Path) -> tuple[str, str]:
    """What a file that is no image is instead, and what probably happened."""
    try:
        with open(path, "rb") as stream:
            start, size = stream.read(16), path.stat().st_size
    except OSError as error:
        return _unread(error), "its rights, a link to nothing, or a disk that is gone"
    found = f"{size:,} bytes" + f" that begin with {start!r}" * bool(start)
    if start.lstrip()[:1] == b"<":
        return found, "a web page saved under this name: the download needs a login, or its link is dead"
    if start.startswith((b"PK\x03\x04", b"\x1f\x8b", b"Rar!")):
        return found, "an archive under this name, not unpacked"
    return found, BROKEN_OFF


def _unread(error: Exception) -> str:
    return f"cannot be read ({getattr(error, 'strerror', None) or error})"


def _worded(bad: BadImage, listed: ListedDataset) -> DataError:
    """As `worded`, from the list that the file is on: empty files are not counted as found, either."""
    expected: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for files in (listed.train, listed.test):
        for path, label in zip(files.paths, files.labels, strict=True):
            name = listed.classes[label]
            expected[name] += 1
            found[name] += path != bad.path and _has_bytes(path)
    # Of several sets one may lie in the data root itself, above the others: the deepest folder is the file's.
    around = [place for place in listed.places if place.folder in bad.path.parents]
    place = max(around or listed.places, key=lambda place: len(place.folder.parts))
    counts = f"{counts_text(expected, found)}; what was not decoded yet may hold more such files"
    return worded(bad, place, counts)


def _has_bytes(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def check_pixels(
    place: Place,
    paths: Sequence[Path],
    good: Callable[[int, int], bool],
    published: str,
    counts: str,
    known: str = "a resized copy",
) -> None:
    """Refuse a resized copy, by some of its files, which are opened for it.

    Args:
        place: What the files belong to.
        paths: The files.
        good: Width and height in pixels -> whether they can be the owner's.
        published: The owner's, for the message.
        counts: Numbers expected and found, for the message.
        known: What a copy of other pixels probably is.

    Raises:
        DataError: A file has other pixels, or cannot be opened.
    """
    for path in paths:
        try:
            width, height = open_rgb(path).size
        except BadImage as bad:
            raise worded(bad, place, counts) from bad
        if not good(width, height):
            raise place.error(
                f"{path.name} has {width} x {height} pixels, the originals {published}.",
                looked_at=path,
                expected=f"{below(path, place.root)} as its owner publishes it, pixels: {published}",
                found=f"{width} x {height} pixels",
                cause=f"{known}; the owner's archive is needed; {STRICT}",
                counts=counts,
            )


# Decoding ------------------------------------------------------------------------------------------------------------


def open_rgb(path: Path) -> Image.Image:
    """An image file in 8-bit RGB: transparency dropped; grey of 16 bits or of floats scaled and not clipped.

    Raises:
        BadImage: It cannot be decoded.
    """
    try:
        with Image.open(path) as image:
            image.load()
            if image.mode.startswith(("I", "F")):  # convert() would turn 16 bits white, and 0..1 black
                return Image.fromarray(as_rgb(np.asarray(image)))
            return image.convert("RGB")
    except UnidentifiedImageError as error:
        raise BadImage(path, "cannot be decoded as an image (of no kind that Pillow knows)") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        missing = isinstance(error, OSError) and error.filename  # else it is Pillow's, about the content
        problem = _unread(error) if missing else f"cannot be decoded as an image ({error})"
        raise BadImage(path, problem) from error


def as_rgb(values: npt.NDArray[np.generic]) -> UInt8Array:
    """An array of any kind as uint8 [H, W, 3].

    Args:
        values: [H, W], [H, W, 1], [H, W, 3] or [H, W, 4] (transparency is dropped). uint8 stays as it is; floats that
            do not exceed 1 count as 0..1, others as 0..255; wider integers that exceed 255 count as 0..65535.

    Raises:
        ValueError: Another shape, no pixels, or values that are no finite numbers.
    """
    shape = values.shape
    if len(shape) not in (2, 3) or 0 in shape or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise ValueError(f"its shape is {shape}")
    if values.dtype.kind not in "uif" or not np.isfinite(values).all():
        raise ValueError(f"its values are {values.dtype}, or not finite")
    pixels = values.reshape(*shape[:2], -1)[..., :3]
    if pixels.dtype != np.uint8:
        numbers = pixels.astype(np.float64)
        if values.dtype.kind == "f":
            numbers = np.rint(numbers * 255 if numbers.max() <= 1 else numbers)
        elif numbers.max() > 255:
            numbers = numbers // 257
        pixels = numbers.clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(pixels, (*shape[:2], 3)))


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
    try:
        splits = _decode_parts(listed, folder, name, workers)
    except BadImage as bad:
        raise _worded(bad, listed) from bad
    return listed.decoded(splits["train"], splits["test"])


def _decode_parts(listed: ListedDataset, folder: Path, name: str, workers: int | None) -> dict[str, Split]:
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
    return splits


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
            raise BadImage(
                path,
                f"was decoded into {image.dtype} {image.shape} and not into uint8 {shape}",
                f"an image that gives {' x '.join(map(str, shape))}",
                "an image of another size or kind than the others, as in a copy that somebody resized",
            )
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
