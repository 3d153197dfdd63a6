"""Lists of images as text files."""

import csv
import io
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from datasets.core.base import DataError
from datasets.core.folders import Place, first_names


def read_text(place: Place, path: Path, expected: str) -> str:
    """Content of a list of images, which is UTF-8; `expected` says what it should be, for messages."""
    place.files.append(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise place.bad_file(path, "is no UTF-8 text", expected) from error
    if not text.strip(" ,;\t\r\n"):
        raise place.bad_file(path, "is empty", expected)
    return text


def read_table(
    place: Place,
    path: Path,
    columns: Collection[str],
    *,
    unique: str,
    allowed: Mapping[str, Collection[str]] | None = None,
) -> list[dict[str, str]]:
    """The rows of a table with a header line, separated by commas, semicolons or tabs, without blanks around values.

    Args:
        place: For messages.
        path: The file.
        columns: Columns that have to be there.
        unique: The column whose values may be there only once.
        allowed: Values of some columns, which are checked where the table has them. "1.0" becomes "1" in these.
    """
    expected = f"with the columns {', '.join(columns)}"

    def bad(problem: str) -> DataError:
        return place.bad_file(path, problem, expected)

    text = read_text(place, path, expected)
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        header, *rows = [[value.strip() for value in row] for row in reader if row]
    except csv.Error as error:
        raise bad(f"cannot be read as a table ({error})") from error
    if missing := [name for name in columns if name not in header]:
        raise bad(f"has no column {', '.join(missing)}, only {first_names(header, 30)}")
    if short := [number for number, row in enumerate(rows, 2) if len(row) < len(header)]:
        raise bad(f"is cut off in row {short[0]}")
    table = [dict(zip(header, row, strict=False)) for row in rows]  # a row may have more cells
    for column, values in (allowed or {}).items():
        for row in table if column in header else ():
            row[column] = row[column].removesuffix(".0")
        if unknown := sorted({row[column] for row in table if column in row} - {*values}):
            raise bad(f"has the unknown {column} {first_names(unknown)}")
    times = Counter(row[unique] for row in table)
    if twice := [name for name, number in times.items() if number > 1]:
        raise bad(f"lists {first_names(twice)} twice")
    return table
