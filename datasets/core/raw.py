"""The raw files that a data set was made of: noted while its builder reads them, and compared before it is used again.

Noted are the files that the builder opens below the data root, and the files beside them with the same endings, so that
an image which is added to a folder is seen as well.
"""

import contextlib
import os
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from benchmark.code import of_file

Notes = dict[str, list[Any]]
"""Name relative to the data root -> [size in bytes, time of the last change in ns, SHA-256]."""

_opened: ContextVar[set[str] | None] = ContextVar("opened", default=None)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    names = _opened.get() if event == "open" else None
    if names is not None and isinstance(arguments[0], str | bytes | os.PathLike):
        names.add(str(Path(os.fsdecode(arguments[0])).absolute()))


# A builder may use any library to read. Python reports to this function whatever a library opens.
sys.addaudithook(_audit)


@contextlib.contextmanager
def opened_files() -> Iterator[set[str]]:
    """The absolute paths of all files that are opened inside the ``with``."""
    names: set[str] = set()
    before = _opened.set(names)
    try:
        yield names
    finally:
        _opened.reset(before)


def listing(root: Path, names: Collection[str]) -> dict[str, list[int]]:
    """Size and time of files relative to ``root``: those of ``names``, and those beside them with the same endings.

    Names may be relative to ``root`` or paths; paths of other folders are left out.
    """
    endings: dict[Path, set[str]] = defaultdict(set)
    for path in (root / name for name in names):
        if path.is_relative_to(root):
            endings[path.parent.relative_to(root)].add(path.suffix)
    files = {}
    for folder, kinds in endings.items():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root / folder) as entries:
            for entry in entries:
                if Path(entry.name).suffix in kinds and not entry.name.startswith(".") and entry.is_file():
                    stat = entry.stat()
                    files[(folder / entry.name).as_posix()] = [stat.st_size, stat.st_mtime_ns]
    return files


def difference(root: Path, notes: Notes) -> tuple[str, Notes]:
    """(what has changed since the notes were made, in words; notes with today's times).

    Nothing has changed if only times have, or if all files are gone: prepared arrays can be used without them.
    """
    there = listing(root, notes)
    before = {name: about[:2] for name, about in notes.items()}
    if not there or there == before:
        return "", notes
    for name in sorted(notes.keys() | there.keys()):
        if name not in there or name not in notes:
            return f"{root / name} is {'new' if name in there else 'gone'}", notes
        if there[name] != before[name] and of_file(root / name) != notes[name][2]:
            return f"{root / name} has changed", notes
    return "", {name: [*about, notes[name][2]] for name, about in there.items()}
