"""The one form of a table that renderers turn into text, be it made of runs or by an analysis."""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pandas as pd

from benchmark.experiments.metrics import Show
from benchmark.reports.results import CellResult


@dataclass(frozen=True)
class Note:
    """A paragraph (one line) or a list (several) under a table. With a heading only Markdown prints it, folded."""

    lines: tuple[str, ...]
    heading: str = ""


@dataclass(frozen=True)
class TableLine:
    """A row of a printed table: results of runs, or plain text. ``own``: a method that the paper itself proposes."""

    label: str
    cells: tuple[CellResult | str, ...]
    own: bool = False


@dataclass(frozen=True)
class ColumnBlock:
    """Neighbouring columns that are printed as one table.

    ``head`` is printed above the labels of the lines, ``columns`` above the cells, and the heading of its group, or
    None, above each column; neighbours share it.
    """

    head: str
    columns: tuple[str, ...]
    lines: tuple[TableLine, ...]
    groups: tuple[str | None, ...]

    @property
    def spans(self) -> list[tuple[str, int]]:
        """(heading, number of columns) from left to right; the heading may be empty."""
        return [(group or "", len(list(same))) for group, same in groupby(self.groups)]

    @property
    def title(self) -> str:
        """The headings of its groups."""
        return ", ".join(group for group, _ in self.spans if group)


@dataclass(frozen=True)
class Table:
    """A table with all that is said about it: caption above, blocks of columns, notes below.

    ``name`` is the stem of its files, ``data`` holds the unrounded numbers for the CSV. ``preset`` is that of the runs,
    empty if the cells are text. ``show`` says which numbers are printed; it is ``measured`` if the paper has none.
    ``small``: what the lines of the small print are, from above.
    """

    name: str
    title: str
    data: pd.DataFrame
    blocks: tuple[ColumnBlock, ...]
    notes: tuple[Note, ...] = ()
    caption: str = ""
    preset: str = ""
    show: Show = "measured"
    small: tuple[str, ...] = ()


def text_table(
    name: str, title: str, data: pd.DataFrame, notes: tuple[str, ...] = (), decimals: int = 4
) -> Table:
    """A table of the numbers and words in ``data``; floats are printed with ``decimals`` digits, NaN as nothing."""

    def text(value: object) -> str:
        if value is None or (isinstance(value, float) and pd.isna(value)):
            return ""
        return f"{value:.{decimals}f}" if isinstance(value, float) else str(value)

    rows = [[text(value) for value in row] for row in data.to_numpy(dtype=object)]
    lines = tuple(TableLine(row[0], tuple(row[1:])) for row in rows)
    head, *columns = map(str, data.columns)
    block = ColumnBlock(head, tuple(columns), lines, (None,) * len(columns))
    return Table(name, title, data, (block,), tuple(Note((note,)) for note in notes))


def read_table(path: Path) -> Table:
    """A table that an analysis has written as CSV."""
    return text_table(path.stem, path.stem, pd.read_csv(path))
