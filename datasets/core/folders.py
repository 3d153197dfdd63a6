"""Raw files under the data root: where they should be, where they are, and the error if they are missing or wrong."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import filter as matching
from fnmatch import fnmatch
from pathlib import Path

from datasets.core.base import DataError

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".rar", ".7z")
IGNORED = frozenset({"__MACOSX", "Thumbs.db", "ATTRIBUTION.txt", "LICENSE.txt"})
NOT_THERE = "not downloaded yet, not unpacked to the end, in a deeper folder, or files of another data set"
BAD_FILE = "an interrupted download or unpacking, another file under this name, or one that was edited"
UNREADABLE = "its rights (change them with chmod -R u+rX), a link to nothing, or a disk that is not mounted"
STRICT = (
    "a copy that was cut down, resized, re-encoded (CIFAR rebuilt from PNG) or re-ordered needs "
    "dataset.options.strict=false"
)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Where the raw data of a data set are expected, and where a user gets them.

    Attributes:
        title: Name of the data set for people.
        folders: Accepted folders below the data root, as names or patterns in any case. The first is the one to
            recommend, a name or a path. Empty for a set without files.
        page, archive, licence: Owner's page, the archive's name and size, and the licence that the owner states.
        hints: Likely cause of a mistake by the pattern of a name found instead (any case; a folder's ends in a slash).
        layout: What is expected, as paths relative to the data root, for messages.
        depth: Levels below an accepted folder that are searched for the files: unpacking tools often make one.
        same: Names of files and folders are equal if this function gives the same for both.
        other_counts: Likely cause of other numbers of images than the published ones.
        sides: Least pixels of the shorter side of an original image, by source; by "" for images of any source.
    """

    title: str
    folders: tuple[str, ...] = ()
    page: str = ""
    archive: str = ""
    licence: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)
    layout: str = ""
    depth: int = 1
    same: Callable[[str], str] = str.casefold
    other_counts: str = "a part of the archive, added files, or another version"
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
            text = f"{len(missing)} of {len(names)} files and folders are missing: {first_names(missing)}."
            raise self.error(text)
        return paths

    def error(
        self, problem: str, cause: str = "", at: Path | None = None, expected: str = "", found: str = ""
    ) -> DataError:
        """The error about missing or wrong files: one sentence and five parts.

        Args:
            problem: The sentence, with the numbers expected and found where images are counted.
            cause: The likely cause; by default what the files and names found tell.
            at: The file or folder in question; by default this folder.
            expected: What is expected there; by default the tree's layout.
            found: What is there; by default the first bytes of a file or the first names in a folder.
        """
        at = at or self.folder
        there, likely = self._found(at)
        lines = [
            f"{self.tree.title}: {problem}",
            f"looked at: {at.absolute()}",
            f"expected:  {expected or f'{self.tree.layout} under the data root'}",
            f"found:     {found or there}",
            f"cause:     {cause or likely}",
        ]
        if self.tree.page:
            place = f"put it under {self.root.absolute()} in the place of wrong files"
            advice = f"{place}, or set FEDTABLES_DATA to its folder"
            lines.append(f"get it:    {self.tree.page}, {self.tree.archive}; {advice}")
        return DataError("\n  ".join(lines))

    def bad_file(
        self, path: Path, problem: str, expected: str, cause: str = "", found: str = ""
    ) -> DataError:
        """The error about a file with a wrong content. `problem` continues its name, and `expected` its path."""
        absolute, top = path.absolute(), self.root.absolute()
        shown = absolute.relative_to(top) if absolute.is_relative_to(top) else absolute
        return self.error(f"{path.name} {problem}.", cause, path, f"{shown}, {expected}", found)

    def _found(self, at: Path) -> tuple[str, str]:
        """What lies there or in the nearest folder above, and the likely cause by that."""
        try:
            if at.is_symlink() and not at.exists():
                return f"a link to {os.readlink(at)}, which is not there", UNREADABLE
            while not at.exists() and at not in (self.root, at.parent):
                at = at.parent
            if at.is_file():
                with open(at, "rb") as stream:
                    start = stream.read(16)
                size = at.stat().st_size
                return f"{size:,} bytes that begin with {start!r} in {at.absolute()}", _cause(start)
            names = f"{first_names(listing(at)) or 'nothing'} in {at.absolute()}"
            absent = f"nothing: {at.absolute()} does not exist"
            return names if at.is_dir() else absent, self._hint(at) or NOT_THERE
        except OSError as error:
            return f"nothing that can be read ({error.strerror})", UNREADABLE

    def _hint(self, place: Path) -> str:
        """The hint on the first name that has one, in `place` or the folders above it up to the data root."""
        above = [folder for folder in place.parents if folder == self.root or self.root in folder.parents]
        for folder in dict.fromkeys((place, *above, self.root)):
            # Archives of other data sets may lie in the data root.
            archives = self.tree.folders if folder == self.root else ("",)
            packed = [f"{name}*{suffix}" for name in archives for suffix in ARCHIVES]
            hints = {**self.tree.hints, **dict.fromkeys(packed, "the archive is not unpacked")}
            for name in listing(folder):
                for pattern, cause in hints.items():
                    if any(fnmatch(form.lower(), pattern.lower()) for form in (name, name.rstrip("/"))):
                        return f"{name} in {folder.absolute()}: {cause}"
        return ""


def _cause(start: bytes) -> str:
    """Why a file with these first bytes probably is wrong."""
    if start.lstrip()[:1] == b"<":
        return "a web page saved under this name: the download needs a login, or its link is dead"
    archive = start.startswith((b"PK\x03\x04", b"\x1f\x8b", b"Rar!"))
    return "an archive under this name, not unpacked" if archive else BAD_FILE


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
    for _ in range(tree.depth):
        level = folders_like(level)
        accepted += level
    best = max([*accepted, root], key=held)
    if best == root and not held(root):
        best = root / tree.folders[0]
    return Place(tree, root, best)


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


def files_by_stem(place: Place, folders: Iterable[Path], suffixes: tuple[str, ...]) -> dict[str, Path]:
    """Files as `files_in` in each of the folders, by name without suffix, sorted. The first of two copies is taken."""
    files: dict[str, Path] = {}
    for path in (path for folder in folders for path in files_in(folder, suffixes)):
        other = files.setdefault(path.stem, path)
        if other != path and other.stat().st_size != path.stat().st_size:
            both = f"{other} and {path}"
            raise place.error(
                f"{both} have the same name and different sizes.",
                "a resized or damaged copy beside the originals; remove the one that is not the owner's",
            )
    return dict(sorted(files.items()))
