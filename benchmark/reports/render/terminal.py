"""A table of text for the terminal. Cells that do not fit beside one another are broken at spaces."""

from rich import box
from rich.table import Column
from rich.table import Table as TextTable
from rich.text import Text

from benchmark.errors import printable
from benchmark.experiments.metrics import Show
from benchmark.reports.render.console import TextConsole
from benchmark.reports.render.printed import Printed, printed, small_print
from benchmark.reports.results import CellResult
from benchmark.reports.tables import Table

STYLES = {"best": "bold", "second": "underline"}


def render(table: Table, with_notes: bool = True, width: int | None = None) -> str:
    """Title, caption, table and notes; coloured where the standard output is a terminal.

    ``width``: characters of a line, by default those of the terminal.
    """
    console = TextConsole(width)
    with console.capture() as capture:
        console.print(Text(printable(table.title), style="bold"))
        console.print(Text(printable(table.caption + small_print(table)), style="dim"))
        for block in table.blocks:
            view = TextTable(Column(block.head, overflow="fold"), box=box.SIMPLE_HEAD)
            for group, label in zip(block.groups, block.columns, strict=True):
                view.add_column(f"{group or ''} {label}".strip(), justify="right", overflow="fold")
            for line in block.lines:
                name = Text(f"{printable(line.label)}{' (own)' if line.own else ''}")
                view.add_row(name, *(_text(cell, table.show) for cell in line.cells))
            console.print(view)
        for note in table.notes if with_notes else ():
            console.print("\n".join(note.lines))
    return capture.get()


def _text(cell: CellResult | str, show: Show) -> Text:
    """``73.20 ± 0.80†`` and the small print below it; how many seeds it is of if some are missing."""
    large, *small = printed(cell, show)
    below = [f"\n{entry.plain}" for entry in small if entry.plain]
    return Text.assemble(_number(large), *((printable(text), "dim") for text in below))


def _number(entry: Printed) -> Text:
    count = " (n={} of {})".format(*entry.seeds) if entry.seeds else ""
    return Text.assemble((printable(entry.plain), STYLES.get(entry.rank, "")), entry.signs, (count, "yellow"))
