from collections import Counter

import pytest

from benchmark.launch.progress import SNAPSHOT_SECONDS, ProgressView, SnapshotView, duration
from benchmark.launch.slurm.submissions import Snapshot
from benchmark.launch.tasks import Outcome, Task
from benchmark.runs.status import RunState


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (9000, "2.5 h")]
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_local_launch(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    view = ProgressView(68, clock)
    view.started([Task(f"fedavg/seed{seed}", 100, None) for seed in range(4)])
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
    assert capsys.readouterr().out.splitlines() == [
        "72 runs, 68 done before, 4 to do",
        "68/72 runs, 8 % of rounds, about 2 min left",
        "done        fedavg/seed0 (10 s)",
        "failed      fedavg/seed1 (19 s): ValueError: bad",
        # 200 of 400 rounds are dealt with by 101 rounds of work in 19 s.
        "70/72 runs, 50 % of rounds, about 38 s left, 1 failed",
        "stopping on SIGINT: 0 runs save their state",
        "70/72 runs in 24 s: 68 done before, 1 done now, 1 failed, 2 not begun",
    ]


def test_nothing_to_do_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    view = ProgressView(72)
    view.started([])
    view.finished()
    assert capsys.readouterr().out == "72 runs, 72 done before, 0 to do\n"


def test_runs_of_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """A line when something has changed, but rarely; at once when all have ended."""
    clock = Clock()
    view = SnapshotView(clock)
    for seconds, done in ((0, 2), (5, 3), (SNAPSHOT_SECONDS, 3), (SNAPSHOT_SECONDS, 3), (1, 20)):
        clock.now += seconds
        view.show(Snapshot(Counter({RunState.DONE: done, RunState.RUNNING: 20 - done})))
    # One run in 35 s, 17 to go: 595 s.
    assert capsys.readouterr().out.splitlines() == [
        "2/20 runs ended: 18 running, 2 done; 0 s",
        "3/20 runs ended: 17 running, 3 done; 35 s, about 10 min left",
        "20/20 runs ended: 20 done; 66 s",
    ]
