"""Writes a table as CSV, LaTeX and Markdown."""

from pathlib import Path

from benchmark.reports.render import csv, latex, markdown
from benchmark.reports.tables import Table
from benchmark.runs.files import storage_error, write_atomically

RENDERERS = {"csv": csv.render, "tex": latex.render, "md": markdown.render}


def write(table: Table, folder: Path | str) -> str:
    """Write the files, each at once, and return where they are, in words: ``folder/name.{csv,tex,md}``.

    `StorageError` if the folder cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, folder) from error
    for suffix, render in RENDERERS.items():
        write_atomically(folder / f"{table.name}.{suffix}", render(table).encode(), durable=False)
    return f"{folder / table.name}.{{{','.join(RENDERERS)}}}"
