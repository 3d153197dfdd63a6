"""Tuning: trials in each cell of a table, judged on a validation split; runs of tables take the chosen values.

A part of every client's training data is held out, and the trial with the best mean on it is chosen. The trials are the
grid of ``conf/tune/<method>.yaml`` or, with ``trials=N``, N that are drawn in each cell of all methods
(`benchmark.experiments.tuning.drawn_trials`), of which the best two are compared with three seeds more.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt
from rich.table import Table as TextTable

from benchmark.commands.launching import run_missing, run_settings
from benchmark.commands.options import LaunchOptions
from benchmark.config.schema import TrainConfig
from benchmark.errors import ConfigError, validate, wrong
from benchmark.experiments import tuning
from benchmark.experiments.plan import Cells, TunedValues, plan
from benchmark.experiments.selection import TableQuery, find_tables, select, setting_words
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.experiments.tuning import CellKey, Point, SearchGrid, TunedCell, TunedFolder, Values
from benchmark.paths import conf_file
from benchmark.reports.render.console import TextConsole
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

SPLIT = 0.1
"""Share of every client's training data that is held out, unless the cell sets its own."""

QUALITIES = ("accuracy", "micro_f1", "worst_group_accuracy", "balanced_accuracy", "macro_f1", "auroc", "loss")
"""Metrics that are recorded on the validation split and measure quality."""


NOTED = "name paper table rows columns preset method trials validation seeds".split()
"""Options of the command that is written beside the chosen values, which repeats the search."""


class TuneOptions(TableQuery, LaunchOptions):
    """Options of `choose_values`."""

    method: str = Field(
        "",
        title="FILE of conf/tune",
        description="the method that is tuned; if left out: all that have a grid",
    )
    trials: int | None = Field(
        None,
        ge=2,
        le=len(tuning.STEPS) * len(tuning.MOMENTA),
        description="so many trials in each cell of every method, drawn from rate, momentum and the first parameter of "
        "the grid, in place of the whole grid; the best two are compared with three seeds more",
    )
    grid_settings: Mapping[str, Any] = Field(
        {},
        title="LIST",
        description="values to try of a setting, as grid.train.lr=[0.1,0.3], in place of conf/tune",
    )
    validation: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of every client's training data that is held out; if left out: the cell's own, or 0.1",
    )
    out: Path | None = Field(
        None, description="folder of the chosen values; if left out: tuned in the results folder"
    )
    seeds: PositiveInt = Field(1, description="number of seeds")
    tuned: str | None = Field(None, exclude=True)
    row_settings: Mapping[str, Any] = Field({}, exclude=True)
    column_settings: Mapping[str, Any] = Field({}, exclude=True)

    @property
    def settings(self) -> list[str]:
        """The words ``GROUP.KEY=VALUE`` that were given."""
        return [*super().settings, *setting_words("grid", self.grid_settings)]

    def grid(self, method: str) -> SearchGrid | None:
        """The values to try: those that were given, or those of the method's file; None without both."""
        if self.grid_settings:
            return validate(SearchGrid, {"method": method, "grid": self.grid_settings})
        return tuning.load_grid(method) if conf_file("tune", method) is not None else None

    def check(self) -> None:
        """Refuse wrong settings."""
        super().check()
        if self.name is None and self.paper is None:
            raise ConfigError(
                "tune: no table is selected; set name=FILE of conf/table, or paper=.. and table=.."
            )
        if self.dataset_options and self.out is None:
            raise ConfigError(
                "dataset.options: values that are chosen with other options would go into tables without them. "
                "Set out=FOLDER, and tuned=FOLDER for the table."
            )


@dataclass(frozen=True)
class Search:
    """The search in one table.

    Attributes:
        spec: The table, cut to the selected cells.
        base: The cells with runs, with the values that they have without a search.
        points: What is tried, by cell.
        planned: The cells with the first of their points, with the second, and so on.
        seeds: Number of seeds of each point.
        earlier: What the points reached from which these were taken as the best, by cell.
    """

    spec: TableSpec
    options: TuneOptions
    base: Cells
    points: Mapping[CellKey, Sequence[Values]]
    planned: Sequence[Cells] = ()
    seeds: int = 1
    earlier: Mapping[CellKey, Sequence[Point]] = field(default_factory=dict)

    def split(self, key: CellKey) -> float:
        """Share of the training data of a cell that is held out."""
        return self.options.validation or self.base[key].runs[0].evaluation.validation or SPLIT

    def trying(self, points: Mapping[CellKey, Sequence[Values]]) -> "Search":
        """With these points, whose runs are planned."""
        only, planned = self.spec.model_copy(update={"tuned_only": True}), []
        for number in range(max(map(len, points.values()), default=0)):
            tried = {
                key: TunedValues({**values[number], "evaluation.validation": self.split(key)}, "conf/tune")
                for key, values in points.items()
                if number < len(values)
            }
            planned.append(_planned(only, self.options, self.seeds, tried))
        return replace(self, points=points, planned=planned)

    def reached(self, key: CellKey, index: RunIndex) -> list[Point] | None:
        """What each trial reached in one cell, or None if a run has not ended."""
        from benchmark.reports.collect import validation_value

        points, spec = [], self.spec.of_column(key[1])
        for values, cells in zip(self.points[key], self.planned, strict=False):
            runs = cells[key].runs
            if not all(index.has_ended(run.key) for run in runs):
                return None
            mean, failed = tuning.mean_of_all(
                [validation_value(spec, run.preset, run.key, index) for run in runs]
            )
            spent = [of.seconds * of.origin["threads"] for run in runs if (of := index.result(run.key))]
            points.append(Point(
                values=values, validation=mean, diverged=failed, runs=tuple(f"runs/{run.key}" for run in runs),
                cpu_seconds=round(math.fsum(spent), 2),
            ))  # fmt: skip
        return points


def choose_values(options: TuneOptions) -> tuple[int, list[Path]]:
    """Run what is missing, choose, print and write; the exit code (1: a cell has no choice), and the files."""
    searches = [_search(spec, options) for spec in _tables(options)]
    index = RunIndex(ResultsFolder(options.results, options.stale).open())
    folder = options.out or options.results / "tuned"
    tuned = TunedFolder((folder, *TunedFolder.of(None, options.results).folders))
    for search in searches:
        tuned.read(search.spec, options.preset)  # a file that does not fit is refused now, not after the runs
    more = searches
    while more:
        plans = [(search.spec, cells) for search in more for cells in search.planned]
        with run_missing(options, index, plans, prefix="tune ") as code:
            if code == 130:
                return code, []
        last = searches
        searches = [_finals(search, index) for search in last] if options.trials else last
        pairs = zip(searches, last, strict=True)
        more = [new for new, old in pairs if (new.seeds, new.points) != (old.seeds, old.points)]
    written = []
    for search in searches:
        cells = _choose(search, index)
        if cells:
            before = tuned.read(search.spec, options.preset)
            written.append(tuning.write_tuned(folder, before, cells))
            print(f"chosen values: {written[-1]}")
        code = code if len(cells) == len(search.base) else 1
    return code, written


def _planned(
    spec: TableSpec, options: TuneOptions, seeds: int, tried: Mapping[CellKey, TunedValues] | None = None
) -> Cells:
    settings = run_settings(ResultsFolder(options.results, options.stale), options)
    settings |= {"dataset": {"options": options.dataset_options}}
    return plan(spec, options.preset, range(seeds), settings, tried)


def _tables(options: TuneOptions) -> list[TableSpec]:
    """The selected tables, cut to the rows that can be tuned."""
    if options.method and options.trials is None and options.grid(options.method) is None:
        tuning.load_grid(options.method)  # that there is none is said first
    specs = [select(spec, options) for spec in find_tables(options)]
    found = []
    for spec in specs:
        keys = [row.key for row in spec.rows if _is_tuned(row.method_name, options)]
        if keys and spec.metric in QUALITIES:
            found.append(spec.cut(keys, [column.key for column in spec.run_columns]))
    if not found:
        tables = ", ".join(f"{spec.name} (metric {spec.metric})" for spec in specs)
        there = {row.method_name for spec in specs for row in spec.rows}
        methods = sorted(name for name in there if conf_file("tune", name) is not None)
        expected = (
            f"a method of {tables} with a grid (conf/tune/): {', '.join(methods)}. "
            f"The metric is one of {', '.join(QUALITIES)}"
        )
        raise ConfigError(wrong("method", options.method, expected, known=methods))
    return found


def _is_tuned(method: str, options: TuneOptions) -> bool:
    has_grid = options.trials is not None or options.grid(method) is not None
    return method == options.method if options.method else has_grid


def _search(spec: TableSpec, options: TuneOptions) -> Search:
    """A search in the cells of ``spec`` that have runs, with the first of their points."""
    if spec.first_seed and options.seeds + tuning.MORE_SEEDS * bool(options.trials) > spec.first_seed:
        expected = f"fewer: {spec.name} shows the seeds from {spec.first_seed} on, and they choose nothing"
        raise ConfigError(wrong("seeds", options.seeds, expected))
    spec = spec.model_copy(update={"tuned_only": False})
    base = {key: cell for key, cell in _planned(spec, options, 1).items() if cell.state == "ok"}
    if not base:
        raise ConfigError(f"table {spec.name}: no selected cell has runs in preset {options.preset}.")
    points, centres = {}, _centres(spec, options) if options.trials else {}
    for key in base:
        grid = options.grid(spec.row(key[0]).method_name)
        if options.trials:
            train, name = centres[key[1]], f"{spec.name} {key[1]}"
            points[key] = tuning.drawn_trials(train.lr, train.momentum, grid, options.trials, name)
        elif grid is not None:
            points[key] = grid.points
    return Search(spec, options, base, {}, seeds=options.seeds).trying(points)


def _centres(spec: TableSpec, options: TuneOptions) -> dict[str, TrainConfig]:
    """The training of FedAvg, or of the row most like it, in each column: what trials are drawn around."""
    whole = spec_called(spec.name).model_copy(update={"tuned_only": False})
    reference = whole.cut([whole.base_row.key], [column.key for column in spec.columns])
    return {key[1]: cell.runs[0].train for key, cell in _planned(reference, options, 1).items() if cell.runs}


def _finals(search: Search, index: RunIndex) -> Search:
    """The search among the best trials of each cell, with more seeds: one trial more for each that failed with them."""
    reached = {key: found for key in search.points if (found := search.reached(key, index)) is not None}
    earlier = search.earlier or reached
    finals = dict(search.points) if search.earlier else {}
    for key, points in reached.items():
        failed = sum(point.validation is None for point in points) if search.earlier else 0
        order = tuning.ranked(earlier[key], search.spec.metric_format.higher_is_better)
        if places := order[: tuning.FINALISTS + failed]:
            finals[key] = [earlier[key][place].values for place in places]
    seeds = search.options.seeds + tuning.MORE_SEEDS
    return replace(search, seeds=seeds, earlier=earlier, planned=()).trying(finals)


def _choose(search: Search, index: RunIndex) -> dict[CellKey, TunedCell]:
    """The chosen values of each cell whose trials have ended; prints the trials."""
    spec, chosen, left = search.spec, dict[CellKey, TunedCell](), []
    for key in search.base:
        finals = search.reached(key, index) if key in search.points else ()
        if finals is None:
            left.append(", ".join(key))
            continue
        again = {str(point.values): point for point in finals}
        points = [again.get(str(point.values), point) for point in search.earlier.get(key, finals)]
        order = tuning.ranked(finals, spec.metric_format.higher_is_better)
        best = points.index(finals[order[0]]) if order else None
        _show(search, key, points, best)
        if best is None:
            left.append(", ".join(key))
            continue
        chosen[key] = _tuned(search, key, points, best, index)
        for name in chosen[key].at_edge:
            what = f"{name}={chosen[key].chosen[name]} is at an edge of its grid; try a further value"
            print(f"{spec.name}, {spec.row(key[0]).label}, {key[1]}: {what}.", file=sys.stderr)
    if left:
        why = "runs have not ended, or all have diverged or collapsed"
        print(f"{spec.name}: nothing chosen for {'; '.join(left)}: {why}.", file=sys.stderr)
    return chosen


def _tuned(search: Search, key: CellKey, points: Sequence[Point], number: int, index: RunIndex) -> TunedCell:
    keys = [run.removeprefix("runs/") for point in points for run in point.runs]
    made = [result.made for key in keys if (result := index.result(key))]
    commits = {one["commit"][:12] + " with changes" * one["dirty"] for one in made}
    return TunedCell(
        method=search.spec.row(key[0]).method_name,
        chosen=points[number].values,
        metric=search.spec.of_column(key[1]).metric,
        which_round=search.spec.which_round[search.options.preset],
        split=search.split(key),
        seeds=search.seeds,
        command=search.options.command("tune", NOTED),
        commit=", ".join(sorted(commits)),
        at_edge=() if search.options.trials else tuning.at_edge(points, points[number].values),
        grid=tuple(points),
    )


def _show(search: Search, key: CellKey, points: Sequence[Point], best: int | None) -> None:
    """Print the trials of a cell, one line each, * for the choice."""
    from benchmark.reports import notes

    spec, metric = search.spec, search.spec.metric_format
    names = list(dict.fromkeys(name for point in points for name in point.values))
    view = TextTable(*map(notes.short_name, names))
    view.add_column("validation", justify="right")
    for number, point in enumerate(points):
        value = point.validation
        text = "diverged or collapsed" if value is None else f"{value * metric.scale:.2f}"
        values = [notes.shown_value(point.values.get(name, "")) for name in names]
        view.add_row(*values, text + " *" * (number == best))
    seeds = f"{search.seeds} seed{'s' * (search.seeds > 1)}"
    if search.earlier:
        seeds += f" (the best trials) or {search.options.seeds}"
    unit = f" in {metric.unit}" if metric.unit else ""
    what = f"{spec.metric}{unit} on the validation split, {seeds}; * is chosen"
    print(f"{spec.name}, preset {search.options.preset}, {notes.cell_label(spec, *key)}: {what}")
    TextConsole().print(view)
