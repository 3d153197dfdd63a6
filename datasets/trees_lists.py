"""Data sets that are a folder of images and lists, got by hand: finding the folder, and saying what is wrong with it.

Nothing here downloads: their owners ask for a form, an account or a click. `raw.py` has the sets that download.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from datasets.base import DataError
from datasets.raw import listing

NOT_UNPACKED = dict.fromkeys(
    ("*.zip", "*.tar", "*.tar.gz", "*.tgz", "*.rar", "*.7z"), "an archive that is not unpacked"
)
"""Hints for `Tree`."""
NOT_THERE = "not downloaded yet, the data root is another folder, or the files lie deeper"


@dataclass(frozen=True)
class Tree:
    """Where the folder of a data set is expected, and where a person gets it.

    Attributes:
        title: Name of the data set for people.
        folders: Accepted folders relative to the root; the first is the one to recommend.
        page, archive: Owner's page, and the archive's name and size.
        hints: Likely cause by pattern of a name that is found instead.
    """

    title: str
    folders: tuple[str, ...]
    page: str
    archive: str
    hints: Mapping[str, str] = field(default_factory=dict)


def tree_folder(tree: Tree, root: Path, needed: Sequence[str]) -> Path:
    """The accepted folder under `root` that holds all of `needed` (relative files or folders).

    Raises:
        DataError: No accepted folder holds them all, or one cannot be read; speaks of the one that holds most.
    """
    try:
        found = {
            root / name: [item for item in needed if (root / name / item).exists()] for name in tree.folders
        }
        # Of two that hold as many, one that is there says more than one that is not.
        folder = max(found, key=lambda place: (len(found[place]), place != root and place.is_dir()))
        missing = [item for item in needed if item not in found[folder]]
        if not missing:
            return folder
        cause = likely_cause(tree, (folder, folder.parent, root), NOT_THERE)
        if cause == NOT_THERE:
            inside = (f"*/{name}/{needed[0]}" for name in tree.folders if name != ".")
            deeper = [path.parent for pattern in inside for path in sorted(root.glob(pattern))]
            cause = f"{needed[0]} lies in {deeper[0]}: make that the data root" if deeper else cause
    except PermissionError as error:
        raise DataError(
            f"{tree.title}: {error.filename} cannot be read ({error.strerror}); change its rights"
        ) from error
    raise tree_error(
        tree,
        f"no {' and no '.join(f'`{item}`' for item in missing)} in {folder.absolute()}.",
        looked_at=folder,
        expected=f"{', '.join(relative(tree, item) for item in missing)} under the data root {root}",
        cause=cause,
        counts=f"{len(needed)} files and folders expected, {len(found[folder])} found",
    )


def relative(tree: Tree, name: str) -> str:
    """Where `name` belongs, relative to the data root."""
    return name if tree.folders[0] == "." else f"{tree.folders[0]}/{name}"


def likely_cause(tree: Tree, places: Iterable[Path], otherwise: str) -> str:
    """What the tree's hints say of the first name in `places` that one fits, else `otherwise`."""
    for place in dict.fromkeys(places):
        for name in listing(place):
            for pattern, cause in tree.hints.items():
                if fnmatch(name.rstrip("/"), pattern):
                    return f"{name} in {place}: {cause}"
    return otherwise


def tree_error(
    tree: Tree, problem: str, *, looked_at: Path, expected: str, cause: str, counts: str, found: str = ""
) -> DataError:
    """The error for a data set that cannot be used as it is.

    Args:
        tree: Where it should be and where to get it.
        problem: One sentence.
        looked_at: File or folder.
        expected: Relative path that belongs there, and what of it.
        cause: What probably happened, and what to do.
        counts: Numbers expected and found, per class or centre where that helps.
        found: What is there instead; default: the first names in the nearest folder that exists.
    """
    return DataError(
        f"{tree.title}: {problem}\n"
        f"  looked at: {looked_at.absolute()}\n"
        f"  expected:  {expected}\n"
        f"  found:     {found or first_names(looked_at)}\n"
        f"  cause:     {cause}\n"
        f"  get it:    {tree.page}, {tree.archive}\n"
        f"  counts:    {counts}"
    )


def first_names(place: Path) -> str:
    """The first five names in `place`, or in the nearest folder above it that exists."""
    while not place.is_dir() and place != place.parent:
        place = place.parent
    return f"{first_five(listing(place)) or 'nothing'} in {place.absolute()}"


def first_five(names: Sequence[str]) -> str:
    """Five names at most, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def read_rows(tree: Tree, path: Path) -> list[list[str]]:
    """Rows of a csv without quotes, cells stripped, empty rows left out.

    Raises:
        DataError: It cannot be read, is no text, or has no rows.
    """
    what = f"{path.name}, a text file with a row per image"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no UTF-8 text"
        raise tree_error(
            tree,
            f"{path.name} cannot be read ({reason}).",
            looked_at=path,
            expected=what,
            cause="a missing or damaged file, or a spreadsheet under the name of a csv",
            counts="at least 1 row expected, 0 read",
        ) from error
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip(" ,\t")]
    if not rows:
        raise tree_error(
            tree,
            f"{path.name} is empty.",
            looked_at=path,
            expected=what,
            cause="a download or an unpacking that broke off; get the file anew",
            counts="at least 1 row expected, 0 found",
            found=f"{path.stat().st_size:,} bytes",
        )
    return rows
