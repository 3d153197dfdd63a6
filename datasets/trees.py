"""Trees of image files under the data root: finding them, reading their lists, and saying what is wrong with them."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from datasets.base import DataError
from datasets.raw import IGNORED, listing

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

UNKNOWN_CAUSE = (
    "not downloaded yet, the data root is another folder, or the archive was not unpacked or lies deeper"
)
BROKEN_OFF = "a download that broke off, or a full disk"


@dataclass(frozen=True)
class ImageTree:
    """Where the files of a data set of images are expected, and where a person gets them.

    Attributes:
        title: Name of the data set for people.
        folders: Accepted folders relative to the data root; the first is the one to recommend, "." the root itself.
        layout: What is expected in such a folder, as relative paths, for messages.
        page, archive: Owner's page, and the archives' names and sizes.
        hints: Likely cause by pattern of a name that is found in the folder or under the root instead.
    """

    title: str
    folders: tuple[str, ...]
    layout: str
    page: str
    archive: str
    hints: Mapping[str, str] = field(default_factory=dict)


def top_folder(tree: ImageTree, root: Path, marks: Collection[str]) -> Path:
    """The accepted folder (or the folder of the same name inside it) that holds most of ``marks``.

    ``marks``: patterns of names, compared without regard to case. Where none is found anywhere: the recommended folder
    if it exists, else any accepted one that does, else the recommended one.

    Raises:
        DataError: A folder cannot be read.
    """
    places = [root / name for name in tree.folders]
    # Unpacking tools often put a folder into another of the same name.
    places = [inner for place in places for inner in (place, place / place.name)]
    try:
        return max(places, key=lambda place: (_marks_in(place, marks), place.is_dir() and place != root))
    except PermissionError as error:
        raise DataError(
            f"{tree.title}: {error.filename} cannot be read ({error.strerror}); change its rights"
        ) from error


def _marks_in(place: Path, marks: Collection[str]) -> int:
    names = [name.rstrip("/").lower() for name in listing(place)]
    return sum(any(fnmatch(name, mark.lower()) for name in names) for mark in marks)


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


def files_by_stem(tree: ImageTree, folders: Iterable[Path], suffixes: Collection[str]) -> dict[str, Path]:
    """Files with one of ``suffixes`` (lower case) directly in the folders, by name without suffix, sorted.

    The first of several folders wins: copies of the same file are common in copies of an archive.

    Raises:
        DataError: Two files of the same name differ in size: one of them is of another version.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix.lower() not in suffixes or name.startswith(".") or name in IGNORED:
                continue
            path = folder / name
            other = found.setdefault(stem, path)
            if other != path and other.stat().st_size != path.stat().st_size:
                raise DataError(
                    f"{tree.title}: {other.absolute()} and {path.absolute()} have the same name and different sizes "
                    f"({other.stat().st_size:,} and {path.stat().st_size:,} bytes). Remove the copy that is not as "
                    f"its owner publishes it: {tree.page}, {tree.archive}"
                )
    return dict(sorted(found.items()))


def read_rows(
    tree: ImageTree, root: Path, path: Path, columns: Collection[str], cause: str
) -> list[dict[str, str]]:
    """Rows of a table with a header line, separated by commas, semicolons or tabs; blanks around values dropped.

    Args:
        tree: The data set, for the message.
        root: The data root, for the message.
        path: The table.
        columns: Names that the header must have.
        cause: Likely cause of a missing column, for the message.

    Raises:
        DataError: The file cannot be read, is empty or no text, lacks a column, or a row is cut off.
    """

    def bad(problem: str, found: str, counts: str, cause: str = BROKEN_OFF) -> DataError:
        expected = f"{path.name} with the columns {', '.join(columns)}"
        return tree_error(
            tree,
            root,
            f"{path.name} {problem}.",
            looked_at=path,
            expected=expected,
            found=found,
            cause=cause,
            counts=counts,
        )

    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(
            f"{tree.title}: {path} cannot be read ({error.strerror}); is its disk there?"
        ) from error
    except UnicodeDecodeError:
        size = f"{path.stat().st_size:,} bytes that are no text"
        raise bad("is no text", size, "0 rows found", "an archive or an image under this name") from None
    if not text.strip():
        raise bad("is empty", f"{path.stat().st_size:,} bytes", "0 rows found")
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    header = [name.strip() for name in next(reader)]
    missing = [name for name in columns if name not in header]
    if missing:
        counts = f"{len(columns)} columns needed, {len(columns) - len(missing)} of them found"
        columns_found = f"the columns {', '.join(header)[:200]}"
        raise bad(f"has no column {', '.join(missing)}", columns_found, counts, cause)
    rows: list[dict[str, str]] = []
    for values in reader:
        if len(values) < len(header):
            if not values:
                continue  # an empty line
            counts = f"{len(header)} values needed, {len(values)} found; {len(rows):,} rows before it"
            raise bad(f"is cut off in line {reader.line_num}", delimiter.join(values)[:200], counts)
        rows.append({name: value.strip() for name, value in zip(header, values, strict=False)})
    return rows


def tree_error(
    tree: ImageTree,
    root: Path,
    problem: str,
    *,
    looked_at: Path,
    counts: str,
    expected: str | None = None,
    found: str | None = None,
    cause: str | None = None,
    get: str | None = None,
) -> DataError:
    """The error for files that are missing or wrong, in six parts.

    Args:
        tree: The data set.
        root: The data root.
        problem: One sentence that says what is wrong.
        looked_at: File or folder; its nearest existing folder up to ``root`` is what ``found`` lists.
        counts: Numbers expected and found, per class or centre.
        expected: Relative paths that belong there; default the tree's layout in its first folder.
        found: What is there instead; default the first five names.
        cause: Likely cause; default what the tree's hints say on the names that are there.
        get: Where to get it; default the tree's page and archives.
    """
    inside = "" if tree.folders[0] == "." else f" in {tree.folders[0]}/ under the data root"
    return DataError(
        f"{tree.title}: {problem}\n"
        f"  looked at: {looked_at.absolute()}\n"
        f"  expected:  {expected or tree.layout + inside}\n"
        f"  found:     {found or _found_text(looked_at, root)}\n"
        f"  cause:     {cause or _known_cause(tree, (looked_at, looked_at.parent, root)) or UNKNOWN_CAUSE}\n"
        f"  get it:    {get or f'{tree.page}, {tree.archive}'}; put it under {root.absolute()}, "
        "or set FEDTABLES_DATA to the folder that has it\n"
        f"  counts:    {counts}"
    )


def counts_text(expected: Mapping[str, int], found: Mapping[str, int], unit: str = "images") -> str:
    """The sum and what differs, as "10,015 images expected, 5,000 found; by name expected/found: df 115/60, ..."."""
    total = f"{sum(expected.values()):,} {unit} expected, {sum(found.values()):,} found"
    names = dict.fromkeys([*expected, *found])
    each = ", ".join(f"{name} {expected.get(name, 0):,}/{found.get(name, 0):,}" for name in names)
    return f"{total}; expected/found: {each}"


def some(names: Collection[str], many: int = 5) -> str:
    """The first five names, and how many more there are."""
    first = ", ".join(list(names)[:many])
    return f"{first} and {len(names) - many:,} more" if len(names) > many else first


def _found_text(looked_at: Path, root: Path) -> str:
    # The nearest folder that exists shows best what went wrong.
    place = looked_at
    while not place.is_dir() and place not in (root, place.parent):
        place = place.parent
    if not place.is_dir():
        return f"nothing: {place.absolute()} does not exist"
    names = listing(place)
    return f"{some(names) or 'nothing'} in {place.absolute()}"


def _known_cause(tree: ImageTree, places: Iterable[Path]) -> str | None:
    for place in dict.fromkeys(places):
        for name in listing(place):
            for pattern, cause in tree.hints.items():
                if fnmatch(name.rstrip("/").lower(), pattern.lower()):
                    return f"{name} in {place.absolute()}: {cause}"
    return None
