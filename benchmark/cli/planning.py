"""The tables that the command line selects, and the analyses that make some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.cli.launching import run_settings
from benchmark.cli.options import LaunchOptions
from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells
from benchmark.experiments.selection import TableQuery, find_tables, plan_tables
from benchmark.experiments.spec import TableSpec

if TYPE_CHECKING:
    from benchmark.analyses.registry import PaperTable


def find_analyses(query: TableQuery) -> list[PaperTable]:
    """The selected tables that an analysis makes; none if a file, rows or columns are selected."""
    from benchmark.analyses.registry import PAPER_TABLES

    if any(given is not None for given in (query.name, query.rows, query.columns)):
        return []
    return [
        made
        for made in PAPER_TABLES
        if query.paper in (None, made.paper) and query.table in (None, made.table)
    ]


def plans_of(query: TableQuery, options: LaunchOptions | None = None) -> list[tuple[TableSpec, Cells]]:
    """The selected tables with their runs; none if an analysis makes all of them."""
    try:
        tables = find_tables(query)
    except ConfigError:
        if not find_analyses(query):
            raise
        tables = []
    return plan_tables(tables, query, run_settings(query.results, options or LaunchOptions()))
