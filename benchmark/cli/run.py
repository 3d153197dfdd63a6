"""``python -m benchmark run``: one run in this process, or with -m every combination through a launcher."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.cli.launching import in_words, run_missing, tracker
from benchmark.cli.options import LaunchOptions, parse
from benchmark.cli.overrides import configuration, plain_configuration, sweep
from benchmark.config.compose import CHOICES, as_yaml, explained_yaml, group_names
from benchmark.config.schema import RunConfig, declared_settings
from benchmark.engine.records import Record
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.plan import check_run
from benchmark.experiments.sweeps import METRIC, Sweep
from benchmark.launch.launch import run_here
from benchmark.launch.progress import LINE_SECONDS, duration, say
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunResult, RunState

if TYPE_CHECKING:
    from benchmark.runs.execute import Progress

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
        return _sweep(options, sweep(rest), rest)
    if {"launcher", "workers", VERBOSE} & {_option_of(word) for word in ours}:
        raise ConfigError(
            f"run: launcher, workers and {VERBOSE} are for sweeps. Put -m behind `run`, or leave them out."
        )
    return _one(options, configuration(rest))


def _option_of(word: str) -> str:
    """``launcher`` of ``launcher.time=2``."""
    return word.partition("=")[0].partition(".")[0]


def _one(options: LaunchOptions, config: RunConfig) -> int:
    result = carry_out(options, config, RoundLines())
    print(
        f"{result.state}: {config.paths.results}/runs/{config.key}{': ' * bool(result.message)}{result.message}"
    )
    found = RunIndex(ResultsFolder(Path(config.paths.results), config.runtime.stale)).result(config.key)
    for split, metrics in (found.final if found is not None else {}).items():
        print(f"  {split}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    return 130 if result.state is RunState.MISSING else int(result.state is RunState.FAILED)


def carry_out(options: LaunchOptions, config: RunConfig, progress: Progress) -> RunResult:
    """Carry out one run in this process.

    Raises:
        ConfigError: A setting names what does not exist, or another process works on the run. No folder is made.
        UserError: The run failed because of a user's mistake.
    """
    check_run(config)
    index = RunIndex(ResultsFolder(Path(config.paths.results), config.runtime.stale).open())
    return run_here(index, config, progress, tracker(options, index.results.root))


class RoundLines:
    """Prints rounds as they end: on a terminal all of them, in place; elsewhere one now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds."""
        self.clock, self.is_terminal = clock, sys.stdout.isatty()
        self.began = self.told = clock()
        self.first: int | None = None
        self.values: dict[str, float] = {}

    def __call__(self, round: int, rounds: int, records: Sequence[Record]) -> None:
        """Take what a round recorded."""
        shown = {("train", "loss"): "loss", ("test", METRIC): f"test {METRIC}"}
        for record in records:
            if record.group == "all" and (record.split, record.metric) in shown:
                self.values[shown[record.split, record.metric]] = record.value
        if self.first is None:  # what an earlier process did took no time of this one
            self.began, self.first = self.clock(), round
            return
        now = self.clock()
        parts = [f"{name} {value:.4f}" for name, value in self.values.items()]
        if round < rounds:
            left = (rounds - round) * (now - self.began) / (round - self.first)
            parts.append(f"about {duration(left)} left")
        line = f"round {round}/{rounds}: {', '.join(parts)}"
        if self.is_terminal:
            print(f"\r{line}\033[K", end="\n" if round == rounds else "", flush=True)
        elif now - self.told >= LINE_SECONDS:
            self.told = now
            say(line)


def _sweep(options: LaunchOptions, swept: Sweep, words: Sequence[str]) -> int:
    """Carry out what is missing of a sweep, and write and print its table."""
    with sweep_missing(options, swept) as (index, code):
        from benchmark.reports import sweeps, write

        table, where = sweeps.write_sweep(swept, words, index)
        write.show(table)
        print(where)
        counts = Counter(index.state(run.config.key) for run in swept.runs)
        print(f"{counts.total()} runs: {in_words(counts)}")
    return code


@contextlib.contextmanager
def sweep_missing(options: LaunchOptions, swept: Sweep) -> Iterator[tuple[RunIndex, int]]:
    """Carry out what is missing of a sweep through the launcher of the tables; gives the runs and the exit code."""
    configs = [run.config for run in swept.runs]
    paths, runtime = configs[0].paths, configs[0].runtime
    if any((config.paths, config.runtime) != (paths, runtime) for config in configs):
        raise ConfigError("run: paths and runtime are the same for all runs of a sweep; give each one value.")
    options = options.model_copy(update={"threads": runtime.threads, "device": runtime.device})
    index = RunIndex(ResultsFolder(Path(paths.results), runtime.stale).open())
    names = {run.config.key: run.name for run in swept.runs}
    with run_missing(options, index, [swept.table()], names=names) as code:
        yield index, code
