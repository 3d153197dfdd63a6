"""A table of text for the terminal, as wide as it is: columns that do not fit beside the others stand below them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.table import Column
from rich.table import Table as TextTable
from rich.text import Text

from benchmark.errors import printable
from benchmark.reports.render.console import TextConsole
from benchmark.reports.render.printed import Printed, printed
from benchmark.reports.results import CellResult
from benchmark.reports.tables import ColumnBlock, Table

GAP = 2
"""Characters between two columns."""


def render(table: Table, with_notes: bool = True, width: int | None = None) -> str:
    """Title, caption, table and notes; coloured where the standard output is a terminal.

    ``width``: characters of a line, by default those of the terminal.
    """
    console = TextConsole(width)
    caption = [table.caption] if table.caption else []
    if table.small:
        caption.append(f"In brackets: {'; '.join(table.small)}.")
    cells = [cell for block in table.blocks for line in block.lines for cell in line.cells]
    if any(isinstance(cell, CellResult) and cell.summary and not cell.complete for cell in cells):
        caption.append("n/m: only n of m seeds are done.")
    with console.capture() as capture:
        console.print(Text(printable(table.title), style="bold"))
        if caption:
            console.print(Text(printable(" ".join(caption)), style="dim"))
        for block in table.blocks:
            for part in _parts(table, block, console.width):
                console.print(part, Text())
        for note in table.notes if with_notes else ():
            console.print("\n".join(note.lines))
    return capture.get()


def _parts(table: Table, block: ColumnBlock, room: int) -> Iterator[TextTable]:
    """The block, cut between columns where it is wider than ``room``. Each part has the labels of the lines."""
    labels = [Text(f"{printable(line.label)}{' (own)' if line.own else ''}") for line in block.lines]
    first = _width(block.head, labels)
    heads = [
        f"{group} {label}" if group else label
        for group, label in zip(block.groups, block.columns, strict=True)
    ]
    columns = [_cells(table, [line.cells[place] for line in block.lines]) for place in range(len(heads))]
    widths = [_width(head, cells) for head, cells in zip(heads, columns, strict=True)]
    parts: list[list[int]] = [[]]
    left = room - first
    for place, width in enumerate(widths):
        if parts[-1] and left < GAP + width:
            parts.append([])
            left = room - first
        parts[-1].append(place)
        left -= GAP + width
    for places in parts:
        view = TextTable(Column(block.head, width=first), box=box.SIMPLE_HEAD, show_edge=False)
        view.padding, view.pad_edge = (0, GAP - 1, 0, 0), False
        for place in places:
            view.add_column(heads[place], width=widths[place])
        for number, label in enumerate(labels):
            view.add_row(label, *(columns[place][number] for place in places))
        yield view


def _width(head: str, cells: Sequence[Text]) -> int:
    """The width of a column in which no word of the heading and no cell without line breaks is cut."""
    lines = [line for cell in cells for line in cell.plain.split("\n")]
    return max([1, *map(cell_len, [*printable(head).split(), *lines])])


def _cells(table: Table, cells: Sequence[CellResult | str]) -> list[Text]:
    """The cells of a column, measured numbers and the others each below one another."""
    pairs = [printed(cell, table.show) for cell in cells]
    texts = [_text(large) for large, *_ in pairs]
    width = max((text.cell_len for text in texts), default=0)
    for text, (_, *small) in zip(texts, pairs, strict=True):
        if others := [entry.number or entry.text for entry in small if entry.plain]:
            text.pad_right(width - text.cell_len)
            text.append(f" ({printable('; '.join(others))})", "dim")
    return texts


def _text(entry: Printed) -> Text:
    """``73.20 ± 0.80†``, the best bold, the second underlined; how many seeds it is of if some are missing."""
    if not entry.number:
        return Text(printable(entry.text))
    number = entry._replace(number=entry.number.rjust(5)).plain
    style = {"best": "bold", "second": "underline"}.get(entry.rank, "")
    count = " {}/{}".format(*entry.seeds) if entry.seeds else ""
    return Text.assemble((number, style), entry.signs, (count, "yellow"))
