"""The raw files that a data set was made of: compared before its prepared arrays are used again."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmark import code
from datasets.core.base import Built
from datasets.core.folders import listing
from datasets.core.images import SUFFIXES, ListedDataset

Notes = dict[str, list[Any]]
"""Name -> [size in bytes, time of the last change in ns, SHA-256].

The content of a folder are the names of the images and folders in it.
"""


def names_of(root: Path, built: Built[Any]) -> list[str]:
    """What a builder read, relative to ``root``: the files that it returned, its images, and the folders of these."""
    paths = dict.fromkeys(built.files)
    if isinstance(built, ListedDataset):
        images = [*built.train.paths, *built.test.paths]
        # A folder is noted so that an image which is added to it is seen as well.
        paths |= dict.fromkeys([*images, *(path.parent for path in images)])
    return [(path.relative_to(root) if path.is_relative_to(root) else path).as_posix() for path in paths]


def stats(root: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """Size and time of those files and folders that are there."""
    found = {}
    for name in names:
        try:
            about = os.stat(root / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        found[name] = [0 if stat.S_ISDIR(about.st_mode) else about.st_size, about.st_mtime_ns]
    return found


def noted(root: Path, files: dict[str, list[int]]) -> Notes:
    """The notes on files that had these sizes and times."""
    return {name: [*about, _digest(root / name)] for name, about in files.items()}


def difference(root: Path, notes: Notes, whole: bool = False) -> tuple[str, Notes]:
    """(what has changed since the notes were made, in words; notes with today's times).

    The content is read of files whose size or time has changed, or of all (``whole``). Nothing has changed if all files
    are gone: prepared arrays can be used without them.
    """
    there = stats(root, notes)
    for name, (*before, digest) in notes.items() if there else ():
        if name not in there:
            return f"{root / name} is gone", notes
        if (whole or there[name] != before) and _digest(root / name) != digest:
            return f"{root / name} has changed", notes
    return "", {name: [*there.get(name, about[:2]), about[2]] for name, about in notes.items()}


def _digest(path: Path) -> str:
    if not path.is_dir():
        return code.of_file(path)
    return code.of([name for name in listing(path) if name.lower().endswith(("/", ".npy", *SUFFIXES))])
