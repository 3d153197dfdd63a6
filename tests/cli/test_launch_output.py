"""What a launch shows: on a terminal, in a pipe, after each seed, and when it is stopped."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pandas as pd
import pytest
from finished_runs import finish
from processes import wait_until

from benchmark.config.compose import resolve
from benchmark.launch.tasks import Listener, Outcome, Task
from benchmark.runs.status import RunState
from benchmark.runs.store import ResultsFolder

CSV = Path("results/tables/quick/toy_table1.csv")


def planted(task: Task) -> Outcome:
    """A run that is done, with an accuracy of 90 % plus its seed."""
    run = resolve(task.payload)
    finish(ResultsFolder(Path("results")), run, final={"test": {"accuracy": 0.9 + run.seed / 100}})
    return Outcome(task.key, RunState.DONE, "", 0.1)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Task], Outcome]], list[str]]:
    """``launched(work)`` replaces the launch by calls of ``work``; the keys in their order."""

    def replace(work: Callable[[Task], Outcome]) -> list[str]:
        keys: list[str] = []

        def launch(tasks: Sequence[Task], *_: Any, listener: Listener, **__: Any) -> list[Outcome]:
            listener.started(tasks)
            outcomes = []
            for task in tasks:
                keys.append(task.key)
                listener.task_started(task.key)
                outcomes.append(work(task))
                listener.task_ended(outcomes[-1])
                if outcomes[-1].state is RunState.INTERRUPTED:
                    break
            listener.finished()
            return outcomes

        monkeypatch.setattr("benchmark.launch.local.launch", launch)
        return keys

    return replace


def seeds_in_csv(path: Path = CSV) -> set[int]:
    """How many seeds the cells of the table have, as written."""
    return set(pd.read_csv(path)["n"]) if path.exists() else set()


def test_tables_are_written_after_every_seed(cli: Any, toy: Any, launched: Any) -> None:
    """Two tables, one of which shares no run with the other; a run that failed holds nothing up."""
    toy()
    text = Path("conf/toy_table1.yaml").read_text()
    Path("conf/toy_table2.yaml").write_text(
        text.replace("table: 1", "table: 2").replace("rounds: 2", "rounds: 3")
    )
    before: list[set[int]] = []

    def work(task: Task) -> Outcome:
        before.append(seeds_in_csv() | seeds_in_csv(CSV.with_name("toy_table2.csv")))
        if len(before) == 3:
            return Outcome(task.key, RunState.FAILED, "OSError: bad\ntrace", 0.1)
        return planted(task)

    keys = launched(work)
    code, out, err = cli("table")
    assert code == 1 and err == f"failed: {keys[2]}: OSError: bad\ntrace\n"
    assert [int(key.rpartition("seed")[2]) for key in keys] == [0] * 8 + [1] * 8 + [2] * 8
    # After seed 0 one cell of a table, and with it the average, has no run; after seed 1 it has one.
    assert before == [set()] * 8 + [{0, 1}] * 8 + [{1, 2}] * 8
    assert seeds_in_csv() | seeds_in_csv(CSV.with_name("toy_table2.csv")) == {2, 3}
    lines = out.splitlines()
    assert lines[0] == "24 runs, 24 to do"
    assert [line for line in lines if "seed" in line] == [
        f"failed      {keys[2]} (0 s): OSError: bad",
        "all runs of seed 0 have ended; tables with the seeds so far: results/tables/quick/",
        "all runs of seed 1 have ended; tables with the seeds so far: results/tables/quick/",
    ]
    assert "FedAvg" not in out, "tables are printed on a terminal only"


def test_an_early_table_says_what_is_missing(cli: Any, toy: Any, launched: Any) -> None:
    early: list[str] = []

    def work(task: Task) -> Outcome:
        if task.key.endswith("seed1") and not early:
            early.append(CSV.with_suffix(".md").read_text())
        return planted(task)

    launched(work)
    assert cli("table").code == 0
    assert "missing (seeds 1, 2): all rows (all columns)" in early[0]
    assert "| FedAvg | 90.00 (n=1 of 3, 2 missing) |" in early[0]
    assert "91.00 ± 1.00" in CSV.with_suffix(".md").read_text()


def test_a_folder_that_cannot_be_written_stops_no_run(cli: Any, toy: Any, launched: Any) -> None:
    Path("there").touch()
    keys = launched(planted)
    code, out, err = cli("table", "out=there/tables")
    assert code == 2 and err.startswith("error: ") and "there" in err
    assert len(keys) == 12 and out.count("warning: tables are not written before all seeds have ended: ") == 2


def test_a_launch_that_is_stopped(cli: Any, toy: Any, launched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are written; the last line is the command that goes on, with words quoted."""

    def work(task: Task) -> Outcome:
        return (
            planted(task) if task.key.endswith("seed0") else Outcome(task.key, RunState.INTERRUPTED, "", 0.1)
        )

    launched(work)
    monkeypatch.setattr("benchmark.cli.launching.sys.argv", ["benchmark", "table", "rows=*"])
    code, out, err = cli("table", "rows=*")
    assert code == 130 and "5/12 runs" in out and "1 interrupted, 7 not begun" in out
    python = re.escape(os.path.relpath(sys.executable))
    assert re.fullmatch(
        rf"stopped: 4 of 12 runs have ended\. This goes on: ({python}|{re.escape(sys.executable)}) -m benchmark.*\n",
        err,
    )
    assert seeds_in_csv() == {1}


def test_verbose(cli: Any, toy: Any, launched: Any) -> None:
    keys = launched(planted)
    out = cli("table", "--verbose", "seeds=1").out
    assert [line for line in out.splitlines() if line.startswith("done ")] == [
        f"done        {key} (0 s)" for key in keys
    ]


# A real terminal --------------------------------------------------------------------------------------------------


class Terminal:
    """A command on a terminal, and what it writes there."""

    def __init__(self, root: Path, *words: str, **environment: str) -> None:
        ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmark", *words],
            cwd=root,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"COLUMNS": "100", "LINES": "40", "TERM": "xterm-256color"} | environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.text, self.closed = "", False
        self._reader = Thread(target=self._read, args=(ours,))
        self._reader.start()

    def _read(self, fd: int) -> None:
        with (
            os.fdopen(fd, "rb", buffering=0) as stream,
            contextlib.suppress(OSError),
        ):  # the command has ended
            while not self.closed:
                if select.select([stream], [], [], 0.1)[0]:
                    self.text += stream.read(65536).decode(errors="replace")

    def end(self) -> tuple[int, str]:
        """Exit code, and the text below the last picture of the live view, without control sequences."""
        code = self.process.wait(300)
        self._reader.join()
        below = self.text.rpartition("\x1b[2K")[2]
        return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", below).replace("\r", "")


@pytest.fixture
def terminal(root: Path, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(**environment: str) -> Terminal:
        words = ("paper=fedld", "table=1", "columns=covid_fl", "rows=fedavg,fedprox", "seeds=2")
        started.append(Terminal(root, "table", *words, f"results={tmp_path}", **environment))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()


COLOUR = re.compile(r"\x1b\[(\d+;)*[34][0-8]")


def test_on_a_terminal(terminal: Any, tmp_path: Path) -> None:
    """The view is shown while runs are carried out, and is gone afterwards: then there are the tables."""
    stopped = terminal(NO_COLOR="1")
    wait_until(lambda: "▸" in stopped.text or stopped.process.poll() is not None, "a run begins")
    assert "fedld_table1" in stopped.text and "0/4 runs" in stopped.text and not COLOUR.search(stopped.text)
    os.killpg(stopped.process.pid, signal.SIGINT)
    code, text = stopped.end()
    assert code == 130
    assert "% of rounds" not in text and "FedAvg" not in text
    *_, where, last = text.splitlines()
    assert where.endswith(f"{tmp_path}/tables/quick/fedld_table1_part.{{csv,wide.csv,tex,narrow.tex,md}}")
    assert re.fullmatch(
        r"stopped: \d of 4 runs have ended\. This goes on: .* -m benchmark table paper=fedld.*", last
    )

    dumb = terminal(TERM="dumb")  # it cannot move its cursor: lines as in a file
    code, text = dumb.end()
    assert code == 0 and "\x1b" not in dumb.text and "FedProx" in text and "4 runs, " in text

    code, text = terminal().end()
    lines = text.splitlines()
    assert code == 0
    assert lines[-2:] == [
        f"fedld_table1: 4 done; {tmp_path}/tables/quick/fedld_table1_part.{{csv,wide.csv,tex,narrow.tex,md}}",
        f"report: {tmp_path}/report/index.html",
    ]
    (row,) = (line for line in lines if line.startswith("FedProx"))
    assert re.fullmatch(r"FedProx  \d\d\.\d\d ± \d+\.\d\d \(81\.88\) *", row)


def test_a_closed_terminal(terminal: Any, tmp_path: Path) -> None:
    """The view can no longer be drawn; the runs are done all the same."""
    nobody = terminal()
    wait_until(lambda: "▸" in nobody.text or nobody.process.poll() is not None, "a run begins")
    nobody.closed = True
    nobody.process.wait(300)
    states = [path.read_text() for path in tmp_path.glob("runs/*/*/status.json")]
    assert len(states) == 4 and all('"state": "done"' in state for state in states)
