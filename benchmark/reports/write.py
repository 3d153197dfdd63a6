"""Writes a table as CSV, LaTeX and Markdown."""

from collections.abc import Callable
from pathlib import Path

from benchmark.reports.render import latex, markdown, terminal
from benchmark.reports.tables import Table
from benchmark.runs.files import write_with_folder

RENDERERS: dict[str, Callable[[Table], str]] = {
    "csv": lambda table: str(table.data.to_csv(index=False)),
    "tex": latex.render,
    "md": markdown.render,
}


def show(table: Table, with_notes: bool = False) -> None:
    """Print a table on the terminal."""
    print(terminal.render(table, with_notes), end="")


def texts(table: Table) -> dict[str, str]:
    """The content of the files, by their endings."""
    return {kind: render(table) for kind, render in RENDERERS.items()}


def write(table: Table, folder: Path) -> str:
    """Write the files, each at once, and return where they are, in words: ``folder/name.{csv,...,md}``.

    The CSV of an analysis has rows and columns already. `StorageError` if the folder cannot be written.
    """
    for kind, text in texts(table).items():
        write_with_folder(folder / f"{table.name}.{kind}", text.encode(), durable=False)
    return f"{folder / table.name}.{{{','.join(RENDERERS)}}}"
