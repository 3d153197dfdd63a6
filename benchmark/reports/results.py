"""The results of a table: outcomes of the runs of each cell, their mean and spread, and the best row of each column.

Knows the values of runs, not where they are stored nor how a table is printed.
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from benchmark.experiments.parts import Column, Row
from benchmark.experiments.plan import TunedValues
from benchmark.experiments.spec import TableSpec
from benchmark.reports.published import Published, printed_difference, published_cells
from benchmark.reports.statistics import (
    Difference,
    Mark,
    Summary,
    agreement,
    paired_difference,
    rank,
    summarise,
)
from benchmark.runs.status import RunState

NOT_REACHED = "not reached"
"""Outcome of a finished run that never met the value of the reference row, and so has no number of rounds."""

OUTCOMES: tuple[str, ...] = (
    RunState.DONE,
    NOT_REACHED,
    RunState.MISSING,
    RunState.DIFFERS,
    RunState.RUNNING,
    RunState.FAILED,
    RunState.DIVERGED,
)
"""Outcomes of a run, from best to worst. A cell is called by the worst outcome of its runs."""

ENDED = (RunState.DONE, NOT_REACHED, RunState.DIVERGED)
"""Outcomes that another launch would not change."""


def measured_at(preset: str, of_paper: bool = False) -> str:
    """What the report says of a measured row: ``measured at small``; of a paper's table in its preset more."""
    return "at the paper's conditions" if of_paper and preset == "paper" else f"measured at {preset}"


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def gathered(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values of each key, in order of appearance."""
    values: dict[Key, list[Value]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


@dataclass(frozen=True)
class CellRun:
    """One run of a cell; ``run`` is its folder, relative to the results folder.

    ``outcome`` is one of `OUTCOMES`; a done run without a value counts as missing, with NaN or infinity as diverged.
    ``value`` is as recorded (accuracies as fractions); None unless done. ``differs`` says how its code differs from
    today's, or what made it from what made the others of its column. ``processor``: `Result.instructions`. ``by``: who
    ran it, if it was imported.
    """

    seed: int
    outcome: str
    value: float | None = None
    run: str | None = None
    differs: str = ""
    processor: str = ""
    by: str = ""

    @property
    def key(self) -> str:
        """Its key in an index; empty without a folder."""
        return "/".join((self.run or "").split("/")[-2:])

    def __post_init__(self) -> None:
        if self.outcome == RunState.DONE and (self.value is None or not math.isfinite(self.value)):
            without = RunState.MISSING if self.value is None else RunState.DIVERGED
            object.__setattr__(self, "outcome", without)
        if self.outcome != RunState.DONE:
            object.__setattr__(self, "value", None)


@dataclass(frozen=True)
class Cell:
    """What is known about a cell before the statistics.

    ``state`` is ``ok``, or says why the cell has no runs; ``runs`` has one entry per planned seed.
    """

    state: str = "ok"
    runs: tuple[CellRun, ...] = ()


@dataclass(frozen=True)
class CellResult:
    """A cell with its statistics. ``values`` (by seed) and ``summary`` are in the printed unit (% for accuracy).

    ``reproduced``: what others measured. ``base``: the cell of the base row in its column; None in the base row.
    """

    row: Row
    column: Column
    state: str
    runs: tuple[CellRun, ...]
    values: Mapping[int, float]
    summary: Summary | None
    published: Published | None
    mark: Mark = field(default_factory=Mark)
    reproduced: Published | None = None
    base: "CellResult | None" = None

    @property
    def published_value(self) -> float | None:
        """The printed mean as a number; None if the paper prints none."""
        return self.published.value if self.published else None

    @property
    def difference(self) -> Difference | None:
        """This cell minus ``base``, over pairs of runs with one seed on one type of processor; None without any."""
        if self.base is None:
            return None
        processors = {run.seed: run.processor for run in self.runs}
        same = {run.seed for run in self.base.runs if run.processor == processors.get(run.seed)}
        return paired_difference({s: v for s, v in self.values.items() if s in same}, self.base.values)

    @property
    def published_difference(self) -> Difference | None:
        """The printed mean minus that of ``base``, as `printed_difference`."""
        return printed_difference(self.published, self.base.published) if self.base else None

    @property
    def reproduced_difference(self) -> Difference | None:
        """As `difference`, of the values that others measured."""
        if not (self.base and self.base.reproduced and self.reproduced):
            return None
        return paired_difference(self.reproduced.values, self.base.reproduced.values)

    @property
    def complete(self) -> bool:
        """Whether all planned seeds are done. Only complete cells are ranked and compared."""
        return self.state == "ok" and 0 < len(self.runs) == len(self.values)

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to carry out."""
        return all(run.outcome in ENDED for run in self.runs)

    @property
    def outcome(self) -> str:
        """The worst outcome of the runs, or the state that explains why there are none."""
        if self.state != "ok":
            return self.state
        return max((run.outcome for run in self.runs), key=OUTCOMES.index, default=RunState.MISSING)

    @property
    def differs(self) -> dict[str, list[int]]:
        """How runs with a value differ from today's code or from others of their column -> seeds."""
        return gathered((run.differs, run.seed) for run in self.runs if run.differs and run.value is not None)

    @property
    def by(self) -> dict[str, list[int]]:
        """Who ran imported runs -> seeds."""
        return gathered((run.by, run.seed) for run in self.runs if run.by)

    @property
    def troubles(self) -> dict[str, list[int]]:
        """Outcome -> seeds, for every outcome but done."""
        runs = sorted(self.runs, key=lambda run: OUTCOMES.index(run.outcome))
        return gathered((run.outcome, run.seed) for run in runs if run.outcome != RunState.DONE)


@dataclass(frozen=True)
class TableResults:
    """All cells of a table by (row, column), averages included.

    ``stand_ins``: column -> the data that replaces the paper's in this preset, and options that were changed.
    ``tuned``: (row, column) -> tuned hyper-parameters.
    """

    spec: TableSpec
    preset: str
    cells: Mapping[tuple[str, str], CellResult]
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    tuned: Mapping[tuple[str, str], TunedValues] = field(default_factory=dict)

    def cell(self, row: Row, column: Column) -> CellResult:
        return self.cells[row.key, column.key]

    def against(self, base: str = "") -> "TableResults":
        """With the row ``base`` as that which differences are taken from; if left out: each row's own."""
        cells = {}
        for key, cell in self.cells.items():
            row = self.spec.row(base) if base else self.spec.base_of(cell.row)
            cells[key] = replace(cell, base=None if cell.row.key == row.key else self.cell(row, cell.column))
        return replace(self, cells=cells)

    def complete(self, column: Column) -> dict[str, CellResult]:
        """Row -> cell, of the complete cells of a column."""
        cells = {row.key: self.cell(row, column) for row in self.spec.rows}
        return {key: cell for key, cell in cells.items() if cell.complete}

    def agreement(self, column: Column) -> tuple[float | None, int]:
        """Kendall's tau-b of the complete cells of a column that have a published number, and how many these are."""
        cells = [cell for cell in self.complete(column).values() if cell.published_value is not None]
        measured = [cell.summary.mean for cell in cells if cell.summary is not None]
        published = [cell.published_value for cell in cells if cell.published_value is not None]
        return agreement(measured, published), len(cells)

    def by(self, row: Row) -> list[str]:
        """Who ran imported runs of a row."""
        return sorted({name for cell in self.cells.values() if cell.row.key == row.key for name in cell.by})

    @property
    def num_seeds(self) -> int:
        """Most seeds that any cell was planned with; 0 if no cell has runs."""
        return max((len(cell.runs) for cell in self.cells.values()), default=0)


def build_results(
    spec: TableSpec, preset: str, cells: Mapping[tuple[str, str], Cell], folder: Path | None = None
) -> TableResults:
    """Compute averages, statistics and marks.

    ``cells`` are without averages; one that is not given counts as missing. ``folder`` has the files of published
    numbers, `ConfigError` if one of ``spec`` cannot be read.
    """
    published, finished = published_cells(spec, folder), {}
    reproduced = published_cells(spec, folder, reproduced=True)
    for row, column in itertools.product(spec.rows, spec.columns):
        key = row.key, column.key
        parts = [cells.get((row.key, part), Cell()) for part in column.average_of]
        cell = _average(parts) if parts else cells.get(key, Cell())
        runs = tuple(sorted(cell.runs, key=lambda run: run.seed))
        values = {run.seed: run.value * spec.metric_format.scale for run in runs if run.value is not None}
        summary = summarise(list(values.values())) if values else None
        printed = published.get(key), Mark(), reproduced.get(key)
        finished[key] = CellResult(row, column, cell.state, runs, values, summary, *printed)
    results = TableResults(spec, preset, finished)
    for column in spec.columns:
        by_row = {row: cell.values for row, cell in results.complete(column).items()}
        for name, mark in rank(by_row, spec.metric_format.higher_is_better).items():
            finished[name, column.key] = replace(finished[name, column.key], mark=mark)
    return results.against()


def _average(parts: Sequence[Cell]) -> Cell:
    """The mean of several cells, seed by seed. A seed counts only if it is done in all of them."""
    for part in parts:
        if part.state != "ok":
            return part
    by_seed = [{run.seed: run for run in part.runs} for part in parts]
    means = []
    for seed in sorted(set().union(*by_seed)):
        runs = [part.get(seed, CellRun(seed, RunState.MISSING)) for part in by_seed]
        outcome = max((run.outcome for run in runs), key=OUTCOMES.index)
        mean = math.fsum(run.value or 0.0 for run in runs) / len(parts)
        folders = ";".join(run.run for run in runs if run.run)
        differs = next((run.differs for run in runs if run.differs), "")
        processors = "; ".join(dict.fromkeys(run.processor for run in runs))
        by = "; ".join(sorted({run.by for run in runs} - {""}))
        means.append(CellRun(seed, outcome, mean, folders or None, differs, processors, by))
    return Cell("ok", tuple(means))
