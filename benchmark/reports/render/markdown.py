"""A table as Markdown: one pipe table per block of columns, the notes below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.experiments.spec import Row
from benchmark.reports.notes import Block, Note, blocks, caption, column_label, notes

if TYPE_CHECKING:
    from benchmark.reports.tables import Table, TableCell

_MARKUP = str.maketrans({"\\": r"\\", "|": r"\|", "*": r"\*", "`": r"\`", "<": "&lt;", "\n": " "})


def escape(text: str) -> str:
    """Make ``text`` plain inside a pipe table."""
    return text.translate(_MARKUP)


def render(table: Table) -> str:
    """The whole file."""
    parts = [
        f"# {escape(table.spec.title)}",
        escape(caption(table, "Behind the dot: the number that the paper prints.")),
    ]
    pieces = blocks(table)
    for block in pieces:
        if len(pieces) > 1:
            parts.append(
                f"## {escape(block.title or f'{block.columns[0].label} to {block.columns[-1].label}')}"
            )
        parts.append(_block(table, block, with_group=len(pieces) == 1 or len(block.groups) > 1))
    parts += [_note(note) for note in notes(table)]
    parts.append(f"Every cell's runs and unrounded values: `{table.spec.name}.csv`.")
    return "\n\n".join(parts) + "\n"


def _block(table: Table, block: Block, with_group: bool) -> str:
    heads = [
        f"{column.group}: {column_label(table, column)}"
        if with_group and column.group
        else column_label(table, column)
        for column in block.columns
    ]
    lines = [_line(["Method", *map(escape, heads)]), _line(["---"] + ["---:"] * len(heads))]
    for row in table.spec.rows:
        cells = [cell_text(table.cell(row, column)) for column in block.columns]
        lines.append(_line([_row_label(row), *cells]))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row_label(row: Row) -> str:
    return escape(row.label) + (" (own)" if row.own else "")


def cell_text(cell: TableCell) -> str:
    """``**73.20 ± 0.80** (n=3) · 67.29 published``, with every trouble of the cell in words."""
    published = f" · {escape(cell.published.text)} published" if cell.published else ""
    return measured_text(cell) + published


def measured_text(cell: TableCell) -> str:
    """The measured half of a cell."""
    if cell.state != "ok":
        return cell.state
    if cell.summary is None:
        return ", ".join(cell.troubles) or "missing"
    number = f"{cell.summary.mean:.2f}"
    if cell.summary.std is not None:
        number += f" ± {cell.summary.std:.2f}"
    if cell.mark.best:
        number = f"**{number}**"
    elif cell.mark.second:
        number = f"<ins>{number}</ins>"
    if cell.mark.not_worse:
        number += "†"
    count = f"n={cell.summary.n}" if cell.complete else f"n={cell.summary.n} of {len(cell.runs)}"
    return f"{number} ({', '.join([count, *cell.troubles])})"


def _note(note: Note) -> str:
    if len(note.lines) == 1:
        return f"**{note.heading}.** {escape(note.lines[0])}"
    return "\n".join([f"**{note.heading}.**", "", *(f"- {escape(line)}" for line in note.lines)])
