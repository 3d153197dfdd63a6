"""What a launch shows: on a terminal, in a pipe, after each seed, and when it is stopped."""

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pandas as pd
import pytest
from desk import ROOT, Desk, desk
from finished_runs import finish
from processes import wait_until

from benchmark.config.schema import RunConfig
from benchmark.runs.folder import ResultsFolder, RunFolder
from benchmark.runs.status import RunResult, RunState

CSV = Path("results/tables/quick/toy_table1.csv")
INLINE = ("table", "launcher=inline")
DONE = RunResult(RunState.DONE)


def planted(run: RunConfig) -> RunResult:
    """A run that is done, with an accuracy of 90 % plus its seed."""
    finish(ResultsFolder(Path("results")), run, final={"test": {"accuracy": 0.9 + run.seed / 100}})
    return DONE


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[RunConfig], RunResult]], list[str]]:
    """``launched(work)`` has runs carried out by calls of ``work``; the keys in their order."""

    def replace(work: Callable[[RunConfig], RunResult]) -> list[str]:
        keys: list[str] = []

        def execute(config: RunConfig, folder: RunFolder, launch: Any, **_: Any) -> RunResult:
            keys.append(config.key)
            result = work(config)
            if result.state is RunState.FAILED:
                folder.begin(config, launch.id).end(f"failed: {result.message}")
            return result

        monkeypatch.setattr("benchmark.runs.execute.execute", execute)
        return keys

    return replace


def seeds_in_csv(path: Path = CSV) -> set[int]:
    """How many seeds the cells of the table have, as written."""
    return set(pd.read_csv(path)["n"]) if path.exists() else set()


def test_tables_are_written_after_every_seed(cli: Any, toy: Any, launched: Any) -> None:
    """Two tables, one of which shares no run with the other; two runs that failed hold nothing up."""
    toy()
    text = Path("conf/table/toy_table1.yaml").read_text()
    Path("conf/table/toy_table2.yaml").write_text(
        text.replace("table: 1", "table: 2").replace("rounds: 2", "rounds: 3")
    )
    before: list[set[int]] = []
    early: list[str] = []

    def work(run: RunConfig) -> RunResult:
        before.append(seeds_in_csv() | seeds_in_csv(CSV.with_name("toy_table2.csv")))
        early.extend([CSV.with_suffix(".md").read_text()] if len(before) == 9 else [])
        return RunResult(RunState.FAILED, "OSError: bad\ntrace") if len(before) in (3, 4) else planted(run)

    keys = launched(work)
    code, out, _ = cli(*INLINE)
    assert code == 1
    assert [int(key.rpartition("seed")[2]) for key in keys] == [0] * 8 + [1] * 8 + [2] * 8
    # After seed 0 two cells of a table, and with them averages, have no run; after seed 1 they have one.
    assert before == [set()] * 8 + [{0, 1}] * 8 + [{1, 2}] * 8
    assert seeds_in_csv() | seeds_in_csv(CSV.with_name("toy_table2.csv")) == {2, 3}
    lines = out.splitlines()
    assert lines[0] == "24 runs, 24 to do"
    assert [line for line in lines if "seed" in line and not line.startswith("toy")] == [
        f"failed      {keys[2]}: OSError: bad",
        f"failed      {keys[3]}: for the same reason",
        "all runs of seed 0 have ended; tables with the seeds so far: results/tables/quick/",
        "all runs of seed 1 have ended; tables with the seeds so far: results/tables/quick/",
    ]
    assert "90.00 (n=1 of 3, 2 missing)" in early[0]
    assert "91.00 ± 1.00" in CSV.with_name("toy_table2.md").read_text()
    assert "FedAvg" not in out, "tables are printed on a terminal only"


def test_a_folder_that_cannot_be_written_stops_no_run(cli: Any, toy: Any, launched: Any) -> None:
    Path("there").touch()
    keys = launched(planted)
    code, out, err = cli(*INLINE, "out=there/tables")
    assert code == 2 and err.startswith("error: ") and "there" in err
    assert len(keys) == 12 and out.count("warning: tables are not written before all seeds have ended: ") == 2


# A real terminal --------------------------------------------------------------------------------------------------


class Terminal:
    """A command on a terminal, and what it writes there."""

    def __init__(self, here: Desk, *words: str, **environment: str) -> None:
        ours, theirs = pty.openpty()
        own = {"PYTHONPATH": str(ROOT), "FEDTABLES_PATH": str(here.folder / "mine"), "TOY": str(here.folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmark", *words],
            cwd=here.folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"COLUMNS": "100", "LINES": "40", "TERM": "xterm-256color"} | own | environment,
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
        """Exit code, and the text below the last picture of the bar, without control sequences."""
        code = self.process.wait(300)
        self._reader.join()
        below = self.text.rpartition("\x1b[2K")[2]
        return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", below).replace("\r", "")


@pytest.mark.slow
def test_on_a_terminal(tmp_path: Path) -> None:
    """A bar while runs are carried out, and then the tables; a terminal that is closed meanwhile stops no run."""
    with desk(tmp_path) as here:
        here.prepare((2, 3), how="hold")
        hold, words = here.hold(), ("table", "name=toy", "launcher=inline")
        seen = Terminal(here, *words, "columns=c2", NO_COLOR="1")
        wait_until(lambda: "0/1 runs" in seen.text or seen.process.poll() is not None, "the bar")
        hold.unlink()
        code, text = seen.end()
        assert code == 0 and "% of rounds" not in text and not re.search(r"\x1b\[(\d+;)*[34][0-8]", seen.text)
        assert "1/1 runs in " in text and re.search(r"^ *Fragile +\d+\.\d\d", text, re.MULTILINE)
        assert re.search(r"^toy: 1 done; results/tables/quick/toy_part\.", text, re.MULTILINE)

        hold.touch()
        nobody = Terminal(here, *words)
        wait_until(lambda: "1/2 runs" in nobody.text or nobody.process.poll() is not None, "the bar")
        nobody.closed = True
        hold.unlink()
        nobody.process.wait(300)
        assert len(here.finished()) == 2

        dumb = Terminal(here, *words, "stale=keep", TERM="dumb")  # it cannot move its cursor
        code, text = dumb.end()
        assert code == 0 and "\x1b" not in dumb.text and "Fragile" in text
