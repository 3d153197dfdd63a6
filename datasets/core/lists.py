"""Lists of images as text files, and comparisons of numbers of images with the published ones."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from pathlib import Path

from datasets.core.base import DataError
from datasets.core.folders import BROKEN_OFF, STRICT, Place, first_names


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


def read_table(place: Place, path: Path, columns: Collection[str], cause: str) -> list[dict[str, str]]:
    """Rows of a table with a header line, separated by commas, semicolons or tabs; blanks around values dropped.

    The header must have `columns`; `cause` says why it probably has not.
    """

    def bad(problem: str, counts: str, cause: str = BROKEN_OFF) -> DataError:
        return place.bad_file(path, problem, f"with the columns {', '.join(columns)}", cause, counts)

    text = read_text(place, path)
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in columns if name not in header]
        if missing:
            counts = f"{len(columns)} columns expected, {len(columns) - len(missing)} of them found"
            raise bad(f"has no column {', '.join(missing)}, only {first_names(header, 30)}", counts, cause)
        rows: list[dict[str, str]] = []
        for values in reader:
            if 0 < len(values) < len(header):
                counts = f"{len(header)} values expected, {len(values)} found; {len(rows):,} rows before it"
                raise bad(f"is cut off in line {reader.line_num}", counts)
            if values:
                rows.append(dict(zip(header, map(str.strip, values), strict=False)))
    except csv.Error as error:
        counts = f"1 row expected in line {reader.line_num}, 0 found"
        raise bad(f"cannot be read as a table ({error})", counts) from error
    return rows


def counts_text(expected: Mapping[str, int], found: Mapping[str, int], unit: str = "images") -> str:
    """The sums and what differs, as "10,015 images expected, 5,000 found; expected/found: df 115/60, ..."."""
    names = dict.fromkeys([*expected, *found])
    pairs = {name: (expected.get(name, 0), found.get(name, 0)) for name in names}
    each = ", ".join(f"{name} {one:,}/{other:,}" for name, (one, other) in pairs.items() if one != other)
    total = f"{sum(expected.values()):,} {unit} expected, {sum(found.values()):,} found"
    return f"{total}; expected/found: {each}" if each else total


def check_counts(
    place: Place, found: Mapping[str, int], expected: Mapping[str, int], otherwise: str = ""
) -> None:
    """Compare the number of files of each class with the published one; `otherwise` as in `Place.error`."""
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
    """Refuse a class with fewer than `least` files; the only demand on a cut-down copy. Arguments as `check_counts`."""
    few = {name: number for name, number in found.items() if number < least}
    if few:
        each = ", ".join(f"{name} {number}" for name, number in few.items())
        raise place.error(
            f"{len(few)} of {len(found)} classes have fewer than {least} images.",
            otherwise=otherwise or f"{BROKEN_OFF}, or files of another type than expected",
            counts=f"at least {least} of each class expected, found: {each}",
        )
