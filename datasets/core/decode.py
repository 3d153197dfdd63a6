"""Decoding of listed image files into arrays on the disk, by several threads.

If a preparation stops, the files it decoded stay beside the cache. The next one uses them if the list and the files
are the same.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmark import code
from benchmark.system import usable_cores
from datasets.core.base import PARTS, RawDataset, Split
from datasets.core.images import BadImage, Files, ListedDataset, ToSquare
from datasets.core.raw import stats

CHUNK = 32
"""Files that a thread decodes between two reports."""


def decode_into(listed: ListedDataset, folder: Path, name: str) -> RawDataset:
    """Decode all files into ``<folder>/<part>_images.npy`` and return the data set with these arrays, memory-mapped.

    Continues where an earlier call for the same list stopped. FEDTABLES_WORKERS is the number of threads, by default
    one per usable core.

    Raises:
        BadImage: A file cannot be decoded, or not into the shape. The folder stays, for the next call.
        OSError: The folder cannot be written.
    """
    paths = (str(path.absolute()) for path in (*listed.train.paths, *listed.test.paths))
    signature = folder / "signature"
    content = code.of([repr(listed.decode), listed.shape, stats(Path("/"), paths)])
    if not signature.exists() or signature.read_text() != content:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        signature.write_text(content)
    parts = {part: _decode_part(part, listed, folder, name) for part in PARTS}
    for leftover in (signature, *(folder / f"{part}.done" for part in PARTS)):
        leftover.unlink()
    same = {field.name: getattr(listed, field.name) for field in fields(RawDataset)}
    return RawDataset(**same | parts)


def _decode_part(part: str, listed: ListedDataset, folder: Path, name: str) -> Split:
    """Decode what is left of a part; ``<part>.done`` has a line for each chunk that is on the disk, in their order."""
    files: Files = getattr(listed, part)
    array, done = folder / f"{part}_images.npy", folder / f"{part}.done"
    if not array.exists() or not done.exists():
        np.lib.format.open_memmap(array, "w+", np.uint8, (len(files), *listed.shape)).flush()
        done.touch()
    before = done.read_text().count("\n")
    starts = range(0, len(files), CHUNK)[before:]
    chunks = [files.paths[start : start + CHUNK] for start in starts]
    title, live = f"{name}: {part}", len(chunks) > 2 and sys.stderr.isatty()
    if len(chunks) > 2 and not live:
        already = f", {before * CHUNK:,} decoded before" if before else ""
        print(f"{title}: decoding {len(files):,} images{already}", file=sys.stderr, flush=True)
    given = os.environ.get("FEDTABLES_WORKERS", "")
    threads = int(given) if given.isdigit() and int(given) > 0 else usable_cores()
    # Pillow decodes and resizes without Python's lock.
    with ThreadPoolExecutor(threads) as pool, done.open("a") as stream:
        ended = pool.map(partial(_decode_chunk, array, listed.decode), starts, chunks)
        console = Console(file=sys.stderr)
        try:
            for start in track(ended, title, len(chunks), console=console, transient=True, disable=not live):
                print(start, file=stream, flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    return Split(np.load(array, mmap_mode="r"), files.labels, files.attributes, files.sources)


def _decode_chunk(array: Path, decode: ToSquare, start: int, paths: Sequence[Path]) -> int:
    images = np.load(array, mmap_mode="r+")
    shape = images.shape[1:]
    for index, path in enumerate(paths, start):
        image = decode(path)
        if image.dtype != np.uint8 or image.shape != shape:
            raise BadImage(path, f"was decoded into {image.dtype} {image.shape} and not into uint8 {shape}")
        images[index] = image
    images.flush()
    return start
