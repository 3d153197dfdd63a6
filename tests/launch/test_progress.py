from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmark.launch.local import Outcome, Task
from benchmark.launch.progress import PlainProgress, RichProgress, duration, listener


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


TASKS = [Task(f"fedavg/seed{seed}", 100, None) for seed in range(4)]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (9000, "2.5 h")]
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_plain_lines() -> None:
    clock, stream = Clock(), io.StringIO()
    view = PlainProgress(68, stream, clock)
    view.started(TASKS)
    clock.now += 5  # the workers start
    view.task_started("fedavg/seed0")
    view.task_started("fedavg/seed1")
    clock.now += 1
    view.progress("fedavg/seed0", 1, 100)
    clock.now += 8  # 14 s after the start, 9 s of work
    view.progress("fedavg/seed0", 30, 100)
    # 30 of 400 rounds in 9 s: 370 rounds take 111 s.
    view.progress("fedavg/seed1", 51, 100)  # resumed after round 50: only one round of work
    clock.now += 1
    view.task_ended(Outcome("fedavg/seed0", "done", "", 10.2))
    clock.now += 9
    view.task_ended(Outcome("fedavg/seed1", "failed", "ValueError: bad\nTraceback ...", 19.0))
    assert stream.getvalue().splitlines() == [
        "72 runs, 68 done before, 4 to do",
        "68/72 runs, 8 % of rounds, about 2 min left",
        "done        fedavg/seed0 (10 s)",
        "failed      fedavg/seed1 (19 s): ValueError: bad",
        # 200 of 400 rounds are dealt with by 101 rounds of work in 19 s.
        "70/72 runs, 50 % of rounds, about 38 s left, 1 failed",
    ]
    view.stopping("SIGINT: 0 runs save their state")
    view.finished([])
    assert stream.getvalue().splitlines()[-2:] == [
        "stopping on SIGINT: 0 runs save their state",
        "70/72 runs in 24 s: 68 done before, 1 done now, 1 failed, 2 not begun",
    ]


def test_plain_status_lines_are_rare() -> None:
    clock, stream = Clock(), io.StringIO()
    view = PlainProgress(0, stream, clock)
    view.started(TASKS)
    view.task_started("fedavg/seed0")
    for round in range(1, 101):
        clock.now += 0.5
        view.progress("fedavg/seed0", round, 100)
    assert [line.split(" of ")[0] for line in stream.getvalue().splitlines()[1:]] == [
        f"0/4 runs, {percent} %" for percent in (5, 10, 15, 20, 25)
    ]


def test_what_a_resumed_run_did_before_is_no_speed() -> None:
    clock, stream = Clock(), io.StringIO()
    view = PlainProgress(0, stream, clock)
    view.started(TASKS[:1])
    view.task_started("fedavg/seed0")
    clock.now += 10
    view.progress("fedavg/seed0", 91, 100)
    # One round in 10 s, nine to go: 90 s. (91 rounds in 10 s would leave one second.)
    assert stream.getvalue().splitlines()[1:] == ["0/1 runs, 91 % of rounds, about 90 s left"]


def test_nothing_to_do_is_one_line() -> None:
    stream = io.StringIO()
    view = PlainProgress(72, stream)
    view.started([])
    view.finished([])
    assert stream.getvalue() == "72 runs, 72 done before, 0 to do\n"


def test_live_view() -> None:
    clock, stream = Clock(), io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system=None, width=100, height=30)
    view = RichProgress(2, console, clock)
    view.started(TASKS)
    view.task_started("fedavg/seed0")
    view.task_started("fedavg/seed1")
    clock.now += 10
    view.progress("fedavg/seed1", 40, 100)
    view.task_ended(Outcome("fedavg/seed0", "crashed", "its worker died [bold]: SIGKILL\nmore", 10))
    view.stopping("SIGINT: 1 runs save their state")
    lines = ["".join(part.text for part in line).rstrip() for line in console.render_lines(view._view())]
    # 140 of 400 rounds are dealt with by one round of work in 10 s (seed1 resumed at 39): 260 take 2600 s.
    assert lines[0] == "3/6 runs, 35 % of rounds, about 43 min left, 1 crashed"
    assert len(lines) == 4 and lines[2].startswith("  fedavg/seed1") and lines[2].endswith("40/100 rounds")
    assert lines[3] == "stopping on SIGINT: 1 runs save their state"
    view.finished([])
    assert "crashed fedavg/seed0: its worker died [bold]: SIGKILL\n" in stream.getvalue()
    assert "3/6 runs in 10 s: 2 done before, 0 done now, 1 crashed, 3 not begun" in stream.getvalue()


def test_live_view_fits_a_low_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=40, height=8)
    view = RichProgress(0, console)
    view._tally.started(
        [Task(f"a very long name of a run that no row can hold/seed{n}", 9, 0) for n in range(64)]
    )
    for key in view._tally.rounds:
        view.task_started(key)
    lines = console.render_lines(view._view())
    assert len(lines) <= 7
    assert "and 61 more" in "".join(segment.text for segment in lines[-1])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_stream_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(listener(3, io.StringIO()), PlainProgress)
    assert isinstance(listener(3, Terminal()), RichProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(listener(3, Terminal()), PlainProgress)
