"""Decoding of listed image files into arrays on the disk, in several processes.

If a preparation stops, the files it decoded stay beside the cache. The next one uses them if the list and the files
are the same.
"""

import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmark.system import end_with_parent, usable_cores
from datasets.core.base import PARTS, DataError, RawDataset, Split
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
        signature, content = folder / "signature", listed.signature()
        if not signature.exists() or signature.read_text() != content:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            signature.write_text(content)
        parts = {part: _decode_part(part, listed, folder, name, workers) for part in PARTS}
    except BadImage as bad:
        raise listed.explain(bad) from bad
    for leftover in (signature, *(folder / f"{part}.done" for part in PARTS)):
        leftover.unlink()
    same = {field.name: getattr(listed, field.name) for field in fields(RawDataset)}
    return RawDataset(**same | parts)


def _decode_part(part: str, listed: ListedDataset, folder: Path, name: str, workers: int | None) -> Split:
    """Decode what is left of a part; ``<part>.done`` has a line for each chunk that is on the disk, in their order."""
    files: Files = getattr(listed, part)
    array, done = folder / f"{part}_images.npy", folder / f"{part}.done"
    if not array.exists() or not done.exists():
        np.lib.format.open_memmap(array, "w+", np.uint8, (len(files), *listed.shape)).flush()
        done.touch()
    before = done.read_text().count("\n")
    starts = range(0, len(files), CHUNK)[before:]
    chunks = [files.paths[start : start + CHUNK] for start in starts]
    many = sum(map(len, chunks)) > FEW
    title, live = f"{name}: {part}", many and sys.stderr.isatty()
    if many and not live:
        already = f", {before * CHUNK:,} decoded before" if before else ""
        print(f"{title}: decoding {len(files):,} images{already}", file=sys.stderr, flush=True)
    work = partial(_decode_chunk, array, listed.decode)
    workers = workers or _workers() if many else 1
    ended = _in_processes(work, starts, chunks, workers) if workers > 1 else map(work, starts, chunks)
    with done.open("a") as stream:
        console = Console(file=sys.stderr)
        for start in track(ended, title, len(chunks), console=console, transient=True, disable=not live):
            print(start, file=stream, flush=True)
    return Split(np.load(array, mmap_mode="r"), files.labels, files.attributes, files.sources)


def _in_processes(
    work: Callable[[int, Sequence[Path]], int], starts: range, chunks: list[Sequence[Path]], workers: int
) -> Iterator[int]:
    try:
        # A fork of a process with threads (PyTorch's) may hang; a spawned process does not.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=spawn, initializer=end_with_parent) as pool:
            yield from pool.map(work, starts, chunks)
    except BrokenProcessPool as error:
        raise DataError(
            "a process that decodes images was killed, probably because the memory was full. The same command "
            "continues where it stopped. Lower FEDTABLES_WORKERS for less memory."
        ) from error


def _decode_chunk(array: Path, decode: Decode, start: int, paths: Sequence[Path]) -> int:
    images = np.load(array, mmap_mode="r+")
    shape = images.shape[1:]
    for index, path in enumerate(paths, start):
        image = decode(path)
        if image.dtype != np.uint8 or image.shape != shape:
            raise BadImage(path, f"was decoded into {image.dtype} {image.shape} and not into uint8 {shape}")
        images[index] = image
    images.flush()
    return start


def _workers() -> int:
    given = os.environ.get("FEDTABLES_WORKERS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return usable_cores()
