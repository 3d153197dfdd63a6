import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from finished_runs import put_status
from rich.console import Console

from benchmark.launch.drawing import Drawing, Grid
from benchmark.launch.progress import Progress, duration
from benchmark.launch.tasks import Outcome, Task
from benchmark.launch.view import ProgressView
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import ResultsFolder

DONE, RUNNING, FAILED, MISSING = RunState.DONE, RunState.RUNNING, RunState.FAILED, RunState.MISSING


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def progress_of(
    keys: Sequence[str],
    done: int = 0,
    clock: Clock | None = None,
    rounds: int = 1,
    root: Path = Path("nowhere"),
) -> Progress:
    """Of runs whose keys end in their seed, the first ``done`` of which are done before."""
    states = {key: DONE if number < done else MISSING for number, key in enumerate(keys)}
    seeds = {key: int(key.rpartition("seed")[2]) for key in keys}
    return Progress(
        RunIndex(ResultsFolder(root)), states, seeds, dict.fromkeys(keys, rounds), clock or Clock()
    )


def put_round(root: Path, key: str, round: int) -> None:
    """Write into the folder of a run that it is at work on this round."""
    folder = ResultsFolder(root).run(key)
    folder.path.mkdir(parents=True, exist_ok=True)
    put_status(folder, Status(RUNNING, round, 100))


def view_of(progress: Progress, **options: Any) -> ProgressView:
    return ProgressView(progress, Console(), **options)


def end(view: ProgressView, key: str, state: RunState = DONE, message: str = "") -> None:
    view.task_started(key)
    view.task_ended(Outcome(key, state, message, 1.0))


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (9000, "2.5 h")]
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


# Lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verbose", [False, True])
def test_a_local_launch(verbose: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    keys = [f"fedavg/seed{seed}" for seed in range(72)]
    view = view_of(progress_of(keys, 68, clock, 100, tmp_path), verbose=verbose)
    one, two, *_ = keys[68:]
    put_round(tmp_path, two, 50)  # by the launch before
    view.started([Task(key, None) for key in keys[68:]])
    clock.now += 5  # the workers start
    view.task_started(one)
    view.task_started(two)
    clock.now += 9  # 14 s after the start, 9 s of work: 80 of 400 rounds, 30 of them now, and 320 take 96 s
    put_round(tmp_path, one, 30)
    view.look()
    put_round(tmp_path, two, 51)  # resumed after round 50: only one round of work
    view.look()  # too early
    clock.now += 1
    view.look()
    view.task_ended(Outcome(one, DONE, "", 10.2))
    clock.now += 9
    view.task_ended(Outcome(two, FAILED, "ValueError: bad\nTraceback ...", 19.0))
    view.stopping("SIGINT: 0 runs save their state")
    view.finished()
    lines = [
        "72 runs, 68 done before, 4 to do",
        "68/72 runs, 20 % of rounds, about 96 s left, 2 running",
        "done        fedavg/seed68 (10 s)",
        "failed      fedavg/seed69 (19 s): ValueError: bad",
        # 200 of 400 rounds are dealt with by 101 rounds of work in 19 s.
        "70/72 runs, 50 % of rounds, about 38 s left, 1 failed",
        "stopping on SIGINT: 0 runs save their state",
        "70/72 runs in 24 s: 68 done before, 1 done now, 1 failed, 2 not begun",
    ]
    expected = [line for line in lines if verbose or not line.startswith("done ")]
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize(("seconds", "lines"), [(0.02, 1), (3.0, 20)])
def test_a_line_now_and_then(seconds: float, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 1,000 runs, 20 s or 50 min long: whichever is later."""
    clock = Clock()
    keys = [f"fedavg/seed{seed}" for seed in range(1000)]
    view = view_of(progress_of(keys, clock=clock))
    view.started([Task(key, None) for key in keys])
    for key in keys:
        clock.now += seconds
        end(view, key, FAILED if key == keys[500] else DONE, "OSError: 5")
    out = capsys.readouterr().out.splitlines()
    assert len([line for line in out if "% of rounds" in line]) == lines
    assert [line for line in out if line.startswith("failed")] == [
        "failed      fedavg/seed500 (1 s): OSError: 5"
    ]
    assert len(out) == 1 + lines + 1


def test_nothing_to_do_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    view = view_of(progress_of([f"a/seed{seed}" for seed in range(72)], 72))
    view.started([])
    view.finished()
    assert capsys.readouterr().out == "72 runs, 72 done before, 0 to do\n"


def test_runs_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line when enough has changed, but rarely; at once when all have ended."""
    clock = Clock()
    keys = [f"a/seed{seed}" for seed in range(20)]
    view = view_of(progress_of(keys, 2, clock, 100, tmp_path))
    put_round(tmp_path, keys[4], 80)
    for seconds, done in ((0, 2), (5, 3), (30, 3), (30, 3), (1, 20)):
        clock.now += seconds
        states = dict.fromkeys(keys, RunState.WAITING) | dict.fromkeys(keys[: done + 9], RUNNING)
        view.show(states | dict.fromkeys(keys[:done], DONE), " (Priority)" if done + 9 < 20 else "")
    # One of 18 runs in 35 s, and another one at 80 % from the beginning: 1620 of 1800 rounds, and 567 s, to go.
    assert capsys.readouterr().out.splitlines() == [
        "2/20 runs, 4 % of rounds, 9 waiting (Priority), 9 running",
        "3/20 runs, 10 % of rounds, about 9 min left, 8 waiting (Priority), 9 running",
        "20/20 runs, 100 % of rounds",
    ]


def test_the_end_of_a_seed() -> None:
    """A failed run does not hold it up; the last seed, and a launch that stops, are the end of the command."""
    keys = [f"{name}/seed{seed}" for seed in range(3) for name in ("a", "b")]
    ended: list[int] = []
    view = view_of(progress_of(keys), seed_ended=ended.append)
    view.started([Task(key, None) for key in keys])
    end(view, keys[0], FAILED, "x")
    end(view, keys[2])
    assert ended == []
    end(view, keys[1])
    assert ended == [0]
    end(view, keys[3], RunState.INTERRUPTED)
    end(view, keys[4])
    end(view, keys[5])
    assert ended == [0]


# The live view ----------------------------------------------------------------------------------------------------

KEYS = [f"{row}-{column}/seed{seed}" for seed in range(3) for row in ("a", "b") for column in ("x", "y")]


def drawn(width: int, height: int, encoding: str = "utf-8", tables: int = 1) -> list[str]:
    """What is drawn of tables of 2 x 2 cells with the same runs, four of which have ended."""
    progress = progress_of(KEYS, 2, rounds=10)
    progress.note({KEYS[2]: DONE, KEYS[3]: FAILED, KEYS[4]: RUNNING})
    grids = [Grid(f"table{number}") for number in range(tables)]
    for grid in grids:
        grid.rows.update(a="FedAvg", b="FedMR")
        grid.columns.update(x="IID", y="Dirichlet")
        for key in KEYS:
            grid.cells.setdefault((key[0], key[2]), {})[key] = None
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, force_terminal=True, color_system=None, width=width, height=height)
    console.print(Drawing(progress, grids))
    stream.seek(0)
    return [line.rstrip() for line in stream.read().splitlines()]


def test_cells_fill_up() -> None:
    assert drawn(80, 24) == [
        "table0 4/12",
        "       IID Dirichlet",
        "FedAvg ■▸· ■··",
        "FedMR  ■·· ✗··",
        "",
        "━━━━                  4/12 runs, 20 % of rounds, about 0 s left",
        "■ 3 done  ▸ 1 running  ✗ 1 failed  · 7 missing",
        "1 of 3 seeds complete, seed 1: 0/4",
    ]
    assert drawn(80, 24, "ascii")[2:4] == ["FedAvg #>. #..", "FedMR  #.. x.."]


@pytest.mark.parametrize(
    ("width", "height", "tables", "first"),
    [
        (80, 24, 2, "table0 4/12            table1 4/12"),
        (80, 8, 2, "table0 4/12      table1 4/12"),  # no room for headings
        (16, 24, 1, "table0 4/12"),
        (80, 7, 2, "table0  ━━━━━━━━╸                   4/12, 1 failed"),
        (80, 7, 5, "table0  ━━━━━━━━╸                   4/12, 1 failed"),
        (8, 24, 1, "t…  4/1…"),
    ],
)
def test_what_is_drawn_fits(width: int, height: int, tables: int, first: str) -> None:
    lines = drawn(width, height, tables=tables)
    assert lines[0] == first
    assert max(map(len, lines)) <= width and len(lines) < height
    assert ("and 3 more tables" in lines) == (tables == 5)
