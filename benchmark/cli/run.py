"""``python -m benchmark run``: one run in this process, or with -m every combination through a launcher."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmark.cli.launching import SHOWN, in_words, run_missing
from benchmark.cli.options import LaunchOptions, parse, tracking_settings
from benchmark.cli.overrides import configurations, plain_configuration
from benchmark.config.compose import CHOICES, as_yaml, explained_yaml, group_names
from benchmark.config.schema import RunConfig, declared_settings
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.plan import check_names
from benchmark.launch.tasks import StopRequest, say, signals_request_stop
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.runs.store import ResultsFolder
from benchmark.tracking import TrackedRun, tracking

MANY, HELP, SHOW, VERBOSE = {"-m", "--multirun"}, {"-h", "--help"}, {"-c", "--cfg"}, "--verbose"

USAGE = """usage: python -m benchmark run [GROUP=NAME ...] [KEY=VALUE ...] [+KEY=VALUE ...] [~KEY ...]

  -m, --multirun        one run for every combination of the values a,b  range(0,3)  glob(fed*)
  launcher=local|inline|slurm|FILE of conf/launcher, launcher.KEY=VALUE, workers=NUMBER   with -m
  --verbose             a line for each run, with -m
  tracking=off|wandb, tracking.KEY=VALUE
  results=FOLDER, data=FOLDER, device=NAME, threads=NUMBER, stale=rerun|keep   as of the other commands
  -c job, --cfg job     print the configuration and what set each value, and run nothing

Groups:
"""


def main(words: Sequence[str]) -> int:
    """Carry out one run or, with -m, many; exit code 0, 1 (a run failed), 2 (user's mistake) or 130 (stopped)."""
    flags = {word for word in words if word.startswith("-") and "=" not in word}
    unknown = sorted(flags - MANY - HELP - SHOW - {VERBOSE})
    if unknown:
        raise ConfigError(wrong("run", unknown[0], f"-m, --cfg job, {VERBOSE} or --help"))
    ours = [word for word in words if _option_of(word) in ("launcher", "workers", "tracking", VERBOSE)]
    rest = [word for word in words if word not in flags and word not in ours]
    if HELP & flags:
        print(USAGE + "".join(f"{group}: {', '.join(group_names(group))}\n" for group in CHOICES))
    if (HELP | SHOW) & flags:
        plain = plain_configuration([word for word in rest if word != "job"])
        meanings = {key: field.description or "" for key, field, _ in declared_settings()}
        print("\n".join(as_yaml(plain, meanings)) if HELP & flags else explained_yaml(plain))
        return 0
    options = parse(ours, "run", LaunchOptions)
    if MANY & flags:
        return _sweep(options, configurations(rest, many=True))
    if {"launcher", "workers", VERBOSE} & {_option_of(word) for word in ours}:
        raise ConfigError(
            f"run: launcher, workers and {VERBOSE} are for sweeps. Put -m behind `run`, or leave them out."
        )
    (config,) = configurations(rest, many=False)
    return _one(options, config)


def _option_of(word: str) -> str:
    """``launcher`` of ``launcher.time=2``."""
    return word.partition("=")[0].partition(".")[0]


def _one(options: LaunchOptions, config: RunConfig) -> int:
    check_names(config)
    from benchmark.runs.execute import execute

    results = Path(config.paths.results)
    progress = _print_progress if sys.stdout.isatty() else lambda round, rounds: None
    stop = StopRequest()
    with (
        tracking(tracking_settings(options), results, [TrackedRun(config.key)]),
        signals_request_stop(stop, raises=True),
    ):
        state, message, _ = execute(config, progress, lambda: stop.reason is not None)
    if state is RunState.RUNNING:
        raise ConfigError(message)
    if state is RunState.DONE and message:
        print(message, file=sys.stderr)
    _print_result(config, RunIndex(ResultsFolder(results, config.runtime.stale)))
    return 130 if state is RunState.INTERRUPTED else int(state is RunState.FAILED)


def _print_progress(round: int, rounds: int) -> None:
    say(f"round {round}/{rounds}", end="\n" if round == rounds else "\r")


def _print_result(config: RunConfig, index: RunIndex) -> None:
    """Say how a run ended, and print its last evaluation."""
    status = index.status(config.key)
    state = status.state if status is not None else RunState.MISSING
    message = f" ({status.message})" if status is not None and status.message else ""
    print(f"{state}: {index.results.root}/runs/{config.key}{message}")
    for split, metrics in (status.final if status is not None else {}).items():
        print(f"  {split}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))


def _sweep(options: LaunchOptions, configs: Sequence[RunConfig]) -> int:
    """Carry out what is missing of many runs, through the launcher of the tables."""
    paths, runtime = configs[0].paths, configs[0].runtime
    if any((config.paths, config.runtime) != (paths, runtime) for config in configs):
        raise ConfigError("run: paths and runtime are the same for all runs of a sweep; give each one value.")
    runs = {config.key: config for config in configs}
    options = options.model_copy(update={"threads": runtime.threads, "device": runtime.device})
    index = RunIndex(ResultsFolder(Path(paths.results), runtime.stale).open())
    with run_missing(options, index, (), runs) as code:
        for run in list(runs.values())[:SHOWN]:
            _print_result(run, index)
        print(f"{len(runs)} runs: {in_words(Counter(map(index.state, runs)))}")
    return code
