"""Writes a table as CSV, LaTeX and Markdown."""

from pathlib import Path

from benchmark.reports.render import csv, latex, markdown
from benchmark.reports.tables import Table
from benchmark.runs.files import write_with_folder

RENDERERS = {"csv": csv.render, "tex": latex.render, "md": markdown.render}


def write(table: Table, folder: Path) -> str:
    """Write the files, each at once, and return where they are, in words: ``folder/name.{csv,tex,md}``.

    `StorageError` if the folder cannot be written.
    """
    for suffix, render in RENDERERS.items():
        write_with_folder(folder / f"{table.name}.{suffix}", render(table).encode(), durable=False)
    return f"{folder / table.name}.{{{','.join(RENDERERS)}}}"
