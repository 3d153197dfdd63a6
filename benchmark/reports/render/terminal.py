"""A table of text for the terminal."""

from rich.table import Table as TextTable

from benchmark.reports.render.console import WIDTH, TextConsole
from benchmark.reports.tables import Table


def render(table: Table) -> str:
    """Title, table and notes; coloured where the standard output is a terminal."""
    console = TextConsole(WIDTH)
    with console.capture() as capture:
        for block in table.blocks:
            view = TextTable(block.head, *block.columns, title=table.title)
            for line in block.lines:
                view.add_row(line.label, *map(str, line.cells))
            console.print(view)
        for note in table.notes:
            console.print("\n".join(note.lines))
    return capture.get()
