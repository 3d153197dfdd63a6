"""Running what is missing of a set of planned runs, for every command that needs finished runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmark.cli.arguments import launcher_kind, positive, settings_of_group
from benchmark.config.schema import RunConfig
from benchmark.experiments.plan import prepare_data
from benchmark.runs.status import RunState
from benchmark.runs.store import Results

if TYPE_CHECKING:
    from benchmark.launch.slurm.submissions import Cluster
    from benchmark.launch.tasks import Task
    from benchmark.tracking.settings import TrackedRun

SHOWN = 20
"""Runs that ended badly that are told one by one."""

LAUNCH_OPTIONS = {
    "launcher": "local|inline|slurm|FILE of conf/launcher",
    "launcher.KEY": "VALUE of conf/launcher",
    "workers": "NUMBER",
    "threads": "NUMBER",
    "device": "auto|cpu|cuda",
    "data": "FOLDER",
}
"""What the command line may say about how runs are carried out."""


def settings_of_runs(values: Mapping[str, str]) -> dict[str, Any]:
    """Paths and runtime from the command line: settings that are no part of a run's identity."""
    threads = positive(values, "threads") or 1
    paths: dict[str, Any] = {"results": values.get("results", "results"), "data": values.get("data")}
    return {"paths": paths, "runtime": {"threads": threads, "device": values.get("device", "auto")}}


def run_missing(
    values: Mapping[str, str],
    results: Results,
    runs: Mapping[str, RunConfig],
    check: Callable[[], None],
    tracked: Sequence[TrackedRun] = (),
) -> int:
    """Carry out the runs that have not ended; exit code 0, 1 (a run failed) or 130 (stopped).

    ``check`` is called before the first of them starts, and not at all where nothing is missing; ``tracked`` is how the
    jobs of a cluster describe the runs that they track.
    """
    missing = [run for run in runs.values() if not ended(results, run)]
    if not missing:
        return 0
    check()
    if launcher_kind(values) == "slurm":
        return _cluster(values, results, list(runs.values()), tracked)
    return _launch(values, missing, len(runs) - len(missing))


def launcher_lock(values: Mapping[str, str], results: Results) -> contextlib.AbstractContextManager[object]:
    """The right to launch runs of a results folder: one local launcher at a time, clusters as many as there are."""
    return contextlib.nullcontext() if launcher_kind(values) == "slurm" else results.launcher_lease()


def ended(results: Results, run: RunConfig) -> bool:
    """Whether a run has ended (done or diverged) and its folder is complete."""
    folder = results.run(run.key)
    status = folder.status()
    return status is not None and status.ended and folder.complete(status)


def _launch(values: Mapping[str, str], runs: Sequence[RunConfig], already: int) -> int:
    from benchmark.launch.local import launch
    from benchmark.launch.pool import LaunchError
    from benchmark.launch.progress import ProgressView
    from benchmark.launch.tasks import RUN_WORK, Task
    from benchmark.runs.build import get_weights
    from benchmark.runs.data import get_data

    settings = settings_of_group("launcher", values, "local")
    prepare_data(runs, get_data, get_weights)
    settings |= {
        key: number for key in ("workers", "threads") if (number := positive(values, key)) is not None
    }
    device = values.get("device", "auto")
    if device != "auto" and settings["name"] == "local":
        settings["devices"] = [device]
    tasks = [Task(run.key, run.train.rounds, _payload(run, settings["name"])) for run in runs]
    try:
        outcomes = launch(
            tasks,
            RUN_WORK,
            kind=settings["name"],
            workers=settings.get("workers"),
            threads=settings.get("threads") or 1,
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
    values: Mapping[str, str], results: Results, runs: Sequence[RunConfig], tracked: Sequence[TrackedRun]
) -> int:
    """Submit what neither ended nor lives, and look after it; exit code 0, 1 (not all have ended), 130 (left alone)."""
    from benchmark.cli.tracking import settings_of
    from benchmark.launch.slurm.queue import Slurm, SlurmSettings
    from benchmark.launch.slurm.submissions import Cluster, check_time, known_seconds
    from benchmark.launch.tasks import RUN_WORK, Task
    from benchmark.runs.build import get_weights
    from benchmark.runs.data import get_data

    settings = SlurmSettings.of(settings_of_group("launcher", values, "slurm"))
    queue = Slurm(settings, results.root / "launcher" / "jobs")
    intervals = {run.key: min(1.0, run.runtime.checkpoint_every / run.train.rounds) for run in runs}
    check_time(settings, intervals, known_seconds(results))
    prepare_data(runs, get_data, get_weights)
    plan = (settings_of(values), {run.key: run for run in tracked})
    cluster = Cluster(results, queue, settings, RUN_WORK, queue.folder, plan)
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
