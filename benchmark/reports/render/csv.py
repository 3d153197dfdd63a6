"""A table as CSV: one line per cell, unrounded."""

import re
from typing import Any

import pandas as pd

from benchmark.reports.tables import Table

_FORMULA = re.compile(r"(?![+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z)[=+\-@\t\r]")
"""How text begins that a spreadsheet takes for a formula, unless the text is a number."""


def to_csv(data: pd.DataFrame, **options: Any) -> str:
    """As pandas writes it, but an apostrophe before names and text that a spreadsheet would take for formulas."""
    plain = data.map(_as_text).rename(index=_as_text, columns=_as_text)
    return str(plain.to_csv(lineterminator="\n", **options))


def _as_text(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def render(table: Table) -> str:
    """One line per cell with all that is known about it."""
    return to_csv(table.data, index=False)
