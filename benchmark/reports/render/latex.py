r"""A table as LaTeX: compiles as it is, and can be \input into a document that loads booktabs, graphicx and siunitx."""

import re
from collections.abc import Iterable, Sequence

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
  \usepackage{booktabs,graphicx,siunitx}
  \def\fedtablesend{\end{document}}
  \begin{document}
\fi
\makeatother"""

# siunitx cannot underline a number, so a line is drawn under it afterwards.
_NUMBERS = r"""\sisetup{group-digits=none,retain-explicit-plus,table-align-text-after=false}
\sisetup{text-series-to-math,reset-text-series=false}
\def\secondbest#1{\llap{\underline{\phantom{#1}}}}"""

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
        f"% {name}{preset}. Compile it as it is, or \\input it: needs booktabs, graphicx and siunitx 3.",
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
        _NUMBERS,
        # Narrower than the line as long as it fits, shrunk to it otherwise.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *_tabular(table, block),
    ]
    notes = " ".join(escape(" ".join(note.lines)) for note in table.notes if not note.heading)
    if number == total - 1 and notes:
        lines += [r"\par\medskip", rf"\parbox{{\linewidth}}{{\scriptsize\raggedright {notes}}}"]
    return [*lines, r"\end{table*}"]


def _tabular(table: Table, block: ColumnBlock) -> list[str]:
    columns = _columns(table, block)
    alignment = "".join(_alignment(column, "c" if table.preset else "l") for column in columns)
    lines = [rf"\begin{{tabular}}{{l{alignment}}}", r"\toprule", *_head(block), r"\midrule"]
    seen_own = False
    for index, line in enumerate(block.lines):
        if line.own and not seen_own and index:
            lines.append(r"\midrule")
        elif index and table.small:
            lines.append(r"\addlinespace")
        seen_own |= line.own
        lines += _line(table, line, columns)
    return [*lines, r"\bottomrule", r"\end{tabular}}"]


def _columns(table: Table, block: ColumnBlock) -> list[list[Printed]]:
    """The large and the small print of all cells of each column."""
    cells = zip(*(line.cells for line in block.lines), strict=True)
    return [[entry for cell in column for entry in _entries(table, cell)] for column in cells]


def _entries(table: Table, cell: CellResult | str) -> tuple[Printed, ...]:
    large, *small = printed(cell, table.show)
    return Printed(large.text) if _NUMBER.fullmatch(large.text) else large, *small


def _alignment(entries: Sequence[Printed], otherwise: str) -> str:
    """Numbers are aligned at the decimal point; a column without numbers as ``otherwise`` says."""
    numbers = [entry.number for entry in entries if entry.number]
    if not numbers:
        return otherwise
    signed = "+" * any(number[0] in "+-" for number in numbers)
    parts = [number.lstrip("+-").partition(".") for number in numbers]
    whole, rest = (max(len(part[place]) for part in parts) for place in (0, 2))

    def width(entry: Printed) -> int:
        tail = len(entry.interval) + len(entry.troubles) + len(entry.signs)
        return 9 * bool(entry.spread) + 3 * bool(entry.seeds) + tail

    longest = max(entries, key=width)
    wide = (("missing", 1),) * len(longest.troubles)  # M is the widest letter
    tail = _tail(longest._replace(troubles=wide), _places(entries))
    return f"S[table-format={signed}{whole}.{rest}{f',table-space-text-post={{{tail}}}' if tail else ''}]"


def _places(entries: Iterable[Printed]) -> int:
    """Most digits before the point of a spread."""
    return max(entry.spread.find(".") for entry in entries)


def _cell(entry: Printed, column: Sequence[Printed], size: str = "") -> str:
    r"""What stands in a row; ``size`` is a command such as ``\scriptsize``, with a space behind it."""
    if not entry.number:
        return f"{{{size}{escape(entry.text)}}}" if entry.text else ""
    bold = r"\bfseries " if entry.rank == "best" else ""
    underline = rf"\secondbest{{{entry.number}}}" if entry.rank == "second" else ""
    tail = underline + _tail(entry, _places(column))
    return f"{size}{bold}{entry.number}{f' {{{tail}}}' if tail else ''}"


def _tail(entry: Printed, places: int) -> str:
    """What follows a number: spread and marks, in a formula, so that they are never bold."""
    zeros = "0" * (places - entry.spread.find("."))
    pad = rf"\phantom{{{zeros}}}" if zeros else ""
    spread = rf"\,\pm\,{pad}{entry.spread}" if entry.spread else ""
    spread += rf"\ {entry.interval}" if entry.interval else ""
    signs = "".join({"†": r"\dagger", "‡": r"\ddagger"}[sign] for sign in entry.signs)
    formula = f"{spread}^{{{signs}}}" if signs else spread
    text = f"${formula}$" if formula else ""
    if entry.seeds:
        letters = "".join(_letter(outcome) for outcome, _ in entry.troubles)
        text += rf"\,{{\tiny {entry.seeds[0]}/{entry.seeds[1]}\,{letters}}}"
    return text


def _letter(outcome: str) -> str:
    return "X" if outcome == RunState.DIFFERS else outcome[0].upper()


def _seeds_meaning(table: Table) -> str:
    """What the letters mean that are in the table."""
    entries = [entry for block in table.blocks for column in _columns(table, block) for entry in column]
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
    last = _row([escape(block.head), *(f"{{{escape(label)}}}" for label in block.columns)])
    return [_row(heads), "".join(rules), last] if rules else [last]


def _line(table: Table, line: TableLine, columns: Sequence[Sequence[Printed]]) -> list[str]:
    label = escape(line.label) + (" (own)" if line.own else "")
    pairs = list(zip((_entries(table, cell) for cell in line.cells), columns, strict=False))
    rows = [_row([label, *(_cell(entries[0], column) for entries, column in pairs)])]
    for place, name in enumerate(table.small, 1):
        small = [_cell(entries[place], column, r"\scriptsize ") for entries, column in pairs]
        if any(small):
            rows.append(_row([rf"\quad {{\scriptsize {name}}}", *small]))
    return rows


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
