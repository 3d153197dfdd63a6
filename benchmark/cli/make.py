"""The commands that make something: run, table, figure, tune, report."""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

import yaml

from benchmark import api
from benchmark.cli.options import parse
from benchmark.commands.figures import FigureOptions
from benchmark.commands.launching import in_words
from benchmark.commands.options import LaunchOptions
from benchmark.commands.report import ReportOptions
from benchmark.commands.tables import TableOptions
from benchmark.commands.tuning import TuneOptions
from benchmark.config.compose import CHOICES, configured, group_names, with_selection
from benchmark.config.merge import flat
from benchmark.config.schema import declared_settings
from benchmark.engine.records import Record
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.sweeps import METRIC
from benchmark.launch.progress import LINE_SECONDS, duration, say
from benchmark.runs.listing import as_text
from benchmark.runs.status import RunState

FLAGS = {"-m": "many", "--multirun": "many", "-h": "help", "--help": "help", "-c": "show", "--cfg": "show"}

USAGE = """usage: python -m benchmark run [GROUP=NAME ...] [KEY=VALUE ...] [+KEY=VALUE ...] [~KEY ...]

  -m, --multirun        one run for every combination of the values a,b  range(0,3)  glob(fed*)
  launcher=local|inline|slurm|FILE of conf/launcher, launcher.KEY=VALUE, workers=NUMBER   with -m
  --verbose             a line for each run, with -m
  tracking=off|wandb, tracking.KEY=VALUE
  results=FOLDER, data=FOLDER, device=NAME, threads=NUMBER, stale=rerun|keep   as of the other commands
  -c job, --cfg job     print the configuration, and run nothing

Groups:
"""


def run(argv: Sequence[str]) -> int:
    """Carry out one run or, with -m, many; exit code 0 or 1 (a run failed, or the one run diverged)."""
    given = {word for word in argv if word.startswith("-") and "=" not in word} - {"--verbose"}
    unknown = sorted(given - FLAGS.keys())
    if unknown:
        raise ConfigError(wrong("run", unknown[0], "-m, --cfg job, --verbose or --help"))
    asked = {FLAGS[word] for word in given}
    ours = [word for word in argv if _group(word) in ("launcher", "workers", "tracking", "--verbose")]
    words = [word for word in argv if word not in given and word not in ours]
    if asked & {"help", "show"}:
        _print_configuration([word for word in words if word != "job"], "help" in asked)
        return 0
    options = parse(ours, "run", LaunchOptions)
    if "many" in asked:
        return _sweep(options, words)
    if {"launcher", "workers", "--verbose"} & {_group(word) for word in ours}:
        raise ConfigError(
            "run: launcher, workers and --verbose are for sweeps. Put -m behind `run`, or leave them out."
        )
    from benchmark.cli.grammar import settings_of  # with it Hydra

    try:
        made = api.run(settings_of(words), **options, progress=RoundLines())
    except api.RunFailed as error:
        made = error.runs[0]
    print(f"{made.state}: {made.folder}{': ' * bool(made.message)}{made.message}")
    for split, metrics in made.final.items():
        shown = {name: value for name, value in metrics.items() if name != "micro_f1"}  # it equals accuracy
        print(f"  {split}: " + ", ".join(f"{name} {value:.4f}" for name, value in shown.items()))
    return int(made.state is not RunState.DONE)


def _group(word: str) -> str:
    """``launcher`` of ``launcher.time=2``."""
    return word.partition("=")[0].partition(".")[0]


def _print_configuration(words: Sequence[str], with_meanings: bool) -> None:
    from benchmark.cli.grammar import settings_of

    plain = configured(settings_of(words))
    if not with_meanings:
        print(yaml.safe_dump(with_selection(plain), sort_keys=False), end="")
        return
    print(USAGE + "".join(f"{group}: {', '.join(group_names(group))}\n" for group in CHOICES))
    meanings = {key: field.description for key, field, _ in declared_settings()}
    for key, value in flat(plain):
        text = as_text(value)
        print(f"{key}={text}" + (f"  # {meanings[key]}" if key in meanings else ""))


def _sweep(options: dict[str, object], words: Sequence[str]) -> int:
    """Carry out what is missing of a sweep, and print its table."""
    from benchmark.cli.grammar import axes_of

    axes, command = axes_of(words), shlex.join(["python", "-m", "benchmark", "run", "-m", *words])
    try:
        made = api.sweep(axes, **options, command=command)  # type: ignore[arg-type]
    except api.RunFailed as error:
        made = error.runs
    from benchmark.reports import write

    if made.table is not None:
        write.show(made.table)
    print(made.files)
    print(f"{len(made)} runs: {in_words(Counter(one.state for one in made))}")
    return int(made.failed)


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
            if round:
                say(f"goes on after round {round} of {rounds}")
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


def table(argv: Sequence[str]) -> int:
    """Make tables; exit code 0 or 1 (a run failed)."""
    return int(api.table(**parse(argv, "table", TableOptions)).failed)


def figure(argv: Sequence[str]) -> int:
    """Draw figures; exit code 0 or 1 (a run failed)."""
    return int(api.figure(**parse(argv, "figure", FigureOptions)).failed)


def tune(argv: Sequence[str]) -> int:
    """Choose values; exit code 0 or 1 (a cell has no choice)."""
    return int(api.tune(**parse(argv, "tune", TuneOptions)).failed)


def report(argv: Sequence[str]) -> int:
    """Write the page, print its path; exit code 0."""
    print(api.report(**parse(argv, "report", ReportOptions)))
    return 0
