"""A table as CSV: its numbers in long form, unrounded."""

from benchmark.reports.tables import Table


def render(table: Table) -> str:
    """The whole file."""
    return str(table.data.to_csv(index=False, lineterminator="\n"))
