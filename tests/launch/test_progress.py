import io
from collections import Counter
from contextlib import closing

import pytest

from benchmark.launch.progress import (
    SNAPSHOT_SECONDS,
    ProgressView,
    SnapshotView,
    duration,
)
from benchmark.launch.slurm.submissions import Snapshot
from benchmark.launch.tasks import Outcome, Task
from benchmark.runs.status import RunState


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "LINES": "8"}.items():
        monkeypatch.setenv(name, value)
    return Terminal()


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
    view.progress("fedavg/seed0", 0)
    clock.now += 9  # 14 s after the start, 9 s of work: 30 of 400 rounds, and 370 take 111 s
    view.progress("fedavg/seed0", 30)
    for done in (50, 51):  # resumed after round 50: only one round of work
        view.progress("fedavg/seed1", done)
    clock.now += 1
    view.task_ended(Outcome("fedavg/seed0", RunState.DONE, "", 10.2))
    clock.now += 9
    view.task_ended(Outcome("fedavg/seed1", RunState.FAILED, "ValueError: bad\nTraceback ...", 19.0))
    view.stopping("SIGINT: 0 runs save their state")
    view.finished()
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


def test_nothing_to_do_is_one_line() -> None:
    stream = io.StringIO()
    view = ProgressView(72, stream)
    view.started([])
    view.finished()
    assert stream.getvalue() == "72 runs, 72 done before, 0 to do\n"


def test_live_view(terminal: Terminal) -> None:
    clock = Clock()
    view = ProgressView(2, terminal, clock)
    view.started(TASKS)
    view.task_started("fedavg/seed0")
    view.task_started("fedavg/seed1")
    for seconds, done in ((9.5, 39), (0.25, 40)):
        clock.now += seconds
        view.progress("fedavg/seed1", done)
    clock.now += 0.25
    view.task_ended(Outcome("fedavg/seed0", RunState.FAILED, "died [bold]: SIGKILL\nmore", 10))
    # 140 of 400 rounds are dealt with by one round of work in 10 s (seed1 resumed at 39): 260 take 2600 s.
    assert "3/6 runs, 35 % of rounds, about 43 min left, 1 failed" in terminal.getvalue()
    assert "40/100 rounds" in terminal.getvalue()
    view.stopping("SIGINT: 1 runs save their state")
    assert "stopping on SIGINT: 1 runs save their state" in terminal.getvalue()
    view.finished()
    assert "fedavg/seed0 (10 s): died [bold]: SIGKILL" in terminal.getvalue()
    assert "3/6 runs in 10 s: 2 done before, 0 done now, 1 failed, 3 not begun" in terminal.getvalue()


def test_live_view_fits_a_low_terminal(terminal: Terminal) -> None:
    clock = Clock()
    view = ProgressView(0, terminal, clock)
    keys = [f"a very long name of a run that no row can hold/seed{number}" for number in range(64)]
    view.started([Task(key, 9, 0) for key in keys])
    for key in keys:
        view.task_started(key)
    clock.now += 1
    view.progress(keys[0], 1)
    view.finished()
    assert "and 61 more" in terminal.getvalue()


def snapshot(done: int, failed: int = 0) -> Snapshot:
    counts = {RunState.DONE: done, RunState.RUNNING: 1, RunState.FAILED: failed}
    return Snapshot(20, Counter(counts), [("fedavg/seed1", 40, 100)])


def test_plain_lines_of_a_cluster() -> None:
    """A line when something has changed, but rarely; at once when a run has failed or all have ended."""
    clock, stream = Clock(), io.StringIO()
    view = SnapshotView(stream, clock)
    for seconds, shown in [
        (0, snapshot(2)),
        (5, snapshot(3)),
        (SNAPSHOT_SECONDS, snapshot(3)),
        (1, snapshot(3, 1)),
    ]:
        clock.now += seconds
        view.show(shown)
    lines = stream.getvalue().splitlines()
    assert [line.partition(" runs")[0] for line in lines] == ["2/20", "3/20", "3/20"]
    # One run in 35 s, 17 to go: 595 s; a second later 36 s and 612 s.
    assert lines[1].endswith("; 35 s, about 10 min left") and "1 failed" in lines[2]


def test_live_view_of_a_cluster(terminal: Terminal) -> None:
    with closing(SnapshotView(terminal)) as shown:
        shown.show(snapshot(2))
    assert "2/20 runs ended" in terminal.getvalue() and "40/100 rounds" in terminal.getvalue()


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_the_stream_decides(term: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    for stream, live in ((io.StringIO(), False), (terminal, term != "dumb")):
        view = ProgressView(0, stream)
        view.started(TASKS)
        assert (stream.getvalue() == "4 runs, 4 to do\n") is not live
        view.finished()
