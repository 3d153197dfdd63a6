from __future__ import annotations

import io
from collections import Counter

import pytest
from rich.console import Console

from benchmark.launch.progress import ProgressView, duration
from benchmark.launch.slurm.submissions import Snapshot
from benchmark.launch.tasks import Outcome, Rounds, Task
from benchmark.launch.watch import SECONDS, SnapshotView, view
from benchmark.runs.status import RunState


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


TASKS = [Task(f"fedavg/seed{seed}", 100, None) for seed in range(4)]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (9000, "2.5 h")]
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_plain_lines() -> None:
    clock, stream = Clock(), io.StringIO()
    view = ProgressView(68, stream, clock)
    view.started(TASKS)
    clock.now += 5  # the workers start
    view.task_started("fedavg/seed0")
    view.task_started("fedavg/seed1")
    clock.now += 1
    view.progress("fedavg/seed0", Rounds(1, 1, 100))
    clock.now += 8  # 14 s after the start, 9 s of work
    view.progress("fedavg/seed0", Rounds(1, 30, 100))
    # 30 of 400 rounds in 9 s: 370 rounds take 111 s.
    view.progress("fedavg/seed1", Rounds(51, 51, 100))  # resumed after round 50: only one round of work
    clock.now += 1
    view.task_ended(Outcome("fedavg/seed0", RunState.DONE, "", 10.2))
    clock.now += 9
    view.task_ended(Outcome("fedavg/seed1", RunState.FAILED, "ValueError: bad\nTraceback ...", 19.0))
    view.stopping("SIGINT: 0 runs save their state")
    view.finished([])
    assert stream.getvalue().splitlines() == [
        "72 runs, 68 done before, 4 to do",
        "68/72 runs, 8 % of rounds, about 2 min left",
        "done        fedavg/seed0 (10 s)",
        "failed      fedavg/seed1 (19 s): ValueError: bad",
        # 200 of 400 rounds are dealt with by 101 rounds of work in 19 s.
        "70/72 runs, 50 % of rounds, about 38 s left, 1 failed",
        "stopping on SIGINT: 0 runs save their state",
        "70/72 runs in 24 s: 68 done before, 1 done now, 1 failed, 2 not begun",
    ]


def test_plain_status_lines_are_rare() -> None:
    clock, stream = Clock(), io.StringIO()
    view = ProgressView(0, stream, clock)
    view.started(TASKS)
    view.task_started("fedavg/seed0")
    for round in range(1, 101):
        clock.now += 0.5
        view.progress("fedavg/seed0", Rounds(1, round, 100))
    assert [line.split(" of ")[0] for line in stream.getvalue().splitlines()[1:]] == [
        f"0/4 runs, {percent} %" for percent in (5, 10, 15, 20, 25)
    ]


def test_nothing_to_do_is_one_line() -> None:
    stream = io.StringIO()
    view = ProgressView(72, stream)
    view.started([])
    view.finished([])
    assert stream.getvalue() == "72 runs, 72 done before, 0 to do\n"


def test_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock, stream = Clock(), Terminal()
    console = Console(file=stream, force_terminal=True, color_system=None, width=100, height=30)
    view = ProgressView(2, stream, clock, console)
    view.started(TASKS)
    view.task_started("fedavg/seed0")
    view.task_started("fedavg/seed1")
    clock.now += 10
    view.progress("fedavg/seed1", Rounds(40, 40, 100))
    view.task_ended(Outcome("fedavg/seed0", RunState.FAILED, "died [bold]: SIGKILL\nmore", 10))
    view.stopping("SIGINT: 1 runs save their state")
    lines = ["".join(part.text for part in line).rstrip() for line in console.render_lines(view.picture())]
    # 140 of 400 rounds are dealt with by one round of work in 10 s (seed1 resumed at 39): 260 take 2600 s.
    assert lines[0] == "3/6 runs, 35 % of rounds, about 43 min left, 1 failed"
    assert len(lines) == 4 and lines[2].startswith("  fedavg/seed1") and lines[2].endswith("40/100 rounds")
    assert lines[3] == "stopping on SIGINT: 1 runs save their state"
    view.finished([])
    assert "fedavg/seed0 (10 s): died [bold]: SIGKILL\n" in stream.getvalue()
    assert "3/6 runs in 10 s: 2 done before, 0 done now, 1 failed, 3 not begun" in stream.getvalue()


def test_live_view_fits_a_low_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=40, height=8)
    view = ProgressView(console=console)
    view.started([Task(f"a very long name of a run that no row can hold/seed{n}", 9, 0) for n in range(64)])
    for key in view.counts.rounds:
        view.task_started(key)
    lines = console.render_lines(view.picture())
    view.finished([])
    assert len(lines) <= 7
    assert "and 61 more" in "".join(segment.text for segment in lines[-1])


def snapshot(done: int, failed: int = 0) -> Snapshot:
    counts = {RunState.DONE: done, RunState.RUNNING: 1, RunState.FAILED: failed}
    return Snapshot(20, Counter(counts), [("fedavg/seed1", 40, 100)])


def test_plain_lines_of_a_cluster() -> None:
    """A line when something has changed, but rarely; at once when a run has failed or all have ended."""
    clock, stream = Clock(), io.StringIO()
    view = SnapshotView(stream, clock=clock)
    for seconds, shown in [(0, snapshot(2)), (5, snapshot(3)), (SECONDS, snapshot(3)), (1, snapshot(3, 1))]:
        clock.now += seconds
        view.show(shown)
    assert [line.partition(" runs")[0] for line in stream.getvalue().splitlines()] == ["2/20", "3/20", "3/20"]
    # One run in 35 s, 17 to go: 595 s; a second later 36 s and 612 s.
    assert stream.getvalue().splitlines()[1].endswith("; 35 s, about 10 min left")
    assert "1 failed" in stream.getvalue().splitlines()[2]


def test_live_view_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with view(stream) as shown:
        shown.show(snapshot(2))
    assert "2/20 runs ended" in stream.getvalue() and "40/100 rounds" in stream.getvalue()


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_the_stream_decides(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    for stream, live in ((io.StringIO(), False), (Terminal(), term != "dumb")):
        view = ProgressView(0, stream)
        view.started(TASKS)
        assert (stream.getvalue() == "4 runs, 4 to do\n") is not live
        view.finished([])
