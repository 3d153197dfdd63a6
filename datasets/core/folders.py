"""Raw files under the data root: where they should be, where they are, and the error if they are missing or wrong."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import filter as matching
from fnmatch import fnmatch
from pathlib import Path

from datasets.core.base import DataError, Facts

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
        folders: Accepted folders below the data root, as names or patterns in any case. The first is a name: the one
            to recommend.
        page, archive: Owner's page, and the archive's name and size.
        hints: Likely cause of a mistake by the pattern of a name found instead (any case; a folder's ends in a slash).
        layout: What is expected, as paths relative to the data root, for messages.
        depth: Levels below an accepted folder that are searched for the files, whatever their names are. 0: only a
            folder of an accepted name inside it, because unpacking tools often make one.
        same: Names of files and folders are equal if this function gives the same for both.
    """

    title: str
    folders: tuple[str, ...]
    page: str
    archive: str
    hints: Mapping[str, str] = field(default_factory=dict)
    layout: str = ""
    depth: int = 0
    same: Callable[[str], str] = str.casefold

    def facts(
        self, train: int, test: int, classes: int, size: int, *, channels: int = 3, sources: int = 0
    ) -> Facts:
        """`Facts` with this archive and page."""
        return Facts(train, test, classes, channels, size, sources, self.archive, self.page)


@dataclass(frozen=True)
class Place:
    """The folder of a data set: the one found, or the recommended one if none was found."""

    tree: Tree
    root: Path
    folder: Path

    def relative(self, path: Path) -> str:
        """`path` relative to the data root, for messages."""
        absolute, top = path.absolute(), self.root.absolute()
        return absolute.relative_to(top).as_posix() if absolute.is_relative_to(top) else str(absolute)

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
        there, by_found = self._found(at)
        return DataError(
            f"{self.tree.title}: {problem}\n"
            f"  looked at: {at.absolute()}\n"
            f"  expected:  {expected or f'{self.tree.layout} under the data root'}\n"
            f"  found:     {found or there}\n"
            f"  cause:     {cause or by_found}\n"
            f"  get it:    {self.tree.page}, {self.tree.archive}; put it under {self.root.absolute()} in the place of "
            "wrong files, or set FEDTABLES_DATA to its folder"
        )

    def bad_file(
        self, path: Path, problem: str, expected: str, cause: str = "", found: str = ""
    ) -> DataError:
        """The error about a file with a wrong content. `problem` continues its name, and `expected` its path."""
        return self.error(f"{path.name} {problem}.", cause, path, f"{self.relative(path)}, {expected}", found)

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


@contextlib.contextmanager
def readable(tree: Tree, root: Path) -> Iterator[None]:
    """Turn an OSError while the raw files of `tree` below `root` are read into a message for the user."""
    try:
        yield
    except OSError as error:
        path = Path(error.filename or root)
        problem = f"{path.name} cannot be read ({error.strerror or error})."
        raise Place(tree, root, path).error(problem, UNREADABLE) from error


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
    """The folder under `root` that holds most of `marks`: one of an accepted name, one inside it, or `root` itself.

    If none holds any: the first accepted folder that exists, else the recommended one. Marks are patterns of names of
    files and folders; a folder's may end in a slash.
    """
    patterns = [tree.same(mark.rstrip("/")) for mark in marks]

    def held(place: Path) -> int:
        names = {tree.same(name.rstrip("/")) for name in listing(place)}
        return sum(bool(matching(names, pattern)) for pattern in patterns)

    with readable(tree, root):
        named = level = folders_like(root, tree.folders)
        inner_names = ("*",) if tree.depth else tree.folders
        for _ in range(tree.depth or 1):
            level = [inner for place in level for inner in folders_like(place, inner_names)]
            named = [*named, *level]
        best = max([*named, root], key=held)
        if best == root and not held(root):
            best = root / tree.folders[0]
    return Place(tree, root, best)


def folders_like(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """The folders inside a folder whose names fit a pattern, in any case."""
    names = [name.rstrip("/") for name in listing(folder) if name.endswith("/")]
    fitting = (name for mark in patterns for name in names if fnmatch(name.lower(), mark.lower()))
    return [folder / name for name in dict.fromkeys(fitting)]


def find_any(tree: Tree, root: Path, marks: Collection[str]) -> Place:
    """As `find`, but one of `marks` (names of files, or of folders with a slash) has to be there."""
    place = find(tree, root, marks)
    if not set(marks) & set(listing(place.folder)):
        raise place.error(f"there is no {' or '.join(marks)}.")
    return place


def find_classes(tree: Tree, root: Path, names: Collection[str]) -> tuple[Place, dict[str, Path]]:
    """The folder that holds one folder for each class, and these folders by their name in `names`."""
    place = find(tree, root, names)
    inside = [name.rstrip("/") for name in reversed(listing(place.folder)) if name.endswith("/")]
    there = {tree.same(name): place.folder / name for name in inside}
    absent = [name for name in names if tree.same(name) not in there]
    if absent:
        raise place.error(f"{len(absent)} of {len(names)} class folders are missing ({', '.join(absent)}).")
    return place, {name: there[tree.same(name)] for name in names}


def with_nested(folders: Iterable[Path]) -> list[Path]:
    """The folders that exist, each followed by the folder of the same name inside it if there is one."""
    return [place for folder in folders for place in (folder, folder / folder.name) if place.is_dir()]


def first_file(folders: Iterable[Path], names: Collection[str]) -> Path | None:
    """The first of `names` in the first folder that has one, compared without regard to case; else None."""
    for folder in folders:
        there = {name.lower(): name for name in listing(folder) if not name.endswith("/")}
        for name in names:
            if name.lower() in there:
                return folder / there[name.lower()]
    return None


def files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files directly in a folder with one of the suffixes (given in lower case, found in any case), sorted."""
    return [folder / name for name in listing(folder) if name.lower().endswith(suffixes)]


def files_by_stem(place: Place, folders: Iterable[Path], suffixes: tuple[str, ...]) -> dict[str, Path]:
    """Files as `files_in` in each of the folders, by name without suffix, sorted. The first of two copies is taken."""
    found: dict[str, Path] = {}
    for path in (path for folder in folders for path in files_in(folder, suffixes)):
        other = found.setdefault(path.stem, path)
        if other != path and other.stat().st_size != path.stat().st_size:
            both = f"{place.relative(other)} and {place.relative(path)}"
            raise place.error(
                f"{both} have the same name and different sizes.",
                "a resized or damaged copy beside the originals; remove the one that is not the owner's",
            )
    return dict(sorted(found.items()))
