"""Trees of image files under the data root: finding them, reading their lists, and saying what is wrong with them.

Nothing here downloads: these sets need a form, an account or a click. `raw.py` has the sets that download, and the
message with six parts that both share.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import filter as matching
from fnmatch import fnmatch
from pathlib import Path

from datasets.core.base import DataError
from datasets.core.download import (
    NOT_THERE,
    Tree,
    below,
    found_in,
    known_cause,
    listing,
    put_it,
    readable,
    some,
    wrong,
)

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

DEEPER = "the files lie deeper, were not unpacked, or belong to something else"
BROKEN_OFF = "a download or an unpacking that broke off, or a full disk"
STRICT = "a cut-down copy needs `options: {strict: false}` in conf/dataset/*.yaml"


@dataclass(frozen=True, kw_only=True)
class ImageTree(Tree):
    """A folder of image files. `folders` are names or patterns of it, in any case; the first is a name.

    Attributes:
        layout: What is expected, as paths relative to the data root, for messages.
        depth: Levels below the folder that are searched whatever their names are. With 0, only a folder of an accepted
            name inside it is looked at, as unpacking tools often make it.
        same: Names inside are equal where this gives the same for both.
    """

    layout: str = ""
    depth: int = 0
    same: Callable[[str], str] = str.casefold


@dataclass(frozen=True)
class Place:
    """The folder of a data set: the one found, or, where there is none, the one to speak of."""

    tree: ImageTree
    root: Path
    folder: Path

    def relative(self, name: str) -> str:
        """Where `name` belongs, relative to the data root."""
        return f"{self.tree.folders[0]}/{name}"

    def error(
        self,
        problem: str,
        *,
        counts: str,
        looked_at: Path | None = None,
        expected: str = "",
        found: str = "",
        cause: str = "",
        otherwise: str = NOT_THERE,
        get: str = "",
    ) -> DataError:
        """The error for files that are missing or wrong, in six parts.

        Args:
            problem: One sentence that says what is wrong.
            counts: Numbers expected and found, per class or centre.
            looked_at: File or folder; default this folder.
            expected: Relative paths that belong there; default the tree's layout.
            found: What is there instead; default the first names in the nearest folder that exists.
            cause: What probably happened; default what the tree's hints say of the names there.
            otherwise: The cause where the hints know none.
            get: Where to get it; default the tree's page and archive.
        """
        looked_at = looked_at or self.folder
        return wrong(
            self.tree,
            problem,
            looked_at=looked_at,
            expected=expected or f"{self.tree.layout} under the data root",
            found=found or found_in(looked_at, self.root),
            cause=cause or known_cause(self.tree, looked_at, self.root) or otherwise,
            get=f"{get or f'{self.tree.page}, {self.tree.archive}'}; {put_it(self.root)}",
            counts=counts,
        )


# Finding -------------------------------------------------------------------------------------------------------------


def find(tree: ImageTree, root: Path, marks: Collection[str]) -> Place:
    """The folder under `root` that holds most of `marks`: one of an accepted name, one inside it, or `root` itself.

    Where none holds any: the first accepted folder that exists, else the recommended one.

    Args:
        tree: What is looked for.
        root: The data root.
        marks: Patterns of names of files and folders; those of folders may end in a slash.

    Raises:
        DataError: A folder cannot be read.
    """
    patterns = [tree.same(mark.rstrip("/")) for mark in marks]

    def held(place: Path) -> int:
        names = {tree.same(name.rstrip("/")) for name in listing(place)}
        return sum(bool(matching(names, pattern)) for pattern in patterns)

    with readable(tree, root):
        named = level = _inside(root, tree.folders)
        for _ in range(tree.depth or 1):
            level = [
                inner for place in level for inner in _inside(place, ("*",) if tree.depth else tree.folders)
            ]
            named = [*named, *level]
        best = max([*named, root], key=held)
        if best == root and not held(root):
            best = root / tree.folders[0]
    return Place(tree, root, best)


def find_any(tree: ImageTree, root: Path, marks: Collection[str], problem: str, counts: str) -> Place:
    """As `find`, where at least one of ``marks`` has to be there: a file, or with a slash at its end a folder.

    Args:
        tree: As there.
        root: As there.
        marks: Names of files and folders.
        problem: The error's sentence where there is none.
        counts: Numbers expected and found, for the error.

    Raises:
        DataError: None is there, or a folder cannot be read.
    """
    place = find(tree, root, marks)
    if set(marks) & set(listing(place.folder)):
        return place
    something = bool(listing(place.folder) or listing(root))
    raise place.error(problem, otherwise=DEEPER if something else NOT_THERE, counts=counts)


def _inside(folder: Path, patterns: Iterable[str]) -> list[Path]:
    names = [name.rstrip("/") for name in listing(folder) if name.endswith("/")]
    fitting = (name for mark in patterns for name in names if fnmatch(name.lower(), mark.lower()))
    return [folder / name for name in dict.fromkeys(fitting)]


def find_classes(tree: ImageTree, root: Path, names: Collection[str]) -> tuple[Place, dict[str, Path]]:
    """The folder that holds one folder for each class, and these by their name in `names`.

    Raises:
        DataError: They are not all there, or a folder cannot be read.
    """
    place = find(tree, root, names)
    inside = [name.rstrip("/") for name in reversed(listing(place.folder)) if name.endswith("/")]
    there = {tree.same(name): place.folder / name for name in inside}
    absent = [name for name in names if tree.same(name) not in there]
    if absent:
        part = len(absent) < len(names)
        raise place.error(
            f"{len(absent)} of {len(names)} class folders are missing ({', '.join(absent)}).",
            otherwise="not all of the archive was unpacked, or folders were renamed"
            if part
            else "not downloaded yet, the data root is another folder, or the class folders lie deeper",
            counts=f"{len(names)} class folders expected, {len(names) - len(absent)} found",
        )
    return place, {name: there[tree.same(name)] for name in names}


def with_nested(folders: Iterable[Path]) -> list[Path]:
    """The folders that exist, each followed by the folder of the same name inside it where there is one."""
    return [place for folder in folders for place in (folder, folder / folder.name) if place.is_dir()]


def first_file(folders: Iterable[Path], names: Collection[str]) -> Path | None:
    """The first of ``names`` in the first folder that has one, compared without regard to case; else None."""
    for folder in folders:
        there = {name.lower(): name for name in listing(folder) if not name.endswith("/")}
        for name in names:
            if name.lower() in there:
                return folder / there[name.lower()]
    return None


def files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files directly in a folder with one of the suffixes (lower case; any case in the folder), sorted, without junk.

    Raises:
        OSError: The folder cannot be read.
    """
    return [folder / name for name in listing(folder) if name.lower().endswith(suffixes)]


def files_by_stem(place: Place, folders: Iterable[Path], suffixes: tuple[str, ...]) -> dict[str, Path]:
    """Files as `files_in` each of the folders, by name without suffix, sorted.

    The first of several folders wins: copies of the same file are common in copies of an archive.

    Raises:
        DataError: Two files of the same name differ in size: one of them is of another version.
        OSError: A folder or file cannot be read.
    """
    found: dict[str, Path] = {}
    for path in (path for folder in folders for path in files_in(folder, suffixes)):
        other = found.setdefault(path.stem, path)
        if other == path:
            continue
        sizes = [one.stat().st_size for one in (other, path)]
        if sizes[0] != sizes[1]:
            names = [below(one, place.root) for one in (other, path)]
            raise place.error(
                f"{names[0]} and {names[1]} have the same name and different sizes.",
                looked_at=path,
                expected=f"{names[0]} or {names[1]}, or two copies with the same bytes",
                found=f"{sizes[0]:,} and {sizes[1]:,} bytes",
                cause="a resized or damaged copy beside the originals; remove the one that is not the owner's",
                counts=f"1 version of {path.stem} expected, 2 found",
            )
    return dict(sorted(found.items()))


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


# Lists ---------------------------------------------------------------------------------------------------------------


def read_text(place: Place, path: Path) -> str:
    """Content of a list of images, which is UTF-8.

    Raises:
        DataError: It cannot be read, is empty or no text.
    """
    expected, counts = f"{path.name}, a text with a row for each image", "at least 1 row expected, 0 found"
    found, cause = "", "a missing or damaged file, or another one under this name"
    try:
        text = path.read_bytes().decode("utf-8-sig")
        if text.strip(" ,;\t\r\n"):
            return text
        problem, found, cause = "is empty", f"{path.name} of {path.stat().st_size:,} bytes", BROKEN_OFF
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        problem = "cannot be read: it is no text"
        found = f"{path.name} of {path.stat().st_size:,} bytes that are no UTF-8 text"
    raise place.error(
        f"{path.name} {problem}.", looked_at=path, expected=expected, found=found, cause=cause, counts=counts
    )


def read_rows(place: Place, path: Path) -> list[list[str]]:
    """Rows of a list without header and quotes, separated by commas; blanks around values and empty rows dropped.

    Raises:
        DataError: As `read_text`.
    """
    rows = ([cell.strip() for cell in line.split(",")] for line in read_text(place, path).splitlines())
    return [row for row in rows if any(row)]


def read_table(place: Place, path: Path, columns: Collection[str], cause: str) -> list[dict[str, str]]:
    """Rows of a table with a header line, separated by commas, semicolons or tabs; blanks around values dropped.

    Args:
        place: The data set, for the message.
        path: The table.
        columns: Names that the header must have.
        cause: Likely cause of a missing column, for the message.

    Raises:
        DataError: As `read_text`, or it lacks a column, or a row is cut off.
    """

    def bad(problem: str, found: str, counts: str, cause: str = BROKEN_OFF) -> DataError:
        return place.error(
            f"{path.name} {problem}.",
            looked_at=path,
            expected=f"{path.name} with the columns {', '.join(columns)}",
            found=found,
            cause=cause,
            counts=counts,
        )

    text = read_text(place, path)
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    header: list[str] = []
    rows: list[dict[str, str]] = []
    try:
        for values in reader:
            values = [value.strip() for value in values]
            if not header:
                header = values
                missing = [name for name in columns if name not in header]
                if missing:
                    counts = f"{len(columns)} columns expected, {len(columns) - len(missing)} of them found"
                    found = f"{path.name} with the columns {some(header, 30)}, without {', '.join(missing)}"
                    raise bad(f"has no column {', '.join(missing)}", found, counts, cause)
            elif 0 < len(values) < len(header):
                counts = f"{len(header)} values expected, {len(values)} found; {len(rows):,} rows before it"
                raise bad(f"is cut off in line {reader.line_num}", delimiter.join(values)[:200], counts)
            elif values:
                rows.append(dict(zip(header, values, strict=False)))
    except csv.Error as error:
        counts = f"1 row expected in line {reader.line_num}, 0 found"
        raise bad(f"cannot be read as a table ({error})", f"{len(text):,} characters", counts) from error
    return rows


# Counts --------------------------------------------------------------------------------------------------------------


def counts_text(expected: Mapping[str, int], found: Mapping[str, int], unit: str = "images") -> str:
    """The sums and what differs, as "10,015 images expected, 5,000 found; expected/found: df 115/60, ..."."""
    names = [
        name for name in dict.fromkeys([*expected, *found]) if expected.get(name, 0) != found.get(name, 0)
    ]
    each = ", ".join(f"{name} {expected.get(name, 0):,}/{found.get(name, 0):,}" for name in names)
    total = f"{sum(expected.values()):,} {unit} expected, {sum(found.values()):,} found"
    return f"{total}; expected/found: {each}" if each else total


def check_counts(
    place: Place, found: Mapping[str, int], expected: Mapping[str, int], otherwise: str = ""
) -> None:
    """Compare the number of files of each class with the published one.

    Args:
        place: What was looked at.
        found: Files by class.
        expected: Published number of files by class.
        otherwise: What probably happened, where the caller knows and the tree's hints do not.

    Raises:
        DataError: They differ.
    """
    differ = [name for name, number in expected.items() if found.get(name, 0) != number]
    if not differ:
        return
    usual = "files were added: an augmented copy, or another data set in these folders"
    if any(found.get(name, 0) < expected[name] for name in differ):
        usual = BROKEN_OFF
    raise place.error(
        f"{len(differ)} of {len(expected)} classes do not have the published number of images.",
        otherwise=f"{otherwise or usual}; {STRICT}",
        counts=counts_text(expected, found),
    )


def check_not_empty(place: Place, found: Mapping[str, int], least: int, otherwise: str = "") -> None:
    """Refuse a class with fewer than `least` files; all that is asked of a cut-down copy.

    Args:
        place: What was looked at.
        found: Files by class.
        least: How many of each are needed.
        otherwise: What probably happened, where the caller knows and the tree's hints do not.

    Raises:
        DataError: There is one.
    """
    few = {name: number for name, number in found.items() if number < least}
    if few:
        each = ", ".join(f"{name} {number}" for name, number in few.items())
        raise place.error(
            f"{len(few)} of {len(found)} classes have fewer than {least} images.",
            otherwise=otherwise or f"{BROKEN_OFF}, or files of another type than expected",
            counts=f"at least {least} of each class expected, found: {each}",
        )
