"""``python -m benchmark tune``: grid search over a method's hyper-parameters, judged on a validation split.

Every point of the grid of ``conf/tune/<method>.yaml`` is run in every selected cell of a table, with a part of every
client's training data held out. The point with the best mean on that part is written where runs of tables read it.
Finished runs are not repeated. ``trials=N`` tries N points in each cell of all methods of a table: three rates, and in
a second launch what follows from them (`benchmark.experiments.tuning.next_trials`).
"""

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt
from rich.table import Table as TextTable

from benchmark.cli.launching import run_missing, run_settings
from benchmark.cli.options import LaunchOptions, parse
from benchmark.config.files import shown_path
from benchmark.errors import ConfigError, wrong
from benchmark.experiments import tuning
from benchmark.experiments.plan import Cells, TunedValues, plan
from benchmark.experiments.selection import PATTERNS, TableQuery, select, whole_tables
from benchmark.experiments.spec import TableSpec, matching
from benchmark.experiments.tuning import CellKey, Point, SearchGrid, TunedCell, TunedFolder, Values
from benchmark.paths import conf_file
from benchmark.reports.render.console import TextConsole
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex


class TuneOptions(TableQuery, LaunchOptions):
    """Options of the command."""

    method: str = Field("", title="FILE of conf/tune", description="the method whose values are searched")
    validation: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of every client's training data that is held out; if left out: the cell's own, or 0.1",
    )
    share: Literal["column", "row"] = Field(
        "column", description="whether each column of a row has its own choice, or the row one choice"
    )
    apply: str | None = Field(
        None,
        title=PATTERNS,
        description="columns that are not searched and get the choice of their row (with share=row)",
    )
    trials: int | None = Field(
        None,
        ge=3,
        description="for all methods of a table, in place of a grid: at most so many points in each cell",
    )
    out: Path | None = Field(
        None, description="folder of the chosen values; if left out: tuned in the results folder"
    )
    seeds: PositiveInt = Field(1, description="number of seeds")
    tuned: str | None = Field(None, exclude=True)


NOT_NOTED = {"results", "out"} | {name.removesuffix("_settings") for name in LaunchOptions.model_fields}
"""Options that do not change the result; they are left out of the command that is written beside it."""
SPLIT = 0.1
"""Share of every client's training data that is held out, unless the cell sets its own."""
QUALITIES = ("accuracy", "micro_f1", "worst_group_accuracy", "balanced_accuracy", "loss")
"""Metrics that are recorded on the validation split and measure quality."""


@dataclass(frozen=True)
class Search:
    """The search in one table.

    Attributes:
        spec: The table, cut to the selected cells.
        extra: Settings of all runs.
        base: The cells with runs, with the values that they have without a search.
        splits: Share of the training data that is held out, by cell.
        points: What is tried, by cell.
        source: Where it comes from.
        applied: Columns that are not searched and get the choice of their row.
        planned: The cells with the first of their points, with the second, and so on.
    """

    spec: TableSpec
    options: TuneOptions
    extra: Mapping[str, Any]
    base: Cells
    splits: Mapping[CellKey, float]
    points: Mapping[CellKey, Sequence[Values]]
    source: str
    applied: Sequence[str] = ()
    planned: Sequence[Cells] = ()

    def trying(self, points: Mapping[CellKey, Sequence[Values]]) -> "Search":
        """With these points, whose runs are planned."""
        planned = []
        only, seeds = self.spec.model_copy(update={"tuned_only": True}), range(self.options.seeds)
        for number in range(max(map(len, points.values()))):
            tried = {
                key: TunedValues({**values[number], "evaluation.validation": self.splits[key]}, self.source)
                for key, values in points.items()
                if number < len(values)
            }
            planned.append(plan(only, self.options.preset, seeds, self.extra, tried))
        return replace(self, points=points, planned=planned)

    @property
    def rates(self) -> dict[CellKey, float]:
        """The rate of each cell without a search."""
        return {key: cell.runs[0].train.lr for key, cell in self.base.items()}

    @property
    def by_row(self) -> bool:
        """Whether the columns of a row share one choice."""
        return self.options.share == "row"


def main(words: Sequence[str]) -> int:
    """Run what is missing, choose, print, write; exit code 0, 1 (a run failed, no point is left) or 130 (stopped)."""
    options = parse(words, "tune", TuneOptions)
    if options.dataset_options and options.out is None:
        raise ConfigError(
            "dataset.options: values that are chosen with other options would go into tables without them. "
            "Set out=FOLDER, and tuned=FOLDER for the table."
        )
    if options.trials:
        searches = _trial_searches(options)
    else:
        grid = tuning.load_grid(options.method)
        searches = [_search(whole, grid, options) for whole in _tables(options, grid.method)]
    index = RunIndex(ResultsFolder(options.results, options.stale).open())
    folder = options.out or options.results / "tuned"
    tuned = TunedFolder((folder, *TunedFolder.of(None, options.results).folders))
    for search in searches:
        tuned.read(search.spec, options.preset)  # a file that does not fit is refused now, not after the runs
    noted = [word for word in words if word.lstrip("-").partition("=")[0].partition(".")[0] not in NOT_NOTED]
    command = f"python -m benchmark tune {shlex.join(noted)}"
    if options.trials:
        with run_missing(options, index, _plans(searches), prefix="tune ") as code:
            if code == 130:
                return code
            searches = [_with_more(search, index) for search in searches]
    with run_missing(options, index, _plans(searches), prefix="tune ") as code:
        if code == 130:
            return code
        for search in searches:
            cells, complete = _choose(search, index, command)
            if cells:
                before = tuned.read(search.spec, options.preset)
                print(f"chosen values: {tuning.write_tuned(folder, before, cells)}")
            code = code if complete else 1
    return code


def _plans(searches: Sequence[Search]) -> list[tuple[TableSpec, Cells]]:
    return [(search.spec, cells) for search in searches for cells in search.planned]


def _trial_searches(options: TuneOptions) -> list[Search]:
    """Three rates for every cell of the selected tables."""
    if options.method or options.share == "row" or options.apply is not None:
        raise ConfigError(
            "trials: is for all methods, in each cell; it takes rows=, and no method=, share= or apply=."
        )
    searches = [_planned(select(spec, options), options, "conf/tune") for spec in _tables(options, "")]
    return [
        search.trying({key: tuning.first_trials(rate) for key, rate in search.rates.items()})
        for search in searches
    ]


def _with_more(search: Search, index: RunIndex) -> Search:
    """With the further trials of each cell whose rates have ended."""
    points = dict(search.points)
    for key, rate in search.rates.items():
        method, settings = search.spec.row(key[0]).method_name, search.base[key].plain
        has_grid = conf_file("tune", method) is not None
        changes = tuning.single_changes(tuning.load_grid(method), settings) if has_grid else []
        if (reached := _points(search, key, index)) is not None:
            best = tuning.best(reached, search.spec.metric_format.higher_is_better, by_row=False)
            points[key] = [*points[key], *tuning.next_trials(rate, best, changes)][: search.options.trials]
    return search.trying(points)


def _tables(options: TuneOptions, method: str) -> list[TableSpec]:
    """The selected tables that have rows of the method (empty: of any), uncut."""
    if options.name is None and options.paper is None:
        raise ConfigError("tune: no table is selected; set name=FILE of conf/table, or paper=.. and table=..")
    specs = whole_tables(options)
    fitting = [spec for spec in specs if any(method in ("", row.method_name) for row in spec.rows)]
    if not fitting:
        methods = sorted({row.method_name for spec in specs for row in spec.rows})
        names = ", ".join(spec.name for spec in specs)
        raise ConfigError(
            wrong("method", method, f"a method of {names}: {', '.join(methods)}", known=methods)
        )
    judged = [spec for spec in fitting if spec.metric in QUALITIES]
    if not judged:
        expected = f"one of {', '.join(QUALITIES)}, to compare values on a validation split"
        raise ConfigError(f"table {fitting[0].name}: {wrong('metric', fitting[0].metric, expected)}")
    return judged


def _search(whole: TableSpec, grid: SearchGrid, options: TuneOptions) -> Search:
    of_method = [row.key for row in whole.rows if row.method_name == grid.method]
    rows = matching(of_method, options.rows, "rows", f"table {whole.name} with method {grid.method}")
    with_runs = [column.key for column in whole.run_columns]
    columns = matching(with_runs, options.columns, "columns", f"table {whole.name} without averages")
    spec = whole.cut(rows, columns)
    applied: list[str] = []
    if options.apply is not None:
        if options.share != "row":
            raise ConfigError(
                "apply: needs share=row, one choice for a row; without it each column has its own."
            )
        named = matching(with_runs, options.apply, "apply", f"table {whole.name}")
        applied = [key for key in named if key not in columns]
    search = _planned(spec, options, shown_path(tuning.grid_path(grid.method)))
    search = search.trying(dict.fromkeys(search.base, grid.points))
    return replace(search, applied=applied)


def _planned(spec: TableSpec, options: TuneOptions, source: str) -> Search:
    """A search in the cells of ``spec`` that have runs, without points."""
    spec = spec.model_copy(update={"tuned_only": False})
    extra = run_settings(ResultsFolder(options.results, options.stale), options)
    extra["dataset"] = {"options": options.dataset_options}
    planned = plan(spec, options.preset, range(options.seeds), extra)
    base = {key: cell for key, cell in planned.items() if cell.state == "ok"}
    if not base:
        states = sorted({cell.state for cell in planned.values()})
        raise ConfigError(
            f"table {spec.name}, preset {options.preset}: no cell to tune: {', '.join(states)}."
        )
    splits = {
        key: options.validation or cell.runs[0].evaluation.validation or SPLIT for key, cell in base.items()
    }
    return Search(spec, options, extra, base, splits, {}, source)


def _choose(search: Search, index: RunIndex, command: str) -> tuple[dict[CellKey, TunedCell], bool]:
    """(the chosen values of each cell whose whole grid has ended, whether these are all cells); prints the grids."""
    higher = search.spec.metric_format.higher_is_better
    chosen: dict[CellKey, TunedCell] = {}
    for row in search.spec.rows:
        keys = [key for key in search.splits if key[0] == row.key]
        ended = {key: points for key in keys if (points := _points(search, key, index)) is not None}
        if search.by_row:
            means = tuning.shared(list(ended.values())) if len(ended) == len(keys) else []
            ended = dict(zip(keys, means, strict=False))
        best = {key: tuning.best(points, higher, search.by_row) for key, points in ended.items()}
        together = [ended] if ended and not search.options.trials else [{key: ended[key]} for key in ended]
        for part in together:
            _show(search, row.label, part, best)
        cells = {
            key: _tuned(search, key, ended[key], number, index, command)
            for key, number in best.items()
            if number is not None
        }
        chosen |= cells
        for (_, column), cell in cells.items():
            for name in cell.at_edge:
                what = f"{name}={cell.chosen[name]} is at an edge of its grid; try a further value"
                print(f"{search.spec.name}, {row.label}, {column}: {what}.", file=sys.stderr)
        for first in list(cells.values())[:1]:
            chosen |= {(row.key, column): first.model_copy(update={"grid": ()}) for column in search.applied}
    left = [f"{row}, {column}" for row, column in search.splits if (row, column) not in chosen]
    if left:
        why = "runs have not ended, or all have diverged or collapsed"
        print(f"{search.spec.name}: nothing chosen for {'; '.join(left)}: {why}.", file=sys.stderr)
    return chosen, not left


def _points(search: Search, key: CellKey, index: RunIndex) -> list[Point] | None:
    """What each point of the grid reached in one cell, or None if a run has not ended."""
    from benchmark.reports.collect import validation_value

    points, spec = [], search.spec.of_column(key[1])
    for values, cells in zip(search.points[key], search.planned, strict=False):
        runs = cells[key].runs
        if not all(index.has_ended(run.key) for run in runs):
            return None
        reached = [validation_value(spec, run.preset, run.key, index) for run in runs]
        spent = [of.seconds * of.origin["threads"] for run in runs if (of := index.result(run.key))]
        found = tuning.point(values, reached, [f"runs/{run.key}" for run in runs])
        points.append(found.model_copy(update={"cpu_seconds": round(math.fsum(spent), 2)}))
    return points


def _tuned(
    search: Search, key: CellKey, points: Sequence[Point], number: int, index: RunIndex, command: str
) -> TunedCell:
    keys = [run.removeprefix("runs/") for point in points for run in point.runs]
    made = [result.made for key in keys if (result := index.result(key))]
    commits = {one["commit"][:12] + " with changes" * one["dirty"] for one in made}
    return TunedCell(
        method=search.spec.row(key[0]).method_name,
        chosen=points[number].values,
        metric=search.spec.of_column(key[1]).metric,
        which_round=search.spec.which_round[search.options.preset],
        split=search.splits[key],
        seeds=search.options.seeds,
        share=search.options.share,
        columns=tuple(column for row, column in search.splits if search.by_row and row == key[0]),
        command=command,
        commit=", ".join(sorted(commits)),
        at_edge=() if search.options.trials else tuning.at_edge(points, points[number].values),
        grid=tuple(points),
    )


def _show(
    search: Search, label: str, ended: Mapping[CellKey, Sequence[Point]], best: Mapping[CellKey, int | None]
) -> None:
    """Print the grid of a row: a line for each point, a column for each column of the table, * for the choice."""
    from benchmark.reports import notes

    spec, metric = search.spec, search.spec.metric_format

    def shown(value: float | None, is_best: bool) -> str:
        text = "diverged or collapsed" if value is None else f"{value * metric.scale:.2f}"
        return f"{text} *" if is_best else text

    tried = [point.values for point in next(iter(ended.values()))]
    names = list(dict.fromkeys(key for values in tried for key in values))
    view = TextTable(*(notes.short_name(key) for key in names))
    for name in [*(notes.full_label(spec.column(column)) for _, column in ended), *["mean"] * search.by_row]:
        view.add_column(name, justify="right")
    for index, values in enumerate(tried):
        texts = [notes.shown_value(values.get(key, "")) for key in names]
        for key, points in ended.items():
            texts.append(shown(points[index].validation, best[key] == index and not search.by_row))
        if search.by_row:
            texts.append(shown(points[index].over_columns, best[key] == index))
        view.add_row(*texts)
    seeds = f"{search.options.seeds} seed{'s' * (search.options.seeds > 1)}"
    unit = f" in {metric.unit}" if metric.unit else ""
    what = f"{spec.metric}{unit} on the validation split, {seeds}; * is chosen"
    print(f"{spec.name}, preset {search.options.preset}, {label}: {what}")
    TextConsole().print(view)
