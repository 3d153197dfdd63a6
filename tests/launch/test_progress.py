"""What is said about how far a launch is."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from finished_runs import fail, finish
from tiny_runs import tiny

from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.launch import progress
from benchmark.launch.progress import Following, duration
from benchmark.reports.render.console import TextConsole
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.result_files import record_lines

Look = Callable[[float], None]


class Clock:
    """A module `time` whose time is set."""

    strftime = time.strftime
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: Any) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path).open()


def runs_of(results: ResultsFolder, seeds: int) -> list[RunConfig]:
    """Of 100 rounds."""
    return [tiny(results.root, {"train": {"rounds": 100}}, seed=seed) for seed in range(seeds)]


def following(results: ResultsFolder, runs: list[RunConfig], **options: Any) -> Following:
    index = RunIndex(results)
    return Following(index, {run.key: run for run in runs}, TextConsole(), **options)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (9000, "2.5 h")]
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize("verbose", [False, True])
def test_lines(verbose: bool, results: ResultsFolder, clock: Clock, capsys: Any) -> None:
    """At most one in ten seconds, and for a twentieth of the work."""
    runs = runs_of(results, 6)
    finish(results, runs[0])
    names = {runs[1].key: "one"}
    with following(results, runs, verbose=verbose, names=names) as shown:
        clock.now += 5
        finish(results, runs[1], seconds=10.2)
        shown.look()  # too early for a line: 5 s
        clock.now += 5
        shown.look()
        clock.now += 20
        shown.look()  # nothing has changed
        results.run(runs[2].key).begin(runs[2], "x").append(
            record_lines([Record(50, "train", "all", "loss", 1.0)])
        )
        finish(results, runs[3], state="diverged", message="NaN", seconds=3.0)
        results.run(runs[4].key).begin(runs[4], shown.launch).end("failed: ValueError: bad\nTraceback ...")
        fail(results, runs[5])  # of another launch: this one tries it
        clock.now += 10
        shown.look()
    lines = [
        "6 runs, 1 done before, 5 to do",
        "done        one (10 s)",
        "2/6 runs, 20 % of rounds, about 40 s left",
        f"diverged    {runs[3].key} (3 s): NaN",
        f"failed      {runs[4].key}: ValueError: bad",
        # 350 of 500 rounds are dealt with after 40 s.
        "4/6 runs, 70 % of rounds, 1 diverged, 1 failed, about 17 s left",
        "4/6 runs in 40 s: 1 done before, 2 done, 1 diverged, 1 failed, 2 not ended",
    ]
    assert capsys.readouterr().out.splitlines() == [line for line in lines if verbose or "done  " not in line]
    assert set(shown.open) == {runs[2].key, runs[5].key}


def test_the_end_of_a_seed(results: ResultsFolder, clock: Clock) -> None:
    """A failed run does not hold it up; the last seed is the end of the command."""
    ended: list[int] = []
    runs = [*runs_of(results, 3), *(tiny(results.root, seed=seed) for seed in range(3))]
    shown = following(results, runs, seed_ended=ended.append)
    results.run(runs[0].key).begin(runs[0], shown.launch).end("failed: why")
    finish(results, runs[1])
    shown.look(at_once=True)
    assert ended == []
    finish(results, runs[3])
    shown.look(at_once=True)
    assert ended == [0]
    for run in (runs[2], runs[4], runs[5]):
        finish(results, run)
        shown.look(at_once=True)
    assert ended == [0, 1]
