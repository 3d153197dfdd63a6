"""The runs of the selected tables, and carrying out what is missing of them."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.commands.options import LaunchOptions, launcher_settings, tracking_settings
from benchmark.config.schema import RunConfig
from benchmark.errors import usable
from benchmark.experiments import estimate
from benchmark.experiments.plan import Cells, check, unique_runs
from benchmark.experiments.selection import TableQuery, find_tables, plan_table
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import NoTable
from benchmark.launch import launch, slurm
from benchmark.launch.progress import Following
from benchmark.launch.settings import SlurmSettings
from benchmark.papers import registry
from benchmark.paths import conf_files
from benchmark.reports.render.console import TextConsole
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.tracking import Wandb

Plans = Sequence[tuple[TableSpec, Cells]]
"""Tables, cut to the selected cells, with their runs."""


def in_words(counts: Mapping[RunState, int]) -> str:
    """Numbers of runs by state: ``4 done, 2 missing``. Nothing if there are none."""
    return ", ".join(f"{counts[state]} {state}" for state in RunState if counts.get(state))


def find_analyses(query: TableQuery) -> dict[str, tuple[str, str] | None]:
    """The analyses that make selected tables, with the (file of conf/table, column) whose runs each reads, if any.

    None if rows or columns of the tables of a paper are selected or changed.
    """
    if query.name is not None:
        if query.name in conf_files("table"):
            return {}
        made = [m for m in registry.PAPER_TABLES if query.name in (m.analysis, f"{m.paper}_table{m.table}")]
        if not made and query.name in {analysis.name for analysis in registry.ANALYSES}:
            return {query.name: None}
    elif query.cuts:
        return {}
    else:
        made = [
            m
            for m in registry.PAPER_TABLES
            if query.paper in (None, m.paper) and query.table in (None, m.table)
        ]
    return {m.analysis: m.runs_of for m in made}


def plans_of(query: TableQuery, options: LaunchOptions | None = None) -> Plans:
    """The selected tables with their runs; none if analyses make all of them.

    If no table is named, one that cannot be planned is left out with a warning.
    """
    try:
        tables = [] if query.name is not None and find_analyses(query) else find_tables(query)
    except NoTable:
        if not find_analyses(query):
            raise
        tables = []
    settings = run_settings(ResultsFolder(query.results, query.stale), options or LaunchOptions())
    is_named = any(given is not None for given in (query.paper, query.table, query.name))
    return usable(tables, lambda table: plan_table(table, query, settings), lambda table: is_named)


def run_settings(results: ResultsFolder, options: LaunchOptions) -> dict[str, Any]:
    """Paths and runtime of runs. These settings are not part of a run's identity."""
    paths = {"results": str(results.root), "data": None if options.data is None else str(options.data)}
    runtime = {"threads": options.threads or 1, "device": options.device, "stale": results.stale}
    return {"paths": paths, "runtime": {**runtime, "cuda_graphs": bool(options.cuda_graphs)}}


def tracker(options: LaunchOptions, root: Path, plans: Plans = (), prefix: str = "") -> Wandb | None:
    """W&B, if it is asked for. ``prefix`` is written before the names of the tables by which runs are grouped."""
    settings = tracking_settings(options)
    if not settings.active:
        return None
    groups: dict[str, dict[str, None]] = {}
    for spec, cells in plans:
        for key in unique_runs([cells]):
            groups.setdefault(key, {}).update({f"{prefix}{spec.name}": None, spec.paper: None})
    tables = {key: tuple(names) for key, names in groups.items()}
    return Wandb(settings=settings, root=root.absolute(), groups=tables)


def track_files(options: LaunchOptions, root: Path, kind: str, preset: str, places: Iterable[Path]) -> None:
    """Send tables or figures to W&B, if it is asked for; ``places`` are their files without the ending."""
    wandb = tracker(options, root)
    if wandb is not None:
        for place in places:
            wandb.send_files(kind, preset, sorted(place.parent.glob(f"{place.name}.*")))


def remember_rates(index: RunIndex, runs: Sequence[RunConfig]) -> None:
    """Note how fast those of these runs were that are finished now, for later plans."""
    made = [(run, result) for run in runs if (result := index.result(run.key)) is not None]
    estimate.remember(made, index.results.root / "rates.json")


@contextlib.contextmanager
def run_missing(
    options: LaunchOptions,
    index: RunIndex,
    plans: Plans,
    prefix: str = "",
    seed_ended: Callable[[int], None] | None = None,
    names: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Carry out the runs that have not ended; gives exit code 0, 1 (a run failed) or 130 (stopped).

    Runs of tables are begun seed by seed: those of the first seed of all tables, then those of the second.

    Args:
        options: How to carry them out.
        index: Results of the results folder. Refreshed before and after.
        plans: The tables. Their rules, models and data are checked before the first run starts.
        prefix: Written before the names of the groups in which the runs are tracked.
        names: What lines about runs call them, if not by their keys.
        seed_ended: Called by a launch when all runs of a seed have ended and runs of other seeds have not.
    """
    planned = unique_runs([cells for _, cells in plans])
    runs = dict(sorted(planned.items(), key=lambda item: item[1].seed))
    index.refresh(runs)
    code = 0
    if _missing(index, runs):
        from benchmark.runs.data import prepare_data  # with it torch

        for spec, cells in plans:
            check(spec, cells)
        prepare_data(_missing(index, runs))
        index.refresh(runs, data=True)  # the data may be others than those of finished runs
        launch.move_others(index, runs)
        following = Following(
            index, runs, TextConsole(), verbose=options.verbose, seed_ended=seed_ended, names=names
        )
        begun = _missing(index, runs)
        code = _carry_out(options, following, tracker(options, index.results.root, plans, prefix))
        index.refresh(runs)
        remember_rates(index, begun)
    yield code
    launch.move_others(index, runs.keys() & index.problems.keys())  # only reading the records has shown it
    if code == 130:
        ended, command = sum(map(index.has_ended, runs)), ["python", "-m", "benchmark", *sys.argv[1:]]
        what = f"{ended} of {len(runs)} runs have ended. This goes on: {shlex.join(command)}"
        print(f"stopped: {what}", file=sys.stderr)


def _carry_out(options: LaunchOptions, following: Following, wandb: Wandb | None) -> int:
    runs = list(following.open.values())
    settings = launcher_settings(options.launcher, options.launcher_settings)
    if isinstance(settings, SlurmSettings):
        return slurm.carry_out(following, runs, settings, wandb)
    given: dict[str, Any] = {"workers": options.workers, "threads": options.threads}
    if options.device != "auto" and settings.name == "local":
        given["devices"] = (options.device,)
    given = {key: value for key, value in given.items() if value is not None}
    return launch.carry_out(following, runs, settings.model_copy(update=given), wandb)


def _missing(index: RunIndex, runs: Mapping[str, RunConfig]) -> list[RunConfig]:
    return [run for key, run in runs.items() if not index.has_ended(key)]
