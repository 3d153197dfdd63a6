"""Running what is missing of a set of planned runs, for every command that needs finished runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.cli.options import LaunchOptions, group_settings, launcher_kind
from benchmark.cli.tracking import settings_of
from benchmark.config.schema import RunConfig
from benchmark.experiments.plan import prepare_data
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.runs.store import Results

if TYPE_CHECKING:
    from benchmark.launch.slurm.submissions import Cluster
    from benchmark.launch.tasks import Task
    from benchmark.tracking.settings import TrackedRun

SHOWN = 20
"""Runs that ended badly that are told one by one."""


def run_settings(results: Path, options: LaunchOptions) -> dict[str, Any]:
    """Paths and runtime of runs. These settings are not part of a run's identity."""
    paths = {"results": str(results), "data": None if options.data is None else str(options.data)}
    return {"paths": paths, "runtime": {"threads": options.threads or 1, "device": options.device}}


def run_missing(
    options: LaunchOptions,
    index: RunIndex,
    runs: Mapping[str, RunConfig],
    check: Callable[[], None] = lambda: None,
    tracked: Sequence[TrackedRun] = (),
) -> int:
    """Carry out the runs that have not ended; exit code 0, 1 (a run failed) or 130 (stopped).

    Args:
        options: How to carry them out.
        index: Statuses of the results folder. Refreshed before and after.
        runs: The runs by key.
        check: Called before the first run starts, and not at all if no run is missing.
        tracked: How the jobs of a cluster describe the runs that they track.
    """
    index.refresh(runs)
    missing = [run for key, run in runs.items() if not index.has_ended(key)]
    if not missing:
        return 0
    check()
    try:
        if launcher_kind(options) == "slurm":
            return _cluster(options, index.results, list(runs.values()), tracked)
        return _launch(options, missing, len(runs) - len(missing))
    finally:
        index.refresh(runs)


def launcher_lock(options: LaunchOptions, results: Results) -> contextlib.AbstractContextManager[object]:
    """The right to launch runs of a results folder: one local launcher at a time, clusters as many as there are."""
    return contextlib.nullcontext() if launcher_kind(options) == "slurm" else results.launcher_lease()


def _launch(options: LaunchOptions, runs: Sequence[RunConfig], already: int) -> int:
    from benchmark.launch.local import launch
    from benchmark.launch.pool import LaunchError
    from benchmark.launch.progress import ProgressView
    from benchmark.launch.tasks import RUN_WORK, Task
    from benchmark.runs.build import get_weights
    from benchmark.runs.data import get_data

    settings = group_settings("launcher", options.launcher, options.launcher_settings)
    prepare_data(runs, get_data, get_weights)
    if options.device != "auto" and settings["name"] == "local":
        settings["devices"] = [options.device]
    tasks = [Task(run.key, run.train.rounds, _payload(run, settings["name"])) for run in runs]
    try:
        outcomes = launch(
            tasks,
            RUN_WORK,
            kind=settings["name"],
            workers=options.workers or settings.get("workers"),
            threads=options.threads or settings.get("threads") or 1,
            devices=settings.get("devices"),
            grace=settings.get("grace", 30.0),
            listener=ProgressView(already),
        )
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    bad = [outcome for outcome in outcomes if outcome.state in (RunState.FAILED, RunState.RUNNING)]
    for outcome in bad[:SHOWN]:
        print(f"{outcome.state}: {outcome.key}: {outcome.message}", file=sys.stderr)
    if any(outcome.state is RunState.INTERRUPTED for outcome in outcomes) or len(outcomes) < len(tasks):
        print("stopped; the same command goes on where it was", file=sys.stderr)
        return 130
    return 1 if bad else 0


def _cluster(
    options: LaunchOptions, results: Results, runs: Sequence[RunConfig], tracked: Sequence[TrackedRun]
) -> int:
    """Submit what neither ended nor lives, and look after it; exit code 0, 1 (not all have ended), 130 (left alone)."""
    from benchmark.launch.slurm.packing import check_time, known_seconds
    from benchmark.launch.slurm.queue import SlurmQueue
    from benchmark.launch.slurm.settings import SlurmSettings
    from benchmark.launch.slurm.submissions import Cluster
    from benchmark.launch.tasks import RUN_WORK, Task
    from benchmark.runs.build import get_weights
    from benchmark.runs.data import get_data

    settings = SlurmSettings.of(group_settings("launcher", options.launcher, options.launcher_settings))
    queue = SlurmQueue(settings, results.root / "launcher" / "jobs")
    intervals = {run.key: min(1.0, run.runtime.checkpoint_every / run.train.rounds) for run in runs}
    check_time(settings, intervals, known_seconds(results))
    prepare_data(runs, get_data, get_weights)
    plan = (settings_of(options), {run.key: run for run in tracked})
    cluster = Cluster(results, queue, settings, RUN_WORK, plan)
    tasks = [Task(run.key, run.train.rounds, _payload(run, "local")) for run in runs]
    number = cluster.submit(tasks)
    print(f"{number} of {len(tasks)} runs submitted; logs: {queue.folder}/")
    if settings.detach:
        print("the same command shows how far they are, submits what is missing, and writes the tables")
        return 0
    return _follow(cluster, tasks)


def _follow(cluster: Cluster, tasks: Sequence[Task]) -> int:
    from benchmark.launch.watch import view

    try:
        with view() as shown:
            lost = cluster.follow(tasks, shown)
    except KeyboardInterrupt:
        print(
            "left alone: what was submitted goes on; the same command looks after it again", file=sys.stderr
        )
        return 130
    for run in lost[:SHOWN]:
        print(f"{run.state}: {run.key}: {run.why}", file=sys.stderr)
    if len(lost) > SHOWN:
        print(f"and {len(lost) - SHOWN} more: python -m benchmark status", file=sys.stderr)
    return 1 if lost else 0


def _payload(run: RunConfig, launcher: str) -> dict[str, Any]:
    """The run as plain values; a local worker sees only its own GPU, so which one is the launcher's business."""
    plain = run.model_dump(mode="json")
    if launcher == "local" and plain["runtime"]["device"].startswith("cuda:"):
        plain["runtime"]["device"] = "cuda"
    return plain
