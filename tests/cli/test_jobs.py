"""Looking after runs: what their folders and a cluster's queue say, here one that is made of two scripts."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import numbers
from finished_runs import put_status
from processes import executable, wait_until

from benchmark.cli.launching import plans_of
from benchmark.cli.options import parse
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.launch.slurm.submission_log import Batch, SubmissionLog
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import ResultsFolder

TABLE = ("name=toy_table1", "seeds=3", "rows=fedavg")


@pytest.fixture
def keys(cli: Any, toy: Any) -> list[str]:
    """The planned runs of `TABLE`."""
    query = parse(TABLE, "status", TableQuery)
    found = list(unique_runs([cells for _, cells in plans_of(query)]))
    assert len(found) == 6
    return found


@pytest.fixture
def results(cli: Any) -> ResultsFolder:
    return ResultsFolder(Path("results")).open()


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder: `queue` holds what `squeue` prints, `cancelled` what `scancel` was told."""
    folder = tmp_path / "slurm"
    executable(folder / "squeue", f"cat {folder}/queue")
    executable(folder / "scancel", f'echo "$@" >>{folder}/cancelled')
    (folder / "queue").write_text("")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def put(results: ResultsFolder, key: str, state: str, message: str = "") -> None:
    folder = results.run(key)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.result_path.unlink(missing_ok=True)
    put_status(folder, Status(RunState(state), 1, 3, message))


def submitted(results: ResultsFolder, queue: Path, *packs: tuple[str, ...], states: str) -> str:
    """Note an array and put its tasks into the queue, R or P each; its name."""
    batch = Batch.new(packs)
    SubmissionLog(results).write(batch)
    words = {"R": "RUNNING|None", "P": "PENDING|Resources"}
    lines = [f"7_{index}|{words[state]}|{batch.name}\n" for index, state in enumerate(states)]
    (queue / "queue").write_text("".join(lines))
    return batch.name


def test_status(
    cli: Any, keys: list[str], results: ResultsFolder, queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(results, keys[0], "done")
    put(results, keys[1], "failed", "ValueError: seven\nand a traceback")
    put(results, keys[2], "diverged")
    put(results, keys[3], "running")  # nobody holds it
    submitted(results, queue, (keys[4],), states="P")
    with results.run(keys[5]).lease():
        put(results, keys[5], "running")
        code, out, err = cli("status", *TABLE)
    assert (code, err) == (0, "")
    states = ("done", "running", "waiting", "failed", "diverged", "missing")
    assert numbers(out) == dict.fromkeys(states, 1)
    assert (
        "1 waiting, 1 failed, 1 diverged, 1 missing; SLURM: 0 tasks running, 1 waiting (Resources)\n" in out
    )
    assert f"failed: {keys[1]}: ValueError: seven\n" in out and "traceback" not in out
    submitted(results, queue, (keys[1],), states="R")  # a failed run that is tried again is waiting
    _, out, _ = cli("status", *TABLE)
    assert numbers(out)["waiting"] == 1 and "failed:" not in out
    monkeypatch.setenv("PATH", "")  # a machine without SLURM
    code, out, err = cli("status", *TABLE)
    assert (code, err) == (0, "")
    assert numbers(out) == {"done": 1, "failed": 1, "diverged": 1, "missing": 3}


def test_a_run_that_ends_while_the_queue_is_asked(
    cli: Any, keys: list[str], results: ResultsFolder, queue: Path
) -> None:
    put(results, keys[0], "done")
    folder = results.run(keys[0]).path.absolute()
    folder.rename(queue / "later")
    submitted(results, queue, (keys[0],), states="R")
    executable(queue / "squeue", f"mv {queue}/later {folder}")
    assert numbers(cli("status", *TABLE).out) == {"done": 1, "missing": 5}


def test_runs_of_no_table(cli: Any, toy: Any, results: ResultsFolder) -> None:
    """`status` shows them in a row of their own, and `retry` takes their configuration from their folder."""
    words = ("run", "dataset=digits", "train.rounds=1", "seed=0,1", "-m", "launcher=inline")
    assert cli(*words).code == 0
    key = next(Path("results/runs").glob("*/seed1")).relative_to("results/runs").as_posix()
    put(results, key, "failed", "seven")
    assert numbers(cli("status").out, "other runs") == {"done": 1, "failed": 1}
    assert "other runs" not in cli("status", *TABLE).out
    code, out, _ = cli("retry", "--failed", "launcher=inline")
    assert (code, out.splitlines()[-1]) == (0, "1 runs tried again: 1 done")
    assert numbers(cli("status").out, "other runs") == {"done": 2}


def test_watch_until_nothing_is_on_its_way(
    cli: Any, keys: list[str], results: ResultsFolder, queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is asked once for each look at thousands of runs."""
    monkeypatch.setattr("benchmark.cli.jobs.SECONDS", 0.01)
    (queue / "squeue").write_text(f"#!/bin/sh\necho asked >>{queue}/asked\ncat {queue}/queue\n")
    submitted(results, queue, *((key,) for key in keys), states="RRPPPP")
    assert cli("status", *TABLE).out.count("6 waiting; SLURM: 2 tasks running, 4 waiting (Resources)") == 1
    assert (queue / "asked").read_text() == "asked\n"

    def work() -> None:
        wait_until(
            lambda: (queue / "asked").read_text().count("asked") > 2, "a second look of status --watch"
        )
        for key in keys:
            put(results, key, "done")
        (queue / "queue").write_text("")

    thread = threading.Thread(target=work)
    thread.start()
    code, out, _ = cli("status", "--watch", *TABLE)
    thread.join()
    lines = [line for line in out.splitlines() if line.startswith("6 runs: ")]
    assert (
        code == 0
        and lines[0].startswith("6 runs: 6 waiting; SLURM")
        and lines[-1].startswith("6 runs: 6 done")
    )


def test_cancel(cli: Any, keys: list[str], results: ResultsFolder, queue: Path) -> None:
    name = submitted(
        results, queue, (keys[0], "another-0/seed0"), ("another-1/seed0",), (keys[1],), states="RPP"
    )
    code, out, err = cli("cancel", *TABLE)
    assert (code, err) == (0, "")
    assert out.startswith("2 tasks cancelled; with them 1 runs that share a task")
    assert (queue / "cancelled").read_text() == "7_0 7_2\n"
    assert json.loads((results.root / f"launcher/batches/{name}.json").read_text())["cancelled"] == [0, 2]
    cli("cancel", "--all")
    assert (queue / "cancelled").read_text() == "7_0 7_2\n7_0 7_1 7_2\n"


def test_cancel_that_is_refused(
    cli: Any, refusal: Any, keys: list[str], results: ResultsFolder, queue: Path
) -> None:
    assert cli("cancel", "--all") == (0, "nothing was submitted to a cluster from this results folder\n", "")
    submitted(results, queue, (keys[0],), states="R")
    (queue / "squeue").write_text("#!/bin/sh\nexit 1\n")
    refusal(["cancel", "--all"], r"cancel: SLURM does not answer")
    assert not (queue / "cancelled").exists()


def test_logs(cli: Any, refusal: Any, keys: list[str], results: ResultsFolder, queue: Path) -> None:
    put(results, keys[0], "failed", "seven")
    (results.run(keys[0]).path / "log.txt").write_text("".join(f"line {n}.\n" for n in range(100)))
    name = submitted(results, queue, ("another/seed0",), (keys[0],), states="")
    jobs = results.root / "launcher" / "jobs" / name
    jobs.mkdir(parents=True)
    (jobs / "7_0_0_log.out").write_text(f"begins {keys[0]}\n")
    (jobs / "7_1_0_log.out").write_text(f"begins {keys[0]}\nbegins another/seed0\nfailed {keys[0]} seven\n")
    (jobs / "7_1_0_log.err").write_text("the error\n")
    code, out, err = cli("logs", keys[0].partition("/")[0][-8:], "lines=2")  # by the last digits of its hash
    assert (code, err) == (0, "")
    assert f"{keys[0]}: failed seven\nline 98.\nline 99.\n" in out and "line 97." not in out
    assert f"7_1_0_log.out (lines on this run)\nbegins {keys[0]}\nfailed {keys[0]} seven\n" in out
    assert "another" not in out and out.endswith("the error\n")
    assert cli("logs", keys[0], "lines=all")[1].count("line ") == 100
    for path in (results.run(keys[0]).path / "log.txt", *jobs.glob("7_1_*")):
        path.write_text(f"{keys[0]}\x1b[2J\tx\n")
    assert cli("logs", keys[0]).out.count(f"{keys[0]}?[2J\tx\n") == 3


def test_logs_of_which_run(refusal: Any, keys: list[str], results: ResultsFolder) -> None:
    for key in keys:
        put(results, key, "done")
    refusal(["logs", "fedavg"], rf"logs: 'fedavg' fits 6 runs; name one:\n  .*{keys[0]}")


def test_logs_that_go_on(cli: Any, keys: list[str], results: ResultsFolder) -> None:
    put(results, keys[0], "running")
    path = results.run(keys[0]).path / "log.txt"
    path.write_text("one\n")

    def work() -> None:
        time.sleep(0.3)
        with path.open("a") as stream:
            stream.write("two\x1b\n")
        put(results, keys[0], "done")

    thread = threading.Thread(target=work)
    thread.start()
    _, out, _ = cli("logs", keys[0], "--follow")
    thread.join()
    assert out.endswith("running\none\ntwo?\n")


def test_retry(cli: Any, refusal: Any, keys: list[str], results: ResultsFolder) -> None:
    """Only what failed is carried out, and for real."""
    put(results, keys[0], "failed", "seven")
    put(results, keys[1], "diverged")
    code, out, err = cli("retry", "--failed", *TABLE, "launcher=inline")
    assert (code, err) == (0, "")
    assert "1 runs tried again: 1 done" in out
    there = {key: status.state for key in keys if (status := results.run(key).status()) is not None}
    assert there == {keys[0]: "done", keys[1]: "diverged"}
    assert cli("retry", "--failed", *TABLE) == (0, "none of 6 runs has failed\n", "")
    wait_until(lambda: not results.run(keys[0]).is_held(), "the end of its lease")
