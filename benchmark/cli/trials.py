"""``tune trials=N``: a few trials in each cell of a table, for all methods by one rule.

Three rates first, then the values of the method's grid at the best of them, one at a time, then further rates
(`benchmark.experiments.tuning.next_trials`), until there are N. A validation split and one seed choose.
"""

import sys
from collections.abc import Mapping, Sequence

from benchmark.cli.launching import run_missing, run_settings
from benchmark.cli.tune import QUALITIES, SPLIT, Search, TuneOptions, tried, tuned_cell
from benchmark.errors import ConfigError, wrong
from benchmark.experiments import tuning
from benchmark.experiments.plan import Cells, TunedValues, plan
from benchmark.experiments.selection import select
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.experiments.tuning import CellKey, Point, SearchGrid, TunedCell, TunedFolder, Values
from benchmark.paths import conf_file
from benchmark.runs.index import RunIndex
from benchmark.runs.store import ResultsFolder

Trials = dict[CellKey, list[Values]]


def search_table(options: TuneOptions, command: str) -> int:
    """Run what is missing, choose, write; exit code 0, 1 (a cell has no choice) or 130 (stopped)."""
    if options.name is None or options.method:
        raise ConfigError(
            "tune: trials= is for one table and all its methods. Set name=FILE, and rows= for method=."
        )
    spec = select(spec_called(options.name), options).model_copy(update={"tuned_only": False})
    for metric in {spec.of_column(column.key).metric for column in spec.run_columns}.difference(QUALITIES):
        expected = f"one of {', '.join(QUALITIES)}, to compare trials on a validation split"
        raise ConfigError(f"table {spec.name}: {wrong('metric', metric, expected)}")
    index = RunIndex(ResultsFolder(options.results, options.stale).open())
    folder = options.out or options.results / "tuned"
    tuned = TunedFolder((folder, *TunedFolder.of(None, options.results).folders)).read(spec, options.preset)
    extra = run_settings(index.results, options) | {"dataset": {"options": options.dataset_options}}
    cells = plan(spec, options.preset, range(options.seeds), extra)
    cells = {key: cell for key, cell in cells.items() if cell.state == "ok"}
    rates = {key: cell.runs[0].train.lr for key, cell in cells.items()}
    trials = {key: [tuning.rate_at(rate, step) for step in tuning.RATES] for key, rate in rates.items()}
    for last in (False, True):
        planned = _plans(spec, options, trials, cells, extra)
        with run_missing(options, index, [(spec, several) for several in planned], prefix="tune ") as code:
            if code == 130:
                return code
            ended = _points(spec, trials, planned, index)
        if not last:
            for key, points in ended.items():
                best = tuning.best(points, spec.metric_format.higher_is_better, by_row=False)
                more = tuning.next_trials(rates[key], best, _changes(spec, key, cells))
                trials[key] += more[: options.trials - len(points) if options.trials else 0]
    chosen = _choose(spec, options, ended, cells, index, command)
    if chosen:
        print(f"chosen values: {tuning.write_tuned(folder, tuned, chosen)}")
    return max(code, len(chosen) < len(cells))


def _split(cells: Cells, key: CellKey) -> float:
    return cells[key].runs[0].evaluation.validation or SPLIT


def _changes(spec: TableSpec, key: CellKey, cells: Cells) -> list[Values]:
    """What the grid of a row's method changes; nothing for a method without a grid."""
    method = spec.row(key[0]).method_name
    there = conf_file("tune", method)
    return tuning.single_changes(tuning.load_grid(method), cells[key].plain) if there else []


def _plans(
    spec: TableSpec, options: TuneOptions, trials: Trials, cells: Cells, extra: Mapping[str, object]
) -> list[Cells]:
    """The runs of the first trial of all cells, of the second, and so on."""
    only = spec.model_copy(update={"tuned_only": True})
    planned = []
    for number in range(max(map(len, trials.values()), default=0)):
        values = {
            key: TunedValues({**tried[number], "evaluation.validation": _split(cells, key)}, "tune trials")
            for key, tried in trials.items()
            if number < len(tried)
        }
        planned.append(plan(only, options.preset, range(options.seeds), extra, values))
    return planned


def _points(
    spec: TableSpec, trials: Trials, planned: Sequence[Cells], index: RunIndex
) -> dict[CellKey, list[Point]]:
    """What each trial reached, of the cells of which all runs have ended."""
    ended = {}
    for key, values in trials.items():
        runs = [cells[key].runs for cells, _ in zip(planned, values, strict=False)]
        if all(index.has_ended(run.key) for of_trial in runs for run in of_trial):
            of_column = spec.of_column(key[1])
            ended[key] = [tried(of_column, *trial, index) for trial in zip(values, runs, strict=True)]
    return ended


def _choose(
    spec: TableSpec,
    options: TuneOptions,
    ended: Mapping[CellKey, Sequence[Point]],
    cells: Cells,
    index: RunIndex,
    command: str,
) -> dict[CellKey, TunedCell]:
    """The best trial of each cell; prints a line for each."""
    chosen = {}
    for key in cells:
        points = ended.get(key, [])
        best = tuning.best(points, spec.metric_format.higher_is_better, by_row=False)
        if best is None:
            print(f"{spec.name}: nothing chosen for {', '.join(key)}: runs have not ended, or all have diverged.",
                  file=sys.stderr)  # fmt: skip
            continue
        grid = SearchGrid(method=spec.row(key[0]).method_name, grid={"train.lr": (1.0,)})
        search = Search(spec, grid, options, {key: _split(cells, key)}, (), ())
        chosen[key] = tuned_cell(search, key, points, best, index.results, command)
        values = ", ".join(f"{name}={value}" for name, value in points[best].values.items())
        print(f"{', '.join(key)}: {values} (best of {len(points)} trials)")
    return chosen
