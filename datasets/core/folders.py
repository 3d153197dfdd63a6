"""Raw files under the data root: where they should be, where they are, and the error if they are missing or wrong."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import filter as matching
from fnmatch import fnmatch
from pathlib import Path

from datasets.core.base import DataError

IGNORED = frozenset({"__MACOSX", "Thumbs.db", "ATTRIBUTION.txt", "LICENSE.txt"})
DEPTH = 3
"""Levels below an accepted folder that are searched for the files: unpacking tools often make one."""
STRICT = "dataset.options.strict=false accepts copies that were cut down, resized or re-encoded"


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Where the raw data of a data set are expected, and where a user gets them.

    Attributes:
        title: Name of the data set for people.
        folders: Accepted folders below the data root, as names or patterns in any case. The first is the one to
            recommend, a name or a path. Empty for a set without files.
        page, archive, licence: Owner's page, the archive's name and size, and the licence that the owner states.
        layout: What is expected, as paths relative to the data root, for messages.
        same: Names of files and folders are equal if this function gives the same for both.
        sides: Least pixels of the shorter side of an original image, by source; by "" for images of any source.
    """

    title: str
    folders: tuple[str, ...] = ()
    page: str = ""
    archive: str = ""
    licence: str = ""
    layout: str = ""
    same: Callable[[str], str] = str.casefold
    sides: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """The folder of a data set: the one that is there, or the recommended one if none is.

    ``files`` are those whose content was read through it, for `Built.files`.
    """

    tree: Tree
    root: Path
    folder: Path
    files: list[Path] = field(default_factory=list)

    def require(self, names: Collection[str]) -> dict[str, Path]:
        """The files and folders of these names in it, compared by `Tree.same`. `DataError` if some are missing."""
        there = {self.tree.same(name.rstrip("/")): self.folder / name for name in listing(self.folder)}
        paths = {name: there.get(self.tree.same(name), self.folder / name) for name in names}
        missing = [name for name, path in paths.items() if not path.exists()]
        if missing:
            found = first_names(listing(self.folder)) or "nothing"
            raise self.error(
                f"got no {first_names(missing)} ({len(missing)} of {len(names)}); there is {found}"
            )
        return paths

    def check_listed(self, names: Collection[str], there: Collection[str], what: str = "no file of") -> None:
        """Refuse a list of images of which some are not ``there``."""
        missing = [name for name in names if name not in there]
        if missing:
            count = f"{len(missing):,} of {len(names):,} listed images"
            raise self.error(f"got {what} {count}: {first_names(missing)}")

    def check_counts(self, there: Mapping[str, int], expected: Mapping[str, int]) -> None:
        """Compare numbers of images (of classes, sites, folders) with the published ones."""
        if Counter(there) != Counter(expected):
            pairs = {name: (there.get(name, 0), expected.get(name, 0)) for name in {**expected, **there}}
            different = [
                f"{name} {got:,} of {number:,}" for name, (got, number) in pairs.items() if got != number
            ]
            count, wanted = sum(there.values()), f"the published {sum(expected.values()):,}"
            if not count:
                raise self.error("got no images", expected=wanted)
            raise self.error(f"got {count:,} images ({', '.join(different)})", expected=f"{wanted}; {STRICT}")

    def error(self, got: str, path: Path | None = None, expected: str = "") -> DataError:
        """The error about missing or wrong files: what is there, what is expected (the layout), and where to get it."""
        tree, root = self.tree, self.root.absolute()
        expected = expected or f"{tree.layout or first_names(tree.folders, 1)} under {root}"
        text = f"{tree.title}: {(path or self.folder).absolute()}: {got}; expected {expected}."
        if tree.page:
            text += (
                f" Get it from {tree.page}: {tree.archive} (licence: {tree.licence}). Put it under {root}, "
            )
            text += "or set FEDTABLES_DATA to its folder."
        return DataError(text)


def listing(folder: Path) -> list[str]:
    """Sorted names in a folder, folders with a slash, without hidden files and those that archivers leave."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [entry.name + "/" * entry.is_dir() for entry in entries]
    return sorted(name for name in names if not name.startswith(".") and name.rstrip("/") not in IGNORED)


def first_names(names: Collection[object], many: int = 5) -> str:
    """The first names, and how many more there are."""
    first = ", ".join(str(name) for name in list(names)[:many])
    return f"{first} and {len(names) - many:,} more" if len(names) > many else first


def find(tree: Tree, root: Path, marks: Collection[str]) -> Place:
    """The folder under `root` that holds most of `marks`, patterns of names of files and folders.

    It is an accepted one, one inside it, or `root` itself. If none holds any: the first accepted folder that exists,
    else the recommended one.
    """
    patterns = [tree.same(mark) for mark in marks]

    def held(place: Path) -> int:
        names = {tree.same(name.rstrip("/")) for name in listing(place)}
        return sum(bool(matching(names, pattern)) for pattern in patterns)

    level = folders_like([root], tree.folders)
    accepted = [*level]
    for _ in range(DEPTH):
        level = folders_like(level)
        accepted += level
    best = max([*accepted, root], key=held)
    return Place(tree, root, root / tree.folders[0] if best == root and not held(root) else best)


def folders_like(places: Iterable[Path], patterns: Iterable[str] = ("*",)) -> list[Path]:
    """The folders inside others whose names fit a pattern, in any case."""
    inside = [(place, name.rstrip("/")) for place in places for name in listing(place) if name.endswith("/")]
    fitting = (
        place / name for mark in patterns for place, name in inside if fnmatch(name.lower(), mark.lower())
    )
    return list(dict.fromkeys(fitting))


def first_file(folders: Iterable[Path], names: Collection[str]) -> Path | None:
    """The first of `names` in the first folder that has one, compared without regard to case; else None."""
    for folder in folders:
        there = {name.lower(): folder / name for name in listing(folder) if not name.endswith("/")}
        for name in names:
            if name.lower() in there:
                return there[name.lower()]
    return None


def files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files directly in a folder with one of the suffixes (given in lower case, found in any case), sorted."""
    return [folder / name for name in listing(folder) if name.lower().endswith(suffixes)]


def files_by_stem(folders: Iterable[Path], suffixes: tuple[str, ...]) -> dict[str, Path]:
    """Files as `files_in` in each of the folders, by name without suffix, sorted. The first of two copies is taken."""
    files: dict[str, Path] = {}
    for path in (path for folder in folders for path in files_in(folder, suffixes)):
        files.setdefault(path.stem, path)
    return dict(sorted(files.items()))
