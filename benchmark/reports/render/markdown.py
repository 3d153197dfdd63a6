"""A table as Markdown: one pipe table per block of columns, the notes below."""

import re
from collections.abc import Iterable

from benchmark.errors import printable
from benchmark.experiments.metrics import Show
from benchmark.reports.render.printed import Printed, printed, small_print
from benchmark.reports.results import CellResult
from benchmark.reports.tables import ColumnBlock, Note, Table

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
    """The whole file. Notes with a heading are folded (GitHub and GitLab unfold them on a click)."""
    parts = [f"# {escape(table.title)}"]
    if table.caption:
        parts.append(escape(table.caption) + small_print(table))
    for block in table.blocks:
        if len(table.blocks) > 1:
            parts.append(f"## {escape(block.title or f'{block.columns[0]} to {block.columns[-1]}')}")
        parts.append(_block(table, block))
    parts += [_note(note) for note in table.notes if not note.heading]
    if folded := [_note(note) for note in table.notes if note.heading]:
        parts += [
            "<details>\n<summary>Notes: settings, tests, gaps, sources</summary>",
            *folded,
            "</details>",
        ]
    if table.preset:
        parts.append(f"Every cell's runs and unrounded values: `{table.name}.csv`.")
    return "\n\n".join(parts) + "\n"


def _block(table: Table, block: ColumnBlock) -> str:
    with_groups = len(table.blocks) == 1 or len(block.spans) > 1
    heads = [
        f"{group}: {label}" if with_groups and group else label
        for group, label in zip(block.groups, block.columns, strict=True)
    ]
    rule = "---:" if table.preset else "---"
    rows = [
        pipe_row(map(escape_cell, [block.head, *heads])),
        pipe_row(["---", *[rule] * len(heads)]),
    ]
    for line in block.lines:
        label = escape_cell(line.label) + (" (own)" if line.own else "")
        rows.append(pipe_row([label, *(cell_text(cell, table.show) for cell in line.cells)]))
    return "\n".join(rows)


def cell_text(cell: CellResult | str, show: Show) -> str:
    """``**73.20 ± 0.80**<br><sub>67.29</sub>``, with what is missing from the cell in words."""
    large, *small = map(_text, printed(cell, show))
    return "<br>".join([large, *(f"<sub>{text}</sub>" for text in small if text)])


def _text(entry: Printed) -> str:
    pattern = {"best": "**{}**", "second": "<ins>{}</ins>"}.get(entry.rank, "{}")
    text = pattern.format(escape_cell(entry.plain)) + entry.signs
    if entry.seeds:
        done = "n={} of {}".format(*entry.seeds)
        text += f" ({', '.join([done, *(f'{count} {outcome}' for outcome, count in entry.troubles)])})"
    return text


def _note(note: Note) -> str:
    heading = f"**{note.heading}.**" if note.heading else ""
    if len(note.lines) == 1:
        return f"{heading} {escape(note.lines[0])}".lstrip()
    return "\n".join([heading, "", *(f"- {escape(line)}" for line in note.lines)])
