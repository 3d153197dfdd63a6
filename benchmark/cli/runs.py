"""``python -m benchmark runs``: the runs of a results folder, found by any key of their configuration."""

import math
import sys
from collections.abc import Sequence
from typing import Literal, TypeVar

from pydantic import Field
from rich.table import Column
from rich.table import Table as TextTable

from benchmark.cli.options import parse, words_of
from benchmark.errors import ConfigError, nearest
from benchmark.experiments.selection import ResultsOptions
from benchmark.reports.render.console import TextConsole
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.listing import ListedRun, find_runs

SPLITS = ("test.", "validation.")
SHOWN = ("test.accuracy", "test.worst_group_accuracy", "test.loss")
"""The metrics in the table. ``format=csv`` has all."""

MATCHES = 20
"""Runs that the message about a name that fits several lists."""

GivenResults = TypeVar("GivenResults", bound=ResultsOptions)


class RunsOptions(ResultsOptions):
    """Options of the command."""

    format: Literal["table", "csv"] = Field("table", description="what is printed")
    delete: bool = Field(False, description="move finished runs away (.seedK.old-N), and remove attempts")
    purge: bool = Field(
        False,
        description="free the disk space of runs that were moved away, and of snapshots that no run names",
    )


def main(words: Sequence[str]) -> int:
    """List the runs that fit ``KEY=VALUE`` words, and with --delete move them away; exit code 0."""
    ours = words_of(RunsOptions)
    rest = [word for word in words if word.partition("=")[0] not in ours and not word.startswith("-")]
    options = parse([word for word in words if word not in rest], "runs", RunsOptions)
    index = RunIndex(ResultsFolder(options.results).existing())
    runs = find_runs(index, _conditions(rest))
    if options.purge:
        print(f"{index.results.purge():,} folders removed")
    if options.delete and not rest:
        raise ConfigError("runs: --delete needs a condition: state=failed, say, or method=fedavg.")
    if runs or options.format == "csv":
        _print(runs, options)
    for problem in index.problems.values():
        print(f"warning: left out: {problem}", file=sys.stderr)
    if options.delete:
        _delete(index, runs)
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


def _delete(index: RunIndex, runs: Sequence[ListedRun]) -> None:
    for run in runs:
        folder = index.results.run(run.key)
        if folder.is_held:
            print(f"left: {run.key}: a process works on it", file=sys.stderr)
            continue
        where = f" -> {folder.move_away()}" if folder.is_finished else ""
        folder.remove_attempts()
        print(f"moved: {run.key}{where}")


def parse_with_run(
    words: Sequence[str], command: str, kind: type[GivenResults]
) -> tuple[ResultsFolder, str, GivenResults]:
    """(the results folder, the key of the run that a word names by a part of its folder's name, the options)."""
    names = [word for word in words if "=" not in word and not word.startswith("-")]
    options = parse([word for word in words if word not in names], f"{command} RUN", kind)
    if len(names) != 1:
        raise ConfigError(
            f"{command}: name one run: a part of its folder's name, and /seedK where it has several seeds."
        )
    results = ResultsFolder(options.results).existing()
    return results, _run_called(results, names[0], command), options


def _run_called(results: ResultsFolder, text: str, command: str) -> str:
    name, _, seed = text.strip("/").removeprefix(f"{results.root}/").removeprefix("runs/").partition("/")
    keys = [key for key in results.run_keys() if seed in ("", key.partition("/")[2])]
    there = sorted({key.partition("/")[0] for key in keys})
    matches = [key for key in keys if key.startswith(f"{name}/")] or [
        key for key in keys if name in key.partition("/")[0]
    ]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ConfigError(
            f"{command}: no run in {results.root}/runs is called {text!r}.{nearest(name, there)}"
        )
    listed = "\n  ".join(matches[:MATCHES]) + ("\n  ..." if len(matches) > MATCHES else "")
    raise ConfigError(f"{command}: {text!r} fits {len(matches)} runs; name one:\n  {listed}")
