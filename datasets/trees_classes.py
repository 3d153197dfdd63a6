"""Raw data as one folder of image files per class: finding the folders, listing them, and saying what is wrong."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from datasets.base import DataError
from datasets.raw import IGNORED

SHOWN = 5
"""Names that a message shows of a folder's content."""


@dataclass(frozen=True)
class ClassTree:
    """Where a data set with one folder per class is expected, and where a person gets it.

    Attributes:
        title: Name of the data set for people.
        tops: Patterns (any case) of the archive's top folder; the first is a name, the one to recommend.
        layout: Path of an image relative to the data root, as a message shows it.
        folders: Names of the class folders.
        page, archive: Owner's page, and the archive's name and size.
        hints: Likely cause by pattern of a name that is found instead.
        same: Class folders are equal where this gives the same for both names.
        depth: Levels between a top folder and the class folders, at most.
    """

    title: str
    tops: tuple[str, ...]
    layout: str
    folders: tuple[str, ...]
    page: str
    archive: str
    hints: Mapping[str, str] = field(default_factory=dict)
    same: Callable[[str], str] = str.casefold
    depth: int = 2


@dataclass(frozen=True)
class Found:
    """The folder that holds the class folders (or should), and these by their name in `ClassTree.folders`."""

    place: Path
    folders: Mapping[str, Path]


# Finding -------------------------------------------------------------------------------------------------------------


def entries(folder: Path) -> list[Path]:
    """What lies in a folder, sorted by name, without what archivers and desktops leave behind; empty if it is none.

    Raises:
        DataError: The folder cannot be read.
    """
    try:
        return sorted(
            path for path in folder.iterdir() if not path.name.startswith(".") and path.name not in IGNORED
        )
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DataError(f"{folder} cannot be read ({error.strerror}); change its rights") from error


def find_class_folders(tree: ClassTree, root: Path) -> Found:
    """The folder below `root` that holds most class folders: a top folder, one nested in it, or `root` itself.

    Raises:
        DataError: A folder cannot be read.
    """
    tops = _tops(tree, root)
    best = Found(tops[0] if tops else root / tree.tops[0], {})
    level = [*tops, root]
    for _ in range(tree.depth + 1):
        below: list[Path] = []
        for place in level:
            folders = [path for path in entries(place) if path.is_dir()]
            found = _named(tree, folders)
            if len(found) > len(best.folders):
                best = Found(place, found)
            if place != root:  # other data sets lie beside the top folder: they are not searched
                below += [path for path in folders if path not in found.values()]
        level = below
    return best


def _tops(tree: ClassTree, root: Path) -> list[Path]:
    folders = [path for path in entries(root) if path.is_dir()]
    matching = (
        path for pattern in tree.tops for path in folders if fnmatch(path.name.lower(), pattern.lower())
    )
    return list(dict.fromkeys(matching))


def _named(tree: ClassTree, folders: Sequence[Path]) -> dict[str, Path]:
    there = {tree.same(path.name): path for path in reversed(folders)}
    return {name: there[tree.same(name)] for name in tree.folders if tree.same(name) in there}


def image_files(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """Files of a folder with one of the suffixes (lower case, with their dot; any case in the folder), sorted."""
    wanted = frozenset(suffixes)
    return [path for path in entries(folder) if path.suffix.lower() in wanted]


def identical_files(paths: Iterable[Path]) -> list[list[Path]]:
    """Groups of two or more files with the same bytes, each sorted; only files of the same size are read."""
    sizes: dict[int, list[Path]] = defaultdict(list)
    for path in paths:
        sizes[path.stat().st_size].append(path)
    groups: dict[str, list[Path]] = defaultdict(list)
    for alike in sizes.values():
        if len(alike) > 1:
            for path in alike:
                groups[hashlib.sha256(path.read_bytes()).hexdigest()].append(path)
    return sorted(sorted(group) for group in groups.values() if len(group) > 1)


# Saying what is wrong ------------------------------------------------------------------------------------------------


def tree_error(
    tree: ClassTree, root: Path, place: Path, problem: str, cause: str, counts: str, found: str = ""
) -> DataError:
    """The error for raw files that are missing or wrong, in the six parts that every such message has.

    Args:
        tree: What is expected.
        root: The data root.
        place: The folder or file looked at.
        problem: One sentence.
        cause: What probably happened; a name that `tree.hints` knows says it better.
        counts: Numbers expected and found.
        found: What was found instead; by default the first names in the nearest folder that exists.
    """
    return DataError(
        f"{tree.title}: {problem}\n"
        f"  looked at: {place.absolute()}\n"
        f"  expected:  {tree.layout} under the data root\n"
        f"  found:     {found or _content(_nearest(place, root))}\n"
        f"  cause:     {_hinted(tree, place, root) or cause}\n"
        f"  get it:    {tree.page}, {tree.archive}; put it under {root}, "
        "or set FEDTABLES_DATA to the folder that has it\n"
        f"  counts:    {counts}"
    )


def missing_folders(tree: ClassTree, root: Path, found: Found) -> DataError:
    """The error where not all class folders are there."""
    absent = [name for name in tree.folders if name not in found.folders]
    some = "not all of the archive was unpacked, or folders were renamed"
    none = "not downloaded yet, the data root is another folder, or the class folders lie deeper"
    return tree_error(
        tree,
        root,
        found.place,
        f"{len(absent)} of {len(tree.folders)} class folders are missing ({', '.join(absent)}).",
        some if found.folders else none,
        f"{len(tree.folders)} class folders expected, {len(found.folders)} found",
    )


def check_counts(
    tree: ClassTree,
    root: Path,
    place: Path,
    found: Mapping[str, int],
    expected: Mapping[str, int],
    cause: str = "",
) -> None:
    """Compare the number of files of each class with the published one.

    Args:
        tree: What is expected.
        root: The data root.
        place: The folder looked at.
        found: Files by class.
        expected: Published number of files by class.
        cause: What probably happened, where the caller knows.

    Raises:
        DataError: They differ.
    """
    wrong = {name: (found.get(name, 0), number) for name, number in expected.items()}
    wrong = {name: pair for name, pair in wrong.items() if pair[0] != pair[1]}
    if not wrong:
        return
    fewer = any(have < number for have, number in wrong.values())
    broke_off = "a download or an unpacking that broke off"
    usual = (
        broke_off if fewer else "files were added: an augmented copy, or another data set in these folders"
    )
    loose = "; a cut-down copy needs `options: {strict: false}` in conf/dataset/*.yaml"
    each = ", ".join(f"{name} {have:,} of {number:,}" for name, (have, number) in wrong.items())
    raise tree_error(
        tree,
        root,
        place,
        f"{len(wrong)} of {len(expected)} classes do not have the published number of images.",
        (cause or usual) + loose,
        f"{sum(expected.values()):,} images expected, {sum(found.values()):,} found: {each}",
    )


def check_not_empty(tree: ClassTree, root: Path, found: Mapping[str, int], least: int) -> None:
    """Refuse a class with fewer than `least` files; all that is asked of a cut-down copy.

    Raises:
        DataError: There is one.
    """
    wrong = {name: number for name, number in found.items() if number < least}
    if wrong:
        each = ", ".join(f"{name} {number}" for name, number in wrong.items())
        raise tree_error(
            tree,
            root,
            find_class_folders(tree, root).place,
            f"{len(wrong)} of {len(found)} classes have fewer than {least} images.",
            "a download or an unpacking that broke off, or files of another type than expected",
            f"at least {least} of each class expected, found: {each}",
        )


def _nearest(place: Path, root: Path) -> Path:
    """The nearest folder at or above `place`, not above `root`: it shows best what went wrong."""
    while not place.is_dir() and place not in (root, place.parent):
        place = place.parent
    return place


def _content(folder: Path) -> str:
    if not folder.is_dir():
        return f"nothing: {folder} does not exist"
    names = [path.name + "/" * path.is_dir() for path in entries(folder)]
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more} in {folder}" if names else f"nothing in {folder}"


def _hinted(tree: ClassTree, place: Path, root: Path) -> str | None:
    beside = (place, *((place.parent,) if place != root else ()), root)
    for folder in dict.fromkeys(beside):
        for path in entries(folder):
            for pattern, cause in tree.hints.items():
                if fnmatch(path.name.lower(), pattern.lower()):
                    return f"{path.name} in {folder}: {cause}"
    return None
