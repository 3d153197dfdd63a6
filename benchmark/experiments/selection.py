"""Selection of tables, rows and columns, and the runs of what was selected."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells, plan
from benchmark.experiments.spec import TableSpec, matching
from benchmark.experiments.tables import NoTable, find_specs, spec_called
from benchmark.experiments.tuning import TunedFolder


@dataclass(frozen=True)
class TableQuery:
    """Which tables, cells and runs a command works on.

    Attributes:
        paper: Short name of a paper. If left out: all.
        table: Number of the table in the paper. If left out: all.
        name: One file of tables. ``paper`` and ``table`` are then ignored.
        preset: Data, model and budget.
        rows: Keys and patterns of rows. If left out: all.
        columns: Keys and patterns of columns. If left out: all.
        seeds: Number of seeds. If left out: as many as the table says.
        results: The results folder.
        tuned: Folder of tuned values, or ``off``. If left out: those of the results folder, then those of the project.
        stale: Whether finished runs whose method's code has changed since are carried out again, or used and marked.
        dataset_options: An option of the data set of every cell, on top of the cell's own.
    """

    paper: str | None = None
    table: int | None = None
    name: str | None = None
    preset: str = "quick"
    rows: str | None = None
    columns: str | None = None
    seeds: int | None = None
    results: Path = Path("results")
    tuned: str | None = None
    stale: Literal["rerun", "keep"] = "rerun"
    dataset_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def selects(self) -> bool:
        """Whether the query is about some tables or cells only."""
        return any(
            given is not None for given in (self.paper, self.table, self.name, self.rows, self.columns)
        )

    def command(self, words: str) -> str:
        """The command line ``python -m benchmark WORDS`` with what this query says about the runs of all tables."""
        options = {
            "seeds": self.seeds,
            "results": None if self.results == Path("results") else self.results,
            "tuned": self.tuned,
        }
        given = [f"{key}={value}" for key, value in options.items() if value is not None]
        given = [*map(shlex.quote, given), *option_words(self.dataset_options)]
        return " ".join(["python -m benchmark", words, *given])


def option_words(options: Mapping[str, Any]) -> list[str]:
    """The words ``dataset.options.KEY=VALUE`` that set these options."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in options.items()}
    return [shlex.quote(f"dataset.options.{key}={text}") for key, text in texts.items()]


def plan_tables(
    tables: Sequence[TableSpec], query: TableQuery, extra: Mapping[str, Any] | None = None
) -> list[tuple[TableSpec, Cells]]:
    """Whole tables, cut to the selected rows and columns, with their runs.

    ``extra`` are settings of all runs that do not belong to a run's identity (paths, runtime).
    """
    parts = [(whole, select(whole, query)) for whole in tables]
    return [(part, plan_cells(whole, part, query, extra)) for whole, part in parts]


def plan_cells(
    whole: TableSpec, part: TableSpec, query: TableQuery, extra: Mapping[str, Any] | None = None
) -> Cells:
    """The cells of ``part`` of a table, with the values that were tuned for the ``whole`` table."""
    seeds = whole.seed_range(query.preset, query.seeds)
    tuned = TunedFolder.of(query.tuned, query.results).load(whole, query.preset)
    extra = {**(extra or {}), "dataset": {"options": query.dataset_options}}
    return plan(part, query.preset, seeds, extra, tuned)


def whole_tables(query: TableQuery) -> list[TableSpec]:
    """The tables selected by name, or by paper and number, with all rows and columns."""
    return find_specs(query.paper, query.table) if query.name is None else [spec_called(query.name)]


def find_tables(query: TableQuery) -> list[TableSpec]:
    """The selected tables that have the preset and a row and a column for every pattern, uncut.

    Raises:
        NoTable: No table is left; the message is about the first one.
    """
    kept, problems = [], []
    for spec in whole_tables(query):
        try:
            spec.check_preset(query.preset)
            select(spec, query)
            kept.append(spec)
        except ConfigError as error:
            problems.append(error)
    if not kept:
        raise NoTable(str(problems[0]))
    return kept


def select(spec: TableSpec, query: TableQuery) -> TableSpec:
    """The table cut to the selected rows and columns."""
    if query.rows is None and query.columns is None:
        return spec
    where = f"table {spec.name}"
    rows = matching([row.key for row in spec.rows], query.rows, "rows", where)
    columns = matching([column.key for column in spec.columns], query.columns, "columns", where)
    return spec.cut(rows, columns)
