"""``python -m benchmark run``: one run in this process, or with -m every combination through a launcher."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from benchmark.cli.launching import SHOWN, launcher_lock, run_missing
from benchmark.cli.options import LaunchOptions, launcher_kind
from benchmark.cli.options import parse as parse_options
from benchmark.cli.overrides import CHOICES, composed, configurations, parse
from benchmark.cli.tracking import settings_of
from benchmark.config.compose import group_names
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, wrong
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.runs.store import Results
from benchmark.tracking.process import tracking
from benchmark.tracking.settings import TrackedRun

MANY, HELP, SHOW = {"-m", "--multirun"}, {"-h", "--help"}, {"-c", "--cfg"}

USAGE = """usage: python -m benchmark run [GROUP=NAME ...] [KEY=VALUE ...] [+KEY=VALUE ...] [~KEY ...]

  -m, --multirun        one run for every combination of the values a,b  range(0,3)  glob(fed*)
  launcher=local|inline|slurm|FILE of conf/launcher, launcher.KEY=VALUE, workers=NUMBER   with -m
  tracking=off|wandb, tracking.KEY=VALUE
  -c job, --cfg job     print the configuration and run nothing

Groups:
"""


def main(words: Sequence[str]) -> int:
    """Carry out one run or, with -m, many; exit code 0, 1 (a run failed), 2 (user's mistake) or 130 (stopped)."""
    flags = [word for word in words if word.startswith("-") and "=" not in word]
    unknown = [flag for flag in flags if flag not in MANY | HELP | SHOW]
    if unknown:
        raise ConfigError(wrong("run", unknown[0], "-m, --cfg job or --help"))
    many = bool(MANY & set(flags))
    ours = [word for word in words if _option_of(word) in ("launcher", "workers", "tracking")]
    rest = [word for word in words if word not in (*flags, *ours)]
    if HELP & set(flags):
        print(USAGE + "".join(f"{group}: {', '.join(group_names(group))}\n" for group in CHOICES))
        print("Keys of this choice:")
    if (HELP | SHOW) & set(flags):
        changes = parse([word for word in rest if word != "job"])
        print(yaml.safe_dump(composed(changes), sort_keys=False), end="")
        return 0
    options = parse_options(ours, "run", LaunchOptions)
    if not many and {"launcher", "workers"} & {_option_of(word) for word in ours}:
        raise ConfigError(
            "run: a launcher carries out the runs of a sweep. Put -m behind `run`, or leave it out."
        )
    configs = configurations(rest, many)
    if many:
        return _sweep(options, list(configs.values()))
    return _one(options, next(iter(configs.values())))


def _option_of(word: str) -> str:
    """``launcher`` of ``launcher.time=2``."""
    return word.partition("=")[0].partition(".")[0]


# One run ---------------------------------------------------------------------------------------------------------


def _one(options: LaunchOptions, config: RunConfig) -> int:
    from benchmark.launch.tasks import StopRequest, signals_request_stop
    from benchmark.runs.execute import execute

    tracked = [TrackedRun(config.key)]
    progress = _print_progress if sys.stdout.isatty() else lambda round, rounds: None
    with contextlib.ExitStack() as stack:
        stack.enter_context(tracking(settings_of(options), Path(config.paths.results), tracked))
        stop = stack.enter_context(contextlib.closing(StopRequest()))
        stack.enter_context(signals_request_stop(stop))
        stack.enter_context(stop.raising())
        state, message = execute(config, progress, lambda: stop.reason is not None)
    if state is RunState.RUNNING:
        raise ConfigError(message)
    _print_result(config, RunIndex(Results(Path(config.paths.results))))
    return 130 if state is RunState.INTERRUPTED else int(state is RunState.FAILED)


def _print_progress(round: int, rounds: int) -> None:
    print(f"\rround {round}/{rounds}", end="\n" if round == rounds else "", flush=True)


def _print_result(config: RunConfig, index: RunIndex) -> None:
    """Say how a run ended, and print its last evaluation."""
    status = index.status(config.key)
    state = status.state if status is not None else RunState.MISSING
    message = f" ({status.message})" if status is not None and status.message else ""
    print(f"{state}: {index.results.root}/runs/{config.key}{message}")
    for split, metrics in (status.final if status is not None else {}).items():
        print(f"  {split}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))


# Many runs -------------------------------------------------------------------------------------------------------


def _sweep(options: LaunchOptions, configs: Sequence[RunConfig]) -> int:
    """Carry out what is missing of many runs, through the launcher of the tables."""
    paths, runtime = configs[0].paths, configs[0].runtime
    if any((config.paths, config.runtime) != (paths, runtime) for config in configs):
        raise ConfigError("run: paths and runtime are the same for all runs of a sweep; give each one value.")
    results = Results(Path(paths.results)).open()
    runs = {config.key: config for config in configs}
    options = replace(options, threads=runtime.threads, device=runtime.device)
    index = RunIndex(results)
    tracked = [TrackedRun(run.key) for run in runs.values()]
    elsewhere = launcher_kind(options) == "slurm"
    with (
        tracking(settings_of(options), results.root, [] if elsewhere else tracked),
        launcher_lock(options, results),
    ):
        code = run_missing(options, index, runs, tracked=tracked)
    for run in list(runs.values())[:SHOWN]:
        _print_result(run, index)
    counts = [
        f"{number} {state}"
        for state in RunState
        if (number := sum(index.state(key) == state for key in runs))
    ]
    print(f"{len(runs)} runs: {', '.join(counts)}")
    return code
