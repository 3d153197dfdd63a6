"""What a drawing gets and returns, and drawings by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.errors import ConfigError
from benchmark.experiments.figures import FigureSpec
from benchmark.experiments.plan import Cells
from benchmark.experiments.spec import Column, Row, TableSpec
from benchmark.reports.registry import Registry
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState


@dataclass(frozen=True)
class Request:
    """What a drawing may use.

    Attributes:
        spec: The figure.
        preset: Preset of its runs.
        options: Options of the drawing in the preset.
        table: The table whose runs are drawn; None for a drawing that needs no runs.
        cells: The planned cells of ``table``. All runs have ended.
        index: Statuses of the runs.
        extra: Settings for runs of the drawing's own (paths, runtime).
        seeds: How many seeds were asked for; None: the figure's own number.
    """

    spec: FigureSpec
    preset: str
    options: Mapping[str, Any]
    table: TableSpec | None
    cells: Cells
    index: RunIndex
    extra: Mapping[str, Any]
    seeds: int | None

    def option(self, name: str, default: Any = None) -> Any:
        """One option; `ConfigError` if it is missing and has no default."""
        if name not in self.options and default is None:
            raise self.error(f"options.{name} is missing (conf/figure/).")
        return self.options.get(name, default)

    def error(self, text: str) -> ConfigError:
        """A `ConfigError` about this figure."""
        return ConfigError(f"figure {self.spec.name}: {text}")

    @property
    def runs(self) -> TableSpec:
        """The table whose runs are drawn; `ConfigError` if the figure has none."""
        if self.table is None:
            raise self.error(f"kind {self.spec.kind} needs a table with runs (conf/figure/).")
        return self.table

    def done(self, row: Row, column: Column) -> list[RunConfig]:
        """The finished runs of one cell, by seed."""
        runs = self.cells[row.key, column.key].runs
        return [run for run in runs if self.index.state(run.key) is RunState.DONE]

    def finished(self) -> Iterator[tuple[Row, Column, RunConfig]]:
        """All finished runs, row by row."""
        for row in self.runs.rows:
            for column in self.runs.run_columns:
                for run in self.done(row, column):
                    yield row, column, run

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
        """The numbers of finished runs; `ConfigError` if there are none."""
        if not rows:
            raise self.error("no run with such numbers is done; nothing to draw.")
        return pd.DataFrame(rows, columns=list(columns))

    def final(self, run: RunConfig, split: str) -> Mapping[str, float]:
        """Metric -> value of a finished run at its last evaluation."""
        status = self.index.status(run.key)
        return {} if status is None else status.final.get(split, {})

    def records(self, run: RunConfig) -> list[Record]:
        """All that a finished run recorded."""
        return self.index.results.run(run.key).read_records()


@dataclass(frozen=True)
class Drawing:
    """A finished drawing: the figure, the numbers in it in long form, and remarks for its caption."""

    figure: Figure
    data: pd.DataFrame
    remarks: tuple[str, ...] = ()


Kind = Callable[[Request], Drawing]
_registry: Registry[Kind] = Registry("benchmark.figures", "kind")
find = _registry.find


def kind(name: str) -> Callable[[Kind], Kind]:
    """Register a drawing under ``name``."""

    def decorate(function: Kind) -> Kind:
        _registry.add(name, function)
        return function

    return decorate
