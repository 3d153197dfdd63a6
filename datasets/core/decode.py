"""Decoding of listed image files into arrays on the disk, in several processes.

If a preparation stops, the files it decoded stay beside the cache. The next one uses them if the list and the files
are the same.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from datasets.core.base import DataError, RawDataset, Split
from datasets.core.images import BadImage, Decode, Files, ListedDataset

CHUNK = 32
"""Files that a process decodes between two reports."""

FEW = 2 * CHUNK
"""Up to this number, files are decoded in this process: starting others takes longer."""


def decode_into(listed: ListedDataset, folder: Path, name: str, workers: int | None = None) -> RawDataset:
    """Decode all files into ``<folder>/<part>_images.npy`` and return the data set with these arrays, memory-mapped.

    Continues where an earlier call for the same list stopped. `workers` is by default one per usable core.

    Raises:
        DataError: A file cannot be decoded, or not into the shape. The folder stays, for the next call.
        OSError: The folder cannot be written.
    """
    try:
        signature = folder / "list.json"
        content = json.dumps({"signature": listed.signature()})
        if not signature.exists() or signature.read_text() != content:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            signature.write_text(content)
        train = _decode_part("train", listed.train, listed, folder, name, workers)
        test = _decode_part("test", listed.test, listed, folder, name, workers)
    except BadImage as bad:
        raise listed.explain(bad) from bad
    for leftover in (signature, folder / "train.done", folder / "test.done"):
        leftover.unlink()
    return listed.decoded(train, test)


def _decode_part(
    part: str, files: Files, listed: ListedDataset, folder: Path, name: str, workers: int | None
) -> Split:
    """Decode the chunks that ``<part>.done`` does not list; it has a line with the first index of each finished one."""
    array, done = folder / f"{part}_images.npy", folder / f"{part}.done"
    if not array.exists() or not done.exists():
        np.lib.format.open_memmap(array, "w+", np.uint8, (len(files), *listed.shape)).flush()
        done.touch()
    before = {int(line) for line in done.read_text().splitlines() if line.isdigit()}
    chunks = {start: list(files.paths[start : start + CHUNK]) for start in range(0, len(files), CHUNK)}
    left = {start: paths for start, paths in chunks.items() if start not in before}
    number = sum(map(len, left.values()))
    workers = 1 if number <= FEW else workers or _usable_cores()
    with done.open("a") as stream, _progress(f"{name}: {part}", len(files), len(files) - number) as advance:
        for start in _chunks_done(left, array, listed.decode, workers):
            print(start, file=stream, flush=True)
            advance(len(chunks[start]))
    return Split(np.load(array, mmap_mode="r"), files.labels, files.attributes, files.sources)


def _chunks_done(chunks: dict[int, list[Path]], array: Path, decode: Decode, workers: int) -> Iterator[int]:
    """Decode chunks and yield the first index of each as soon as it is on the disk."""
    if workers == 1:
        for start, paths in chunks.items():
            yield _decode_chunk(array, start, paths, decode)
        return
    # A fork of a process with threads (PyTorch's) may hang; a spawned process does not.
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        waiting: set[Future[int]] = set()
        for start, paths in chunks.items():
            waiting.add(pool.submit(_decode_chunk, array, start, paths, decode))
            if len(waiting) >= 4 * workers:  # enough to keep all busy; the list itself may be long
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in ended)
        for future in waiting:
            yield future.result()
    except BrokenProcessPool as error:
        raise DataError(
            "a process that decodes images was killed, probably because the memory was full. The same command "
            "continues where it stopped. Lower FEDTABLES_WORKERS for less memory."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _decode_chunk(array: Path, start: int, paths: Sequence[Path], decode: Decode) -> int:
    images = np.load(array, mmap_mode="r+")
    shape = images.shape[1:]
    for index, path in enumerate(paths, start):
        image = decode(path)
        if image.dtype != np.uint8 or image.shape != shape:
            raise BadImage(
                path,
                f"was decoded into {image.dtype} {image.shape} and not into uint8 {shape}",
                f"an image that gives {' x '.join(map(str, shape))}",
                "an image of another size or kind than the others, as in a resized copy",
            )
        images[index] = image
    images.flush()
    return start


def _usable_cores() -> int:
    given = os.environ.get("FEDTABLES_WORKERS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _progress(title: str, total: int, before: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, one line elsewhere; for few files nothing. Yields what advances it."""
    live = sys.stderr.isatty() and total > FEW
    if not live and total - before > FEW:
        already = f", {before:,} decoded before" if before else ""
        print(f"{title}: decoding {total:,} images{already}", file=sys.stderr, flush=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=not live) as bar:
        task = bar.add_task(title, total=total, completed=before)
        yield lambda number: bar.advance(task, number)
