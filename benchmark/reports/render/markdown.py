"""A table as Markdown: one pipe table per block of columns, the notes below."""

import re
from collections.abc import Iterable

from benchmark.errors import printable
from benchmark.reports.results import CellResult
from benchmark.reports.tables import Block, Note, Table

# An underscore between two letters, an ampersand before a space and a number sign in a line have no meaning.
_MARKUP = re.compile(r"[\\*`\[\]~$]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|^[#>]|^[+-](?= )")


def escape(text: str) -> str:
    """Make ``text`` plain in a paragraph."""
    return _MARKUP.sub(r"\\\g<0>", printable(text).replace("\n", " ")).replace("<", "&lt;")


def escape_cell(text: str) -> str:
    """Make ``text`` plain in a pipe table."""
    return escape(text).replace("|", r"\|")


def pipe_row(cells: Iterable[str]) -> str:
    """A row of a pipe table."""
    return f"| {' | '.join(cells)} |"


def render(table: Table) -> str:
    """The whole file."""
    parts = [f"# {escape(table.title)}"]
    if table.caption:
        below = " Behind the dot: the number that the paper prints." if table.has_published else ""
        parts.append(escape(table.caption + below))
    for block in table.blocks:
        if len(table.blocks) > 1:
            parts.append(f"## {escape(block.title or f'{block.columns[0]} to {block.columns[-1]}')}")
        parts.append(_block(block, with_groups=len(table.blocks) == 1 or len(block.groups) > 1))
    parts += [_note(note) for note in table.notes]
    if table.preset:
        parts.append(f"Every cell's runs and unrounded values: `{table.name}.csv`.")
    return "\n\n".join(parts) + "\n"


def _block(block: Block, with_groups: bool) -> str:
    heads = [
        f"{group}: {label}" if with_groups and group else label
        for group, label in zip(block.column_groups, block.columns, strict=True)
    ]
    rule = "---:" if block.groups else "---"
    rows = [
        pipe_row(map(escape_cell, [block.head, *heads])),
        pipe_row(["---", *[rule] * len(heads)]),
    ]
    for line in block.lines:
        label = escape_cell(line.label) + (" (own)" if line.own else "")
        rows.append(pipe_row([label, *map(cell_text, line.cells)]))
    return "\n".join(rows)


def cell_text(cell: CellResult | str) -> str:
    """``**73.20 ± 0.80** (n=3) · 67.29 published``, with what is missing from the cell in words."""
    if isinstance(cell, str):
        return escape_cell(cell)
    published = f" · {escape_cell(cell.published.text)} published" if cell.published else ""
    return measured_text(cell) + published


def measured_text(cell: CellResult) -> str:
    """The measured half of a cell."""
    if cell.state != "ok":
        return escape_cell(cell.state)
    troubles = [f"{len(seeds)} {outcome}" for outcome, seeds in cell.troubles.items()]
    if cell.summary is None:
        return ", ".join(troubles) or "missing"
    number = f"{cell.summary.mean:.2f}"
    if cell.summary.std is not None:
        number += f" ± {cell.summary.std:.2f}"
    if cell.mark.best:
        number = f"**{number}**"
    elif cell.mark.second:
        number = f"<ins>{number}</ins>"
    if cell.mark.not_worse:
        number += "†"
    if cell.other_code:
        number += "‡"
    count = f"n={cell.summary.n}" if cell.complete else f"n={cell.summary.n} of {len(cell.runs)}"
    return f"{number} ({', '.join([count, *troubles])})"


def _note(note: Note) -> str:
    heading = f"**{note.heading}.**" if note.heading else ""
    if len(note.lines) == 1:
        return f"{heading} {escape(note.lines[0])}".lstrip()
    return "\n".join([heading, "", *(f"- {escape(line)}" for line in note.lines)])
