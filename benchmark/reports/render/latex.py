r"""A table as LaTeX: compiles as it is, and can be \input into a document that loads booktabs and graphicx."""

import re
from collections.abc import Iterable

from benchmark.reports.render.printed import Printed, printed, small_print
from benchmark.reports.results import CellResult
from benchmark.reports.tables import ColumnBlock, Table, TableLine
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

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")

_MATHS = "pm dagger ddagger geq leq times cdot rightarrow alpha beta gamma kappa lambda mu rho sigma tau eta".split()
_NAMES = "backslash asciitilde asciicircum less greater bar".split()
_SPECIAL = (
    {c: rf"\{c}" for c in "{}&%$#_"}
    | {c: rf"\text{name}{{}}" for c, name in zip("\\~^<>|", _NAMES, strict=True)}
    | {c: rf"$\{name}$" for c, name in zip("±†‡≥≤×·→αβγκλμρστη", _MATHS, strict=True)}
    | {"–": "--", "—": "---", "’": "'", "…": r"\dots{}", "\n": " ", "\xa0": "~"}
)


def escape(text: str) -> str:
    """Make ``text`` plain in LaTeX; a character outside Latin-1 that has no command becomes a question mark."""
    plain = "".join(_SPECIAL.get(c) or (c if ord(c) < 256 and c.isprintable() else "?") for c in text)
    # A row that begins with one of these would be read as an argument of the end of the row before.
    return f"{{}}{plain}" if text.lstrip().startswith(("[", "*")) else plain


def render(table: Table) -> str:
    """The whole file: one float per block of columns."""
    name, preset = " ".join(table.name.split()), f", preset {table.preset}" if table.preset else ""
    parts = [
        f"% {name}{preset}. Compile it as it is, or \\input it: needs booktabs and graphicx.",
        f"% Settings, tests, gaps and sources: {name}.md",
        _PREAMBLE,
    ]
    for number in range(len(table.blocks)):
        parts += _float(table, number)
    return "\n".join([*parts, r"\fedtablesend"]) + "\n"


def _float(table: Table, number: int) -> list[str]:
    """The float of a block. The first one of a table has the caption, the last one the notes."""
    block, total = table.blocks[number], len(table.blocks)
    head = escape(table.title)
    if total > 1:
        head += f" ({escape(block.title or f'part {number + 1}')})"
    if number == 0 and table.caption:
        head += f". {escape(table.caption)}{small_print(table)}{_seeds_meaning(table)}"
    head += ", continued" if number else ""
    label = "-".join(filter(None, [f"tab:{table.name}", table.preset, str(number + 1) if number else ""]))
    label = re.sub(r"[^\w.:-]", "?", label, flags=re.ASCII)
    lines = [
        r"\begin{table*}[!htbp]",
        r"\centering\footnotesize\setlength\tabcolsep{6pt}",
        rf"\caption{{{head}}}\smallskip",
        rf"\label{{{label}}}",
        # Narrower than the line as long as it fits, shrunk to it otherwise.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *_tabular(table, block),
    ]
    notes = " ".join(escape(" ".join(note.lines)) for note in table.notes if not note.heading)
    if number == total - 1 and notes:
        lines += [r"\par\medskip", rf"\parbox{{\linewidth}}{{\scriptsize\raggedright {notes}}}"]
    return [*lines, r"\end{table*}"]


def _tabular(table: Table, block: ColumnBlock) -> list[str]:
    columns = zip(*(line.cells for line in block.lines), strict=True)
    alignment = "c" * len(block.columns) if table.preset else "".join(map(_alignment, columns))
    lines = [rf"\begin{{tabular}}{{l{alignment}}}", r"\toprule", *_head(block), r"\midrule"]
    seen_own = False
    for index, line in enumerate(block.lines):
        if line.own and not seen_own and index:
            lines.append(r"\midrule")
        elif index and table.small:
            lines.append(r"\addlinespace")
        seen_own |= line.own
        lines += _line(table, line)
    return [*lines, r"\bottomrule", r"\end{tabular}}"]


def _alignment(texts: Iterable[CellResult | str]) -> str:
    """Of a column of texts: numbers stand at the right."""
    return "r" if all(isinstance(text, str) and _NUMBER.fullmatch(text or "0") for text in texts) else "l"


def _entries(table: Table, cell: CellResult | str) -> tuple[Printed, ...]:
    """The large and the small print of a cell."""
    large, *small = printed(cell, table.show)
    return Printed(large.text) if _NUMBER.fullmatch(large.text) else large, *small


def _cell(entry: Printed) -> str:
    """What stands in a row: a formula, in which a minus sign is one."""
    if not entry.number:
        return escape(entry.text)
    pattern = {"best": r"\mathbf{{{}}}", "second": r"\underline{{{}}}"}.get(entry.rank, "{}")
    formula = pattern.format(entry.number)
    formula += rf" \pm {entry.spread}" if entry.spread else ""
    formula += rf"\ {entry.interval}" if entry.interval else ""
    signs = "".join({"†": r"\dagger", "‡": r"\ddagger"}[sign] for sign in entry.signs)
    formula += f"^{{{signs}}}" if signs else ""
    if not entry.seeds:
        return f"${formula}$"
    letters = "".join(_letter(outcome) for outcome, _ in entry.troubles)
    return rf"${formula}$\,{{\tiny {entry.seeds[0]}/{entry.seeds[1]}\,{letters}}}"


def _letter(outcome: str) -> str:
    return "X" if outcome == RunState.DIFFERS else outcome[0].upper()


def _seeds_meaning(table: Table) -> str:
    """What the letters mean that are in the table."""
    cells = (cell for block in table.blocks for line in block.lines for cell in line.cells)
    entries = [entry for cell in cells for entry in _entries(table, cell)]
    outcomes = dict.fromkeys(outcome for entry in entries if entry.seeds for outcome, _ in entry.troubles)
    what = ", ".join(f"{_letter(outcome)}: {outcome}" for outcome in outcomes)
    return f" 2/3: seeds done ({what})." if outcomes else ""


def _head(block: ColumnBlock) -> list[str]:
    heads, rules, start = [""], [], 2
    for group, size in block.spans:
        heads.append(rf"\multicolumn{{{size}}}{{c}}{{{escape(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{start}-{start + size - 1}}}")
        start += size
    last = _row([escape(block.head), *map(escape, block.columns)])
    return [_row(heads), "".join(rules), last] if rules else [last]


def _line(table: Table, line: TableLine) -> list[str]:
    large, *others = zip(*(_entries(table, cell) for cell in line.cells), strict=True)
    rows = [_row([escape(line.label) + (" (own)" if line.own else ""), *map(_cell, large)])]
    for name, small in zip(table.small, others, strict=False):
        texts = [_cell(entry) for entry in small]
        if any(texts):
            cells = (rf"\scriptsize {text}" if text else "" for text in (rf"\quad {name}", *texts))
            rows.append(_row(cells))
    return rows


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
