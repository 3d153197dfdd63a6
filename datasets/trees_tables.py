"""Data sets that come as a folder of image files: finding the folder, listing it, and saying what is wrong with it.

Whoever unpacks an archive may get its top folder, the same folder once more inside it, or the content alone; all
three are found. Every mistake ends in one message with the six parts that section 0 of the notes on the data sets asks
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd

from datasets.base import DataError
from datasets.raw import listing

SHOWN = 5
"""Names that a message lists before it says how many more there are."""


@dataclass(frozen=True)
class ImageTree:
    """What a data set's folder is called and holds, and where a person gets it.

    Attributes:
        title: Name of the data set for people.
        folders: Accepted names of the top folder, relative to the data root; the first is the one to recommend.
        page: The owner's page.
        archive: Name and size of the archive.
        hints: Likely cause by pattern of a name (folders with a slash) that is found near the expected place.
    """

    title: str
    folders: tuple[str, ...]
    page: str
    archive: str
    hints: Mapping[str, str] = field(default_factory=dict)

    def places(self, root: Path) -> list[Path]:
        """Folders that may be the data set's, best first: each name, the same name inside it, the root itself."""
        names = [name for folder in self.folders for name in (folder, f"{folder}/{Path(folder).name}")]
        return [root / name for name in dict.fromkeys((*names, "."))]


def find_tree(tree: ImageTree, root: Path, is_it: Callable[[Path], bool]) -> Path | None:
    """The first of the tree's places below `root` that `is_it` accepts, else None.

    Raises:
        DataError: A folder cannot be read.
    """
    try:
        return next((place for place in tree.places(root) if place.is_dir() and is_it(place)), None)
    except PermissionError as error:
        raise DataError(
            f"{tree.title}: {error.filename} cannot be read ({error.strerror}); change its rights"
        ) from error


def nearest_place(tree: ImageTree, root: Path) -> Path:
    """Where a message says that it looked: the first of the tree's places that exists, else the recommended one."""
    named = [place for place in tree.places(root) if place != root]
    return next((place for place in named if place.is_dir()), named[0])


def files_of(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """Files directly in `folder` with one of the (lower-case) suffixes, by name, without junk; [] for no folder."""
    wanted = tuple(suffixes)
    return [folder / name for name in listing(folder) if name.lower().endswith(wanted)]


def cause_by_name(tree: ImageTree, *folders: Path) -> str | None:
    """What the names in these folders tell about the mistake: the first of the tree's hints that fits one of them."""
    for folder in dict.fromkeys(folders):
        for name in listing(folder):
            for pattern, cause in tree.hints.items():
                if fnmatch(name, pattern):
                    return f"{name} in {folder}: {cause}"
    return None


def some(names: Sequence[object]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(str(name) for name in names[:SHOWN]) + more


def found_in(folder: Path) -> str:
    """What lies in `folder`, or in the nearest folder above it that exists."""
    place = folder
    while not place.is_dir() and place != place.parent:
        place = place.parent
    gone = f"{folder} does not exist; " if place != folder else ""
    return f"{gone}{some(listing(place)) or 'nothing'} in {place}"


def tree_error(
    tree: ImageTree, problem: str, *, looked_at: Path, expected: str, found: str, cause: str, counts: str
) -> DataError:
    """The error for a mistake in the data set's files, in six parts.

    Args:
        tree: The data set.
        problem: What is wrong, in one sentence.
        looked_at: File or folder that was looked at.
        expected: The relative path expected there, or the content.
        found: What was found instead, see `found_in`.
        cause: Likely cause, and what to do about it.
        counts: Images expected and found, per class or centre.
    """
    return DataError(
        f"{tree.title}: {problem}\n"
        f"  looked at: {looked_at.absolute()}\n"
        f"  expected:  {expected}\n"
        f"  found:     {found}\n"
        f"  cause:     {cause}\n"
        f"  get it:    {tree.page}, {tree.archive}; unpack it under the data root (FEDTABLES_DATA)\n"
        f"  counts:    {counts}"
    )


def read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A csv file with a header line that has these columns; all values as text, an empty cell as "".

    Raises:
        ValueError: It cannot be read as such; the message says why, for the "found" of a `tree_error`.
    """
    try:
        table = pd.read_csv(
            path, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig"
        )
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise ValueError(f"{path.name} that cannot be read ({' '.join(str(error).split())})") from error
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ValueError(
            f"{path.name} with the columns {some(list(table.columns))}, without {', '.join(missing)}"
        )
    return table
