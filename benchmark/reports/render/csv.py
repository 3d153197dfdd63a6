"""A table as CSV: one line per cell, unrounded, or rows x columns of what is printed."""

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


def render_wide(table: Table) -> str:
    """Rows x columns of means with two digits; of published numbers or differences where the table prints those."""
    data = table.data
    name = {"published": "published_mean", "difference": "difference"}.get(table.show, "mean")
    data = data.assign(shown=pd.to_numeric(data[name], errors="coerce"))
    wide = data.pivot(index="row", columns="column", values="shown")
    wide = wide.reindex(index=data["row"].unique(), columns=data["column"].unique())
    return to_csv(wide, float_format="%.2f")
