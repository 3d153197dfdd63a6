"""Lists of images as text files, and comparisons of numbers of images with the published ones."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from datasets.core.base import DataError
from datasets.core.folders import STRICT, Place, first_names

if TYPE_CHECKING:
    import pandas as pd


def read_text(place: Place, path: Path) -> str:
    """Content of a list of images, which is UTF-8."""
    expected = "a text with a row for each image"
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise place.bad_file(path, "is no UTF-8 text", expected) from error
    if not text.strip(" ,;\t\r\n"):
        raise place.bad_file(path, "is empty", expected)
    return text


def read_rows(place: Place, path: Path) -> list[list[str]]:
    """Rows of a list without header and quotes, separated by commas; blanks around values and empty rows dropped."""
    rows = ([cell.strip() for cell in line.split(",")] for line in read_text(place, path).splitlines())
    return [row for row in rows if any(row)]


def read_table(
    place: Place,
    path: Path,
    columns: Collection[str],
    *,
    unique: str,
    allowed: Mapping[str, Collection[str]] | None = None,
) -> pd.DataFrame:
    """A table with a header line, separated by commas, semicolons or tabs, as texts without blanks around them.

    Args:
        place: For messages.
        path: The file.
        columns: Columns that have to be there.
        unique: The column whose values may be there only once.
        allowed: Values of some columns, which are checked where the table has them. "1.0" becomes "1" in these.
    """

    def bad(problem: str) -> DataError:
        return place.bad_file(path, problem, f"with the columns {', '.join(columns)}")

    text = read_text(place, path)
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        header, *rows = [[value.strip() for value in row] for row in reader if row]
    except csv.Error as error:
        raise bad(f"cannot be read as a table ({error})") from error
    missing = [name for name in columns if name not in header]
    if missing:
        raise bad(f"has no column {', '.join(missing)}, only {first_names(header, 30)}")
    short = [number for number, row in enumerate(rows, 2) if len(row) < len(header)]
    if short:
        raise bad(f"is cut off in row {short[0]}")
    named = [dict(zip(header, row, strict=False)) for row in rows]
    import pandas as pd  # slow to import

    table = pd.DataFrame(named, columns=list(dict.fromkeys(header)), dtype=str)
    for column, values in (allowed or {}).items():
        if column in table:
            table[column] = table[column].str.removesuffix(".0")
            unknown = table[column][~table[column].isin(list(values))]
            if len(unknown):
                raise bad(f"has the unknown {column} {first_names(unknown.unique())}")
    twice = table[unique][table[unique].duplicated()]
    if len(twice):
        raise bad(f"lists {first_names(list(twice))} twice")
    return table


def counts_text(expected: Mapping[str, int], found: Mapping[str, int]) -> str:
    """The sums and what differs, as "10,015 images expected, 5,000 found; expected/found: df 115/60, ..."."""
    names = dict.fromkeys([*expected, *found])
    pairs = {name: (expected.get(name, 0), found.get(name, 0)) for name in names}
    each = ", ".join(f"{name} {one:,}/{other:,}" for name, (one, other) in pairs.items() if one != other)
    total = f"{sum(expected.values()):,} images expected, {sum(found.values()):,} found"
    return f"{total}; expected/found: {each}"


def check_counts(
    place: Place,
    found: Mapping[str, int],
    expected: Mapping[str, int],
    cause: str = "a part of the archive, added files, or another version",
) -> None:
    """Compare numbers of images (of classes, sites, folders) with the published ones."""
    if Counter(found) != Counter(expected):
        text = counts_text(expected, found)
        raise place.error(f"not the published numbers of images: {text}.", f"{cause}; {STRICT}")


def check_not_empty(place: Place, found: Mapping[str, int], least: int = 1, cause: str = "") -> None:
    """Refuse numbers of images (of classes, splits) below `least`; the only demand on a cut-down copy."""
    few = ", ".join(f"{name} {number}" for name, number in found.items() if number < least)
    if few:
        raise place.error(f"too few images: {few}; expected at least {least} of each.", cause)


def check_listed(
    place: Place,
    groups: Mapping[str, str],
    there: Collection[str],
    problem: str = "have no file",
    cause: str = "",
) -> None:
    """Refuse a list of images some of which are not `there`.

    Args:
        place: For the message.
        groups: What each listed image counts as in the message (its class, its centre, its list), by its name.
        there: Names of the images that have a file.
        problem: What is said of the others.
        cause: As in `Place.error`, if some are there.
    """
    missing = [name for name in groups if name not in there]
    if missing:
        expected = Counter(groups.values())
        counts = counts_text(expected, expected - Counter(groups[name] for name in missing))
        which = f"{len(missing):,} of {len(groups):,} listed images {problem}: {first_names(missing)}"
        raise place.error(f"{which}; {counts}.", cause if there else "")
