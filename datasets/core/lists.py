"""Lists of images as text files, and comparisons of numbers of images with the published ones."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pandas as pd

from datasets.core.base import DataError
from datasets.core.folders import BROKEN_OFF, STRICT, Place, first_names

EDITED = "the list of another data set, or one that was edited or put together from several"


def read_text(place: Place, path: Path) -> str:
    """Content of a list of images, which is UTF-8."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        if text.strip(" ,;\t\r\n"):
            return text
        problem = "is empty"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        problem = "cannot be read: it is no UTF-8 text"
    cause = "a missing or damaged file, or another file under this name"
    raise place.bad_file(
        path, problem, "a text with a row for each image", cause, "1 or more rows expected, 0 found"
    )


def read_rows(place: Place, path: Path) -> list[list[str]]:
    """Rows of a list without header and quotes, separated by commas; blanks around values and empty rows dropped."""
    rows = ([cell.strip() for cell in line.split(",")] for line in read_text(place, path).splitlines())
    return [row for row in rows if any(row)]


def read_table(
    place: Place,
    path: Path,
    columns: Collection[str],
    cause: str,
    *,
    unique: str,
    allowed: Mapping[str, Collection[str]] | None = None,
) -> pd.DataFrame:
    """A table with a header line, separated by commas, semicolons or tabs, as texts without blanks around them.

    Args:
        place: For messages.
        path: The file.
        columns: Columns that have to be there.
        cause: Why one of them probably is not.
        unique: The column whose values may be there only once.
        allowed: Values of some columns, which are checked where the table has them. "1.0" becomes "1" in these.
    """

    def bad(problem: str, counts: str, cause: str) -> DataError:
        return place.bad_file(path, problem, f"with the columns {', '.join(columns)}", cause, counts)

    header, rows = _header_and_rows(path, read_text(place, path), bad)
    missing = [name for name in columns if name not in header]
    if missing:
        counts = f"{len(columns)} columns expected, {len(columns) - len(missing)} of them found"
        raise bad(f"has no column {', '.join(missing)}, only {first_names(header, 30)}", counts, cause)
    table = pd.DataFrame(rows, columns=list(dict.fromkeys(header)), dtype=str)
    for column in set(allowed or {}).intersection(table):
        values = list((allowed or {})[column])
        table[column] = table[column].str.removesuffix(".0")
        unknown = table[column][~table[column].isin(values)]
        if len(unknown):
            counts = (
                f"{len(table):,} rows with {', '.join(values)} expected, {len(unknown):,} with others found"
            )
            raise bad(f"has the unknown {column} {first_names(unknown.unique())}", counts, EDITED)
    twice = table[unique][table[unique].duplicated()]
    if len(twice):
        counts = f"{len(table):,} images expected, {len(table) - len(twice):,} different ones found"
        raise bad(f"lists {first_names(list(twice))} twice", counts, EDITED)
    return table


def _header_and_rows(
    path: Path, text: str, bad: Callable[[str, str, str], DataError]
) -> tuple[list[str], list[dict[str, str]]]:
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        rows: list[dict[str, str]] = []
        for values in reader:
            if 0 < len(values) < len(header):
                counts = f"{len(header)} values expected, {len(values)} found; {len(rows):,} rows before it"
                raise bad(f"is cut off in line {reader.line_num}", counts, BROKEN_OFF)
            if values:
                rows.append(dict(zip(header, map(str.strip, values), strict=False)))
    except csv.Error as error:
        counts = f"1 row expected in line {reader.line_num}, 0 found"
        raise bad(f"cannot be read as a table ({error})", counts, BROKEN_OFF) from error
    return header, rows


def counts_text(expected: Mapping[str, int], found: Mapping[str, int], unit: str = "images") -> str:
    """The sums and what differs, as "10,015 images expected, 5,000 found; expected/found: df 115/60, ..."."""
    names = dict.fromkeys([*expected, *found])
    pairs = {name: (expected.get(name, 0), found.get(name, 0)) for name in names}
    each = ", ".join(f"{name} {one:,}/{other:,}" for name, (one, other) in pairs.items() if one != other)
    total = f"{sum(expected.values()):,} {unit} expected, {sum(found.values()):,} found"
    return f"{total}; expected/found: {each}" if each else total


def check_counts(
    place: Place, found: Mapping[str, int], expected: Mapping[str, int], cause: str = "", tolerance: int = 0
) -> None:
    """Compare numbers of images (of classes, sites, folders) with the published ones. `cause` as in `Place.error`."""
    away = {name: found.get(name, 0) - expected.get(name, 0) for name in [*expected, *found]}
    differ = [name for name, number in away.items() if abs(number) > tolerance]
    if not differ:
        return
    usual = "files were added: an augmented copy, or another data set in these folders"
    if any(away[name] < 0 for name in differ):
        usual = BROKEN_OFF
    raise place.error(
        f"{len(differ)} of {len(away)} numbers of images are not the published ones.",
        cause=f"{cause}; {STRICT}" if cause else "",
        otherwise=f"{usual}; {STRICT}",
        counts=counts_text(expected, found),
    )


def check_not_empty(place: Place, found: Mapping[str, int], least: int = 1, cause: str = "") -> None:
    """Refuse numbers of images (of classes, splits) below `least`; the only demand on a cut-down copy."""
    few = {name: number for name, number in found.items() if number < least}
    if few:
        each = ", ".join(f"{name} {number}" for name, number in few.items())
        raise place.error(
            f"too few images: {each}.",
            cause=cause,
            otherwise=f"{BROKEN_OFF}, or files of another type than expected",
            counts=f"at least {least} of each expected, found: {each}",
        )


def check_listed(
    place: Place,
    groups: Mapping[str, str],
    there: Collection[str],
    problem: str = "have no file",
    *,
    looked_at: Path | None = None,
    cause: str = "",
) -> None:
    """Refuse a list of images some of which are not `there`.

    Args:
        place: For the message.
        groups: What each listed image counts as in the message (its class, its centre, its list), by its name.
        there: Names of the images that have a file.
        problem: What is said of the others.
        looked_at: As in `Place.error`.
        cause: As in `Place.error`, if some are there.
    """
    missing = [name for name in groups if name not in there]
    if not missing:
        return
    expected = Counter(groups.values())
    found = expected - Counter(groups[name] for name in missing)
    raise place.error(
        f"{len(missing):,} of {len(groups):,} listed images {problem}: {first_names(missing)}.",
        looked_at=looked_at,
        cause=cause if there else "",
        otherwise=BROKEN_OFF,
        counts=counts_text(expected, found),
    )
