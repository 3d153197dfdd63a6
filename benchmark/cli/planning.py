"""The tables that the command line selects, and the analyses that make some of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.cli.arguments import positive, preset_of
from benchmark.cli.launching import settings_of_runs
from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells
from benchmark.experiments.selection import TableQuery, find_tables, plan_cells, plan_tables
from benchmark.experiments.spec import TableSpec

if TYPE_CHECKING:
    from benchmark.analyses.registry import PaperTable

TABLE_OPTIONS = {
    "paper": "fedld|fedsdc|feddiverse|fedmr",
    "table": "NUMBER",
    "name": "FILE of conf/table",
    "preset": "quick|small|paper",
    "rows": "KEY,PATTERN*,...",
    "columns": "KEY,PATTERN*,...",
    "seeds": "NUMBER",
    "results": "FOLDER",
    "tuned": "FOLDER|off",
}


def table_query(values: Mapping[str, str]) -> TableQuery:
    """The query of a command line; ConfigError for a preset or number that does not exist."""
    return TableQuery(
        paper=values.get("paper"),
        table=positive(values, "table"),
        name=values.get("name"),
        preset=preset_of(values),
        rows=values.get("rows"),
        columns=values.get("columns"),
        seeds=positive(values, "seeds"),
        results=Path(values.get("results", "results")),
        tuned=values.get("tuned"),
    )


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


def plans_of(values: Mapping[str, str]) -> list[tuple[TableSpec, Cells]]:
    """The selected tables with their runs; none if an analysis makes all of them."""
    query = table_query(values)
    try:
        tables = find_tables(query)
    except ConfigError:
        if not find_analyses(query):
            raise
        tables = []
    return plan_tables(tables, query, settings_of_runs(values))


def command(words: str, values: Mapping[str, str]) -> str:
    """Like `TableQuery.command`."""
    return table_query(values).command(words)


def planned(whole: TableSpec, part: TableSpec, values: Mapping[str, str], preset: str) -> Cells:
    """Like `plan_cells`."""
    return plan_cells(whole, part, table_query({**values, "preset": preset}))
