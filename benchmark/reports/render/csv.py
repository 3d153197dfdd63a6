"""A table as CSV: one line per cell, unrounded."""

from typing import Any

import pandas as pd

from benchmark.reports.tables import Table


def to_csv(data: pd.DataFrame, **options: Any) -> str:
    """As pandas writes it, with the same line ends on every system."""
    return str(data.to_csv(lineterminator="\n", **options))


def render(table: Table) -> str:
    """One line per cell with all that is known about it."""
    return to_csv(table.data, index=False)
