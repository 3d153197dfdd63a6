"""The runs of the selected tables, and carrying out what is missing of them."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmark.analyses import registry as analyses
from benchmark.cli.options import LaunchOptions, launcher_settings, tracking_settings
from benchmark.config.schema import RunConfig
from benchmark.errors import usable
from benchmark.experiments.plan import Cells, check, unique_runs
from benchmark.experiments.selection import TableQuery, find_tables, plan_tables
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import NoTable
from benchmark.launch import local
from benchmark.launch.drawing import Grid
from benchmark.launch.pool import LaunchError
from benchmark.launch.progress import Progress
from benchmark.launch.settings import LocalSettings
from benchmark.launch.slurm.overview import SHOWN_STATES
from benchmark.launch.slurm.packing import check_time, known_seconds
from benchmark.launch.slurm.queue import SlurmQueue
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.slurm.submissions import Cluster
from benchmark.launch.tasks import RUN_WORK, Task
from benchmark.launch.view import ProgressView
from benchmark.reports.render.console import TextConsole
from benchmark.runs.index import RunIndex
from benchmark.runs.lease import Busy
from benchmark.runs.status import RunState
from benchmark.runs.store import ResultsFolder
from benchmark.tracking import TrackedRun, tracking

Plans = Sequence[tuple[TableSpec, Cells]]
"""Tables, cut to the selected cells, with their runs."""

SHOWN = 20
"""Runs that ended badly that are told one by one."""


def in_words(counts: Mapping[RunState, int]) -> str:
    """Numbers of runs by state: ``4 done, 2 missing``. Nothing if there are none."""
    return ", ".join(f"{counts[state]} {state}" for state in SHOWN_STATES if counts.get(state))


def find_analyses(query: TableQuery) -> list[analyses.PaperTable]:
    """The selected tables that an analysis makes; none if a file, rows or columns are selected."""
    if any(given is not None for given in (query.name, query.rows, query.columns)):
        return []
    of_paper = [made for made in analyses.PAPER_TABLES if query.paper in (None, made.paper)]
    return [made for made in of_paper if query.table in (None, made.table)]


def plans_of(query: TableQuery, options: LaunchOptions | None = None) -> Plans:
    """The selected tables with their runs; none if an analysis makes all of them.

    If no table is named, one that cannot be planned is left out with a warning.
    """
    try:
        tables = find_tables(query)
    except NoTable:
        if not find_analyses(query):
            raise
        tables = []
    settings = run_settings(ResultsFolder(query.results, query.stale), options or LaunchOptions())
    is_named = any(given is not None for given in (query.paper, query.table, query.name))
    plans = usable(tables, lambda table: plan_tables([table], query, settings), lambda table: is_named)
    return [plan for (plan,) in plans]


def run_settings(results: ResultsFolder, options: LaunchOptions) -> dict[str, Any]:
    """Paths and runtime of runs. These settings are not part of a run's identity."""
    paths = {"results": str(results.root), "data": None if options.data is None else str(options.data)}
    runtime = {"threads": options.threads or 1, "device": options.device, "stale": results.stale}
    return {"paths": paths, "runtime": {**runtime, "cuda_graphs": bool(options.cuda_graphs)}}


def tracked_runs(plans: Iterable[tuple[TableSpec, Cells]], prefix: str = "") -> dict[str, TrackedRun]:
    """The runs of tables by key, grouped by the first table that has them and tagged with all.

    ``prefix`` is written before the name of the group.
    """
    tables: dict[str, dict[str, None]] = {}
    for spec, cells in plans:
        for key in unique_runs([cells]):
            tables.setdefault(key, {}).update({spec.name: None, spec.paper: None})
    return {key: TrackedRun(key, prefix + next(iter(names)), tuple(names)) for key, names in tables.items()}


@contextlib.contextmanager
def run_missing(
    options: LaunchOptions,
    index: RunIndex,
    plans: Plans,
    runs: Mapping[str, RunConfig] | None = None,
    prefix: str = "",
    seed_ended: Callable[[int], None] | None = None,
    names: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Carry out the runs that have not ended; gives exit code 0, 1 (a run failed) or 130 (stopped).

    Runs of tables are begun seed by seed: those of the first seed of all tables, then those of the second.
    Until the end of the ``with`` no other local launcher works on the results folder, and what is written is tracked.
    On a cluster the jobs track their runs, and only tables and figures are sent from here.

    Args:
        options: How to carry them out.
        index: Statuses of the results folder. Refreshed before and after.
        plans: The tables. Their rules, models and data are checked before the first run starts.
        runs: The runs by key, if they are not those of ``plans``.
        prefix: Written before the names of the groups in which the runs are tracked.
        names: What lines about runs call them, if not by their keys.
        seed_ended: Called by a local launch when all runs of a seed have ended and runs of other seeds have not.
    """
    if runs is None:
        planned = unique_runs([cells for _, cells in plans])
        runs = dict(sorted(planned.items(), key=lambda item: item[1].seed))
    tracked = {key: TrackedRun(key) for key in runs} | tracked_runs(plans, prefix)
    launcher = launcher_settings(options)
    on_cluster = isinstance(launcher, SlurmSettings)
    with (
        tracking(tracking_settings(options), index.results.root, [] if on_cluster else [*tracked.values()]),
        contextlib.nullcontext() if on_cluster else index.results.launcher_lease(),
    ):
        index.refresh(runs)
        code = 0
        if _missing(index, runs):
            from benchmark.runs.data import prepare_data  # with it torch

            for spec, cells in plans:
                check(spec, cells)
            prepare_data(_missing(index, runs))
            index.refresh(runs, data=True)  # the data may be others than those of finished runs
            view = _view(options, index, plans, runs, seed_ended, names or {})
            if isinstance(launcher, SlurmSettings):
                code = _cluster(options, launcher, index, list(runs.values()), tracked, view)
            else:
                code = _launch(options, launcher, _missing(index, runs), view)
            index.refresh(runs)
        yield code
        _set_damaged_aside(index, runs)
    if code == 130:
        _say_stopped(index, runs)


def _say_stopped(index: RunIndex, keys: Collection[str]) -> None:
    ended = sum(map(index.has_ended, keys))
    print(
        f"stopped: {ended} of {len(keys)} runs have ended. This goes on: {_this_command()}", file=sys.stderr
    )


def _set_damaged_aside(index: RunIndex, keys: Iterable[str]) -> None:
    """Make the next launch carry out again what a table has found damaged."""
    for key in index.problems.keys() & set(keys):
        with contextlib.suppress(Busy), index.results.run(key).lease():
            place = index.results.set_aside(key)
            print(f"{index.problems[key]} It is now in {place}.", file=sys.stderr)


def _missing(index: RunIndex, runs: Mapping[str, RunConfig]) -> list[RunConfig]:
    return [run for key, run in runs.items() if not index.has_ended(key)]


def _this_command() -> str:
    """The command that was given, with the interpreter as it is found from this folder."""
    python = os.path.relpath(sys.executable)
    python = sys.executable if python.startswith("..") else python
    return shlex.join([python, "-m", "benchmark", *sys.argv[1:]])


def _view(
    options: LaunchOptions,
    index: RunIndex,
    plans: Plans,
    runs: Mapping[str, RunConfig],
    seed_ended: Callable[[int], None] | None,
    names: Mapping[str, str],
) -> ProgressView:
    """What shows a launch on the standard output."""
    states = {key: index.state(key) if index.has_ended(key) else RunState.MISSING for key in runs}
    seeds = {key: run.seed for key, run in runs.items()}
    progress = Progress(index, states, seeds, {key: run.train.rounds for key, run in runs.items()})
    return ProgressView(
        progress,
        TextConsole(),
        _grids(plans, runs),
        verbose=options.verbose,
        seed_ended=seed_ended,
        names=names,
    )


def _grids(plans: Plans, runs: Mapping[str, RunConfig]) -> list[Grid]:
    """The tables with those of their runs that are in ``runs``. Parts of one table are put together."""
    grids: dict[str, Grid] = {}
    for spec, cells in plans:
        grid = grids.setdefault(spec.name, Grid(spec.name))
        for (row, column), cell in cells.items():
            grid.rows[row], grid.columns[column] = spec.row(row).label, spec.column(column).label
            keys = grid.cells.setdefault((row, column), {})
            keys.update(dict.fromkeys(run.key for run in cell.runs if run.key in runs))
    return list(grids.values())


def _launch(
    options: LaunchOptions, settings: LocalSettings, runs: Sequence[RunConfig], view: ProgressView
) -> int:
    tasks = _tasks(runs, settings.name)
    given: dict[str, Any] = {"workers": options.workers, "threads": options.threads}
    if options.device != "auto" and settings.name == "local":
        given["devices"] = (options.device,)
    settings = settings.model_copy(update={key: value for key, value in given.items() if value is not None})
    try:
        with view:
            outcomes = local.launch(tasks, RUN_WORK, settings, listener=view)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    bad = [outcome for outcome in outcomes if outcome.state in (RunState.FAILED, RunState.RUNNING)]
    again = [outcome for outcome in outcomes if outcome.state is RunState.DONE and outcome.message]
    for outcome in [*bad[:SHOWN], *again[:SHOWN]]:
        print(f"{outcome.state}: {outcome.key}: {outcome.message}", file=sys.stderr)
    if any(outcome.state is RunState.INTERRUPTED for outcome in outcomes) or len(outcomes) < len(tasks):
        return 130
    return 1 if bad else 0


def _cluster(
    options: LaunchOptions,
    settings: SlurmSettings,
    index: RunIndex,
    runs: Sequence[RunConfig],
    tracked: Mapping[str, TrackedRun],
    view: ProgressView,
) -> int:
    """Submit what neither ended nor lives, and follow it; exit code 0, 1 (not all have ended), 130 (left alone)."""
    results = index.results
    queue = SlurmQueue(settings, results.root / "launcher" / "jobs")
    intervals = {run.key: min(1.0, run.runtime.checkpoint_every / run.train.rounds) for run in runs}
    check_time(settings, intervals, known_seconds(index))
    tasks = _tasks(runs, "local")
    tracker = partial(tracking, tracking_settings(options), results.root.absolute())
    cluster = Cluster(
        index, queue, settings, RUN_WORK, lambda keys: partial(tracker, [tracked[key] for key in keys])
    )
    number = cluster.submit(tasks)
    print(f"{number} of {len(tasks)} runs submitted; logs: {queue.folder}/")
    if settings.detach:
        print("the same command shows how far they are, submits what is missing, and writes the tables")
        return 0
    try:
        with view:
            lost = cluster.follow(tasks, view.show)
    except KeyboardInterrupt:
        print("left alone: what was submitted goes on", file=sys.stderr)
        return 130
    for run in lost[:SHOWN]:
        print(f"{run.state}: {run.key}: {run.message}", file=sys.stderr)
    if len(lost) > SHOWN:
        print(f"and {len(lost) - SHOWN} more: python -m benchmark status", file=sys.stderr)
    return 1 if lost else 0


def _tasks(runs: Sequence[RunConfig], launcher: str) -> list[Task]:
    tasks = []
    for run in runs:
        plain = run.model_dump(mode="json")
        if launcher == "local" and run.runtime.device.startswith("cuda:"):
            plain["runtime"]["device"] = "cuda"  # a worker sees only its own GPU
        tasks.append(Task(run.key, plain))
    return tasks
