"""A table as CSV: one line per cell, unrounded, or rows x columns of what is printed."""

import pandas as pd

from benchmark.reports.tables import Table


def render(table: Table) -> str:
    """One line per cell with all that is known about it."""
    return str(table.data.to_csv(index=False, lineterminator="\n"))


def render_wide(table: Table) -> str:
    """Rows x columns of means with two digits; of published numbers or of differences where the table prints those."""
    data = table.data
    mean, published = (pd.to_numeric(data[name], errors="coerce") for name in ("mean", "published_mean"))
    shown = {"published": published, "difference": mean - published}.get(table.show, mean)
    wide = data.assign(shown=shown).pivot(index="row", columns="column", values="shown")
    wide = wide.reindex(index=data["row"].unique(), columns=data["column"].unique())
    return str(wide.to_csv(float_format="%.2f", lineterminator="\n"))
