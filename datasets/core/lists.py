"""Lists of images as text files."""

import csv
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from datasets.core.folders import Place, first_names


def read_text(place: Place, path: Path) -> str:
    """Content of a list of images, which is UTF-8."""
    place.files.append(path)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise place.error("got a file that is no UTF-8 text", path, "a list of images") from error


def read_table(
    place: Place,
    path: Path,
    columns: Collection[str],
    unique: str,
    allowed: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> list[dict[str, str]]:
    """The rows of a table with a header line, separated by commas, semicolons or tabs, without blanks around values.

    ``columns`` have to be there, values of the column ``unique`` only once. Values of the ``allowed`` columns are
    checked where the table has these; "1.0" becomes "1" in them.
    """
    text = read_text(place, path)
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        header, *rows = [[value.strip() for value in row] for row in lines if row] or [[]]
    except csv.Error as error:
        raise place.error(f"got a table that cannot be read ({error})", path, "a list of images") from error
    expected = f"a list with the columns {', '.join(columns)}"
    short = [number for number, row in enumerate(rows, 2) if len(row) < len(header)]
    if short or {*columns} - {*header}:
        got = f"row {short[0]} cut off" if short else f"the columns {first_names(header, 30)}"
        raise place.error(f"got {got}", path, expected)
    table = [dict(zip(header, row, strict=False)) for row in rows]  # a row may have more cells
    for column in allowed.keys() & {*header}:
        for row in table:
            row[column] = row[column].removesuffix(".0")
        if unknown := sorted({row[column] for row in table} - {*allowed[column]}):
            raise place.error(f"got the unknown {column} {first_names(unknown)}", path, expected)
    if len({row[unique] for row in table}) < len(table):
        raise place.error(f"got a {unique} twice", path, expected)
    return table
