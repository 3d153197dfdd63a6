"""``python -m benchmark runs``: the runs of a results folder, found by any key of their configuration."""

import math
import sys
from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from rich.table import Column
from rich.table import Table as TextTable

from benchmark.cli.options import parse, words_of
from benchmark.errors import ConfigError
from benchmark.experiments.selection import ResultsOptions
from benchmark.reports.render.console import TextConsole
from benchmark.runs.index import RunIndex
from benchmark.runs.lease import Busy
from benchmark.runs.listing import ListedRun, find_runs
from benchmark.runs.store import ResultsFolder

SPLITS = ("test.", "validation.")
SHOWN = ("test.accuracy", "test.worst_group_accuracy", "test.loss")
"""The metrics in the table. ``format=csv`` has all."""


class RunsOptions(ResultsOptions):
    """Options of the command."""

    format: Literal["table", "csv"] = Field("table", description="what is printed")
    delete: bool = Field(False, description="move the runs to set_aside in the results folder")


def main(words: Sequence[str]) -> int:
    """List the runs that fit ``KEY=VALUE`` words, and with --delete move them away; exit code 0."""
    ours = words_of(RunsOptions)
    rest = [word for word in words if word.partition("=")[0] not in ours and not word.startswith("-")]
    options = parse([word for word in words if word not in rest], "runs", RunsOptions)
    index = RunIndex(ResultsFolder(options.results).existing())
    runs = find_runs(index, _conditions(rest))
    if options.delete and not rest:
        raise ConfigError("runs: --delete needs a condition: state=failed, say, or method=fedavg.")
    if runs or options.format == "csv":
        _print(runs, options)
    for problem in index.problems.values():
        print(f"warning: left out: {problem}", file=sys.stderr)
    if options.delete:
        _set_aside(index, runs)
    elif options.format == "table":
        print(f"{len(runs)} runs")
    return 0


def _conditions(words: Sequence[str]) -> dict[str, str]:
    where = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key in where:
            problem = "is given twice" if equals else "has no value"
            raise ConfigError(f"runs: {key} {problem}; expected KEY=VALUE, or KEY=VALUE,PATTERN*,...")
        where[key] = value
    return where


def _print(runs: Sequence[ListedRun], options: RunsOptions) -> None:
    from benchmark.reports.runs import run_frame  # with it pandas

    frame = run_frame(runs, options.results)
    if options.format == "csv":
        print(frame.to_csv(index=False), end="")
        return
    hidden = [name for name in frame if "." in name and name.startswith(SPLITS) and name not in SHOWN]
    frame = frame.drop(columns=hidden).rename(columns={"folder": "run"})
    frame["run"] = [run.key for run in runs]
    view = TextTable(*(Column(name, overflow="fold") for name in frame))
    for row in frame.itertuples(index=False):
        view.add_row(*map(_text, row))
    TextConsole().print(view)


def _text(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return str(value)


def _set_aside(index: RunIndex, runs: Sequence[ListedRun]) -> None:
    for run in runs:
        try:
            with index.results.run(run.key).lease():
                print(f"moved: {run.key} -> {index.results.set_aside(run.key)}")
        except Busy as error:
            print(f"left: {run.key}: {error}", file=sys.stderr)
