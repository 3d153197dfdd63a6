r"""A table as LaTeX (booktabs, graphicx): compiles as it is, and can be \input into a document that loads both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmark.experiments.spec import Row
from benchmark.reports.notes import Block, Note, blocks, caption, column_label, notes

if TYPE_CHECKING:
    from benchmark.reports.tables import Table, TableCell

# Before \begin{document} the kernel's \@nodocument is an error macro, afterwards it is \relax. The file asks for it to
# know whether it is the document itself or part of one.
_PREAMBLE = r"""\makeatletter
\ifx\@nodocument\relax
  \def\fedtablesend{}
\else
  \documentclass[a4paper]{article}
  \usepackage[margin=15mm]{geometry}
  \usepackage{booktabs,graphicx}
  \def\fedtablesend{\end{document}}
  \begin{document}
\fi
\makeatother"""

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "→": r"$\rightarrow$",
    "–": "--",
    "—": "---",
    "’": "'",
    "…": r"\dots{}",
    "\n": " ",
} | {
    letter: rf"$\{name}$"
    for letter, name in zip(
        "αβγκλμρστη", "alpha beta gamma kappa lambda mu rho sigma tau eta".split(), strict=True
    )
}

_TROUBLES = ("not reached", "missing", "running", "failed", "diverged")


def escape(text: str) -> str:
    """Make ``text`` plain in LaTeX; a character outside Latin-1 that has no command becomes a question mark."""
    return "".join(_SPECIAL.get(c) or (c if ord(c) < 256 else "?") for c in text)


def render(table: Table) -> str:
    """The whole file: one float per block of columns, notes under the last."""
    pieces = blocks(table)
    parts = [
        f"% {table.spec.name}, preset {table.preset}. Compile it as it is, or \\input it: needs booktabs and graphicx.",
        _PREAMBLE,
    ]
    for number, block in enumerate(pieces):
        parts.append(_float(table, block, number, len(pieces)))
    parts.append(r"\fedtablesend")
    return "\n".join(parts) + "\n"


def document(title: str, cells: Sequence[Sequence[str]], notes: Sequence[str], name: str) -> str:
    """A file with one table of plain cells, the first row its head; compiles as it is, or can be read by a document."""
    head, *body = [[escape(cell) for cell in row] for row in cells]
    lines = [
        f"% {name}. Compile it as it is, or \\input it: needs booktabs and graphicx.",
        _PREAMBLE,
        r"\begin{table}[!htbp]",
        r"\centering\footnotesize",
        rf"\caption{{{escape(title)}}}\smallskip",
        rf"\label{{tab:{name}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{'l' * len(head)}}}",
        r"\toprule",
        _line(head),
        r"\midrule",
        *(_line(row) for row in body),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\par\medskip",
        rf"\parbox{{\linewidth}}{{\scriptsize\raggedright {' '.join(escape(note) for note in notes)}}}",
        r"\end{table}",
        r"\fedtablesend",
    ]
    return "\n".join(lines) + "\n"


def _float(table: Table, block: Block, number: int, total: int) -> str:
    first, last = number == 0, number == total - 1
    part = f" ({escape(block.title or f'part {number + 1}')})" if total > 1 else ""
    head = f"{escape(table.spec.title)}{part}"
    below = "Below each measured value: the number that the paper prints."
    head += f". {escape(caption(table, below))}" if first else ", continued"
    label = f"tab:{table.spec.name}-{table.preset}" + ("" if first else f"-{number + 1}")
    lines = [
        r"\begin{table}[!htbp]",
        r"\centering\footnotesize",
        rf"\caption{{{head}}}\smallskip",
        rf"\label{{{label}}}",
        # Narrower than the page as long as it fits, shrunk to the page otherwise.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *_tabular(table, block),
        "}",
    ]
    if last:
        lines += [r"\par\medskip", r"\parbox{\linewidth}{\scriptsize\raggedright", _notes(table), "}"]
    return "\n".join([*lines, r"\end{table}"])


def _tabular(table: Table, block: Block) -> list[str]:
    lines = [rf"\begin{{tabular}}{{l{'c' * len(block.columns)}}}", r"\toprule"]
    if any(group for group, _ in block.groups):
        lines += _group_header(block)
    labels = [escape(column_label(table, column)) for column in block.columns]
    lines += [_line(["Method", *labels]), r"\midrule"]
    seen_own = False
    for index, row in enumerate(table.spec.rows):
        if row.own and not seen_own and index:
            lines.append(r"\midrule")
        elif index and table.has_published:
            lines.append(r"\addlinespace")
        seen_own |= row.own
        lines += _row(table, block, row)
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _group_header(block: Block) -> list[str]:
    heads, rules, start = [""], [], 2
    for group, size in block.groups:
        heads.append(rf"\multicolumn{{{size}}}{{c}}{{{escape(group or '')}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{start}-{start + size - 1}}}")
        start += size
    return [_line(heads), "".join(rules)]


def _row(table: Table, block: Block, row: Row) -> list[str]:
    """A line of measured numbers and, below it, the published ones."""
    cells = [table.cell(row, column) for column in block.columns]
    label = escape(row.label) + (" (own)" if row.own else "")
    lines = [_line([label, *map(measured_text, cells)])]
    if table.has_published:
        printed = [escape(cell.published.text) if cell.published else "" for cell in cells]
        small = [rf"{{\scriptsize {text}}}" if text else "" for text in ["published", *printed]]
        lines.append(_line([r"\quad " + small[0], *small[1:]]))
    return lines


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def measured_text(cell: TableCell) -> str:
    r"""The measured half of a cell: bold or underlined mean, ``\pm`` std, dagger, and what is missing from it."""
    if cell.state != "ok":
        # What is not available stands below the table; here the column must stay narrow.
        short = "not available" if "not available" in cell.state else cell.state
        return rf"\textit{{{short}}}"
    if cell.summary is None:
        return rf"\textit{{{cell.status}}}"
    text = f"{cell.summary.mean:.2f}"
    if cell.mark.best:
        text = rf"\textbf{{{text}}}"
    elif cell.mark.second:
        text = rf"\underline{{{text}}}"
    if cell.summary.std is not None:
        text += rf" $\pm$ {cell.summary.std:.2f}"
    if cell.mark.not_worse:
        text += r"$^{\dagger}$"
    if not cell.complete:
        letters = "".join(status[0].upper() for status in _TROUBLES if cell.seeds(status))
        text += rf" {{\tiny {cell.summary.n}/{len(cell.runs)}\,{letters}}}"
    return text


def _notes(table: Table) -> str:
    texts = [_note(note) for note in notes(table) if note.brief]
    if any(cell.summary and not cell.complete for cell in table.cells.values()):
        known = [status for status in _TROUBLES if status != "not reached" or table.spec.reference_row]
        what = ", ".join(f"{status[0].upper()} {status}" for status in known)
        texts.insert(1, rf"2/3\,D: seeds done of those planned, and what became of the rest ({what}).\par")
    return "\n".join(texts)


def _note(note: Note) -> str:
    text = " ".join(_sentence(line) for line in note.lines)
    return rf"\textbf{{{escape(note.heading)}.}} {escape(text)}\par"


def _sentence(line: str) -> str:
    return line if line.endswith((".", ":")) else f"{line}."
