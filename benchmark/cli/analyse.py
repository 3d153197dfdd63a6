"""``python -m benchmark analyse NAME key=value ...``: an analysis of a paper, printed and written to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table as TextTable

from benchmark.analyses.registry import Report, analyses, find
from benchmark.cli.arguments import read
from benchmark.errors import ConfigError
from benchmark.reports.render.latex import document
from benchmark.runs.files import storage_error, write_atomically


def main(words: Sequence[str]) -> int:
    """Compute, print, write; exit code 0."""
    if not words or "=" in words[0]:
        names = "; ".join(f"{name} ({entry.summary.rstrip('.')})" for name, entry in analyses().items())
        raise ConfigError(f"analyse: name an analysis. Allowed: {names}.")
    chosen = find(words[0])
    values = read(words[1:], {**chosen.keys, "out": "FOLDER"}, f"analyse {chosen.name}")
    report = chosen.compute(values)
    _show(report)
    folder = Path(
        values.get("out") or Path(values.get("results", "results")) / "tables" / values.get("preset", "quick")
    )
    print(write(report, folder))
    return 0


def _texts(report: Report) -> pd.DataFrame:
    """The table as printed."""

    def text(value: object) -> str:
        if value is None or (isinstance(value, float) and pd.isna(value)):
            return ""
        return f"{value:.{report.decimals}f}" if isinstance(value, float) else str(value)

    return report.data.map(text)


def _show(report: Report) -> None:
    texts = _texts(report)
    view = TextTable(*(str(c) for c in texts.columns), title=report.title)
    for _, row in texts.iterrows():
        view.add_row(*row)
    console = Console(width=140)
    console.print(view)
    for note in report.notes:
        console.print(note)


def write(report: Report, folder: Path) -> str:
    """Write a report as CSV, LaTeX and Markdown; returns where, in words. `StorageError` if it cannot be written."""
    texts = _texts(report)
    cells = [[str(c) for c in texts.columns], *([str(cell) for cell in row] for row in texts.to_numpy())]
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    rows = [head, ["---"] * len(head), *body]
    lines = [f"# {report.title}", "", *("| " + " | ".join(row) + " |" for row in rows), ""]
    markdown = "\n".join([*lines, *(f"{note}\n" for note in report.notes)])
    contents = {
        ".csv": report.data.to_csv(index=False),
        ".tex": document(report.title, cells, report.notes, report.name),
        ".md": markdown,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, folder) from error
    for suffix, content in contents.items():
        write_atomically(folder / f"{report.name}{suffix}", content.encode(), durable=False)
    return f"{folder / report.name}.{{csv,tex,md}}"
