r"""A table as LaTeX (booktabs, graphicx): compiles as it is, and can be \input into a document that loads both."""

import re
from collections.abc import Iterable

from benchmark.reports.results import CellResult
from benchmark.reports.tables import Block, Line, Note, Table
from benchmark.runs.status import RunState

# Before \begin{document} the kernel's \@nodocument is an error macro, afterwards it is \relax. This tells the file
# whether it is the document itself or part of one.
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

_MATHS = "pm dagger geq leq times cdot rightarrow alpha beta gamma kappa lambda mu rho sigma tau eta".split()
_NAMES = "backslash asciitilde asciicircum less greater bar".split()
_SPECIAL = (
    {c: rf"\{c}" for c in "{}&%$#_"}
    | {c: rf"\text{name}{{}}" for c, name in zip("\\~^<>|", _NAMES, strict=True)}
    | {c: rf"$\{name}$" for c, name in zip("±†≥≤×·→αβγκλμρστη", _MATHS, strict=True)}
    | {"–": "--", "—": "---", "’": "'", "…": r"\dots{}", "\n": " ", "\xa0": "~"}
)


def escape(text: str) -> str:
    """Make ``text`` plain in LaTeX; a character outside Latin-1 that has no command becomes a question mark."""
    plain = "".join(_SPECIAL.get(c) or (c if ord(c) < 256 and c.isprintable() else "?") for c in text)
    # A row that begins with one of these would be read as an argument of the end of the row before.
    return f"{{}}{plain}" if text.lstrip().startswith(("[", "*")) else plain


def render(table: Table) -> str:
    """The whole file: one float per block of columns, the notes under the last."""
    preset = f", preset {table.preset}" if table.preset else ""
    parts = [
        f"% {' '.join(table.name.split())}{preset}. Compile it as it is, or \\input it: needs booktabs and graphicx.",
        _PREAMBLE,
        *(_float(table, number) for number in range(len(table.blocks))),
        r"\fedtablesend",
    ]
    return "\n".join(parts) + "\n"


def _float(table: Table, number: int) -> str:
    block, total = table.blocks[number], len(table.blocks)
    part = f" ({escape(block.title or f'part {number + 1}')})" if total > 1 else ""
    head = escape(table.title) + part
    if number > 0:
        head += ", continued"
    elif table.caption:
        below = " Below each measured value: the number that the paper prints." if table.has_published else ""
        head += f". {escape(table.caption + below)}"
    label = "-".join(filter(None, [f"tab:{table.name}", table.preset, str(number + 1) if number else ""]))
    label = re.sub(r"[^\w.:-]", "?", label, flags=re.ASCII)
    lines = [
        r"\begin{table}[!htbp]",
        r"\centering\footnotesize",
        rf"\caption{{{head}}}\smallskip",
        rf"\label{{{label}}}",
        # Narrower than the page as long as it fits, shrunk to the page otherwise.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *_tabular(table, block),
    ]
    if number == total - 1:
        lines += [r"\par\medskip", _notes(table)]
    return "\n".join([*lines, r"\end{table}"])


def _tabular(table: Table, block: Block) -> list[str]:
    alignment = "c" if table.preset else "l"
    lines = [rf"\begin{{tabular}}{{l{alignment * len(block.columns)}}}", r"\toprule"]
    if any(group for group, _ in block.groups):
        lines += _group_header(block)
    lines += [_row(map(escape, [block.head, *block.columns])), r"\midrule"]
    seen_own = False
    for index, line in enumerate(block.lines):
        if line.own and not seen_own and index:
            lines.append(r"\midrule")
        elif index and table.has_published:
            lines.append(r"\addlinespace")
        seen_own |= line.own
        lines += _line(line, table.has_published)
    end = [r"\end{tabular}", "}"] if table.preset else [r"\end{tabular}}"]
    return [*lines, r"\bottomrule", *end]


def _group_header(block: Block) -> list[str]:
    heads, rules, start = [""], [], 2
    for group, size in block.groups:
        heads.append(rf"\multicolumn{{{size}}}{{c}}{{{escape(group or '')}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{start}-{start + size - 1}}}")
        start += size
    return [_row(heads), "".join(rules)]


def _line(line: Line, has_published: bool) -> list[str]:
    label = escape(line.label) + (" (own)" if line.own else "")
    rows = [_row([label, *map(cell_text, line.cells)])]
    if has_published:
        printed = [getattr(cell, "published", None) for cell in line.cells]
        small = [rf"{{\scriptsize {escape(number.text)}}}" if number else "" for number in printed]
        rows.append(_row([r"\quad {\scriptsize published}", *small]))
    return rows


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def cell_text(cell: CellResult | str) -> str:
    r"""Bold or underlined mean, ``\pm`` standard deviation, dagger, and what is missing from the cell."""
    if isinstance(cell, str):
        return escape(cell)
    if cell.state != "ok":
        return rf"\textit{{{escape(cell.state)}}}"
    if cell.summary is None:
        return rf"\textit{{{cell.outcome}}}"
    text = f"{cell.summary.mean:.2f}"
    if cell.mark.best:
        text = rf"\textbf{{{text}}}"
    elif cell.mark.second:
        text = rf"\underline{{{text}}}"
    if cell.summary.std is not None:
        text += rf" $\pm$ {cell.summary.std:.2f}"
    if cell.mark.not_worse:
        text += r"$^{\dagger}$"
    if cell.other_code:
        text += r"$^{\ddagger}$"
    if not cell.complete:
        letters = "".join(map(_letter, cell.troubles))
        text += rf" {{\tiny {cell.summary.n}/{len(cell.runs)}\,{letters}}}"
    return text


def _letter(outcome: str) -> str:
    return "X" if outcome == RunState.DAMAGED else outcome[0].upper()


def _notes(table: Table) -> str:
    texts = [_note(note) for note in table.notes if note.brief]
    if any(cell.summary and not cell.complete for cell in table.cells):
        what = ", ".join(f"{_letter(outcome)} {outcome}" for outcome in table.troubles)
        texts.insert(1, rf"2/3\,D: seeds done of those planned, and what became of the rest ({what}).\par")
    start = r"\parbox{\linewidth}{\scriptsize\raggedright"
    return "\n".join([start, *texts, "}"]) if table.preset else f"{start} {' '.join(texts)}}}"


def _note(note: Note) -> str:
    if not note.heading:
        return escape(" ".join(note.lines))
    text = " ".join(line if line.endswith((".", ":")) else f"{line}." for line in note.lines)
    return rf"\textbf{{{escape(note.heading)}.}} {escape(text)}\par"
