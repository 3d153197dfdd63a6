"""Runs that share a batch job: retries, runs of others, and what a job leaves behind when its place is wanted."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from submitit.helpers import DelayedSubmission
from tiny_runs import wait_until

from benchmark.runs import pack
from benchmark.runs.launch import Task
from benchmark.runs.pack import Pack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{HERE}")


def packed(work: str, *payloads: Any, **more: Any) -> Pack:
    tasks = tuple(Task(f"run/seed{index}", 1, payload) for index, payload in enumerate(payloads))
    return Pack(tasks, f"launch_work:{work}", **{"workers": 2, **more})


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_all_runs_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert packed("echo", *range(5))() == {"done": 5}
    out = capsys.readouterr().out
    assert out.count("begins") == 5 and out.count("done  ") == 5
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("how", ["failed", "crash"])
def test_a_run_that_ends_badly_is_tried_again(tmp_path: Path, how: str) -> None:
    def payload(name: str, times: int) -> dict[str, Any]:
        return {"path": str(tmp_path / name), "times": times, "how": how}

    job = packed("at_last", payload("once", 1), payload("always", 99), payload("never", 0), retries=2)
    assert job() == {"done": 2, "failed" if how == "failed" else "crashed": 1}
    assert {name: lines(tmp_path / name) for name in ("once", "always", "never")} == {
        "once": 2,
        "always": 3,
        "never": 1,
    }


@pytest.mark.parametrize(("seconds", "ending"), [(1.0, "done"), (0.1, "busy")])
def test_a_run_that_another_process_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, ending: str
) -> None:
    """The other one may be dead; after the time that shows it, it is alive, and does the run."""
    monkeypatch.setattr(pack, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(pack, "WAIT_SECONDS", seconds)
    job = packed("at_last", {"path": str(tmp_path / "held"), "times": 4, "how": "busy"})
    assert job() == {ending: 1}


def test_sigterm_lets_runs_save(tmp_path: Path) -> None:
    """Some clusters send nothing else; the job is queued again by the scheduler."""
    path = tmp_path / "count"
    job = packed("count", {"path": str(path), "rounds": 10_000, "seconds": 0.01}, "never begun", workers=1)
    threading.Thread(
        target=lambda: (
            wait_until(lambda: lines(Path(f"{path}.pids")) == 1, "the run's beginning"),
            os.kill(os.getpid(), signal.SIGTERM),
        )
    ).start()
    assert job() == {"interrupted": 2}
    assert 0 <= int(path.read_text()) < 10_000


def test_a_checkpoint_is_a_job_that_goes_on(tmp_path: Path) -> None:
    """As submitit does it: in the handler of SIGUSR2, while the job is at work; the process then ends."""
    paths = [tmp_path / "a", tmp_path / "b"]
    payloads = [{"path": str(path), "rounds": 40, "seconds": 0.05} for path in paths]
    job, saved = packed("count", *payloads), []

    def wanted(*_: object) -> None:
        saved.append(job.checkpoint())
        raise SystemExit

    def ask() -> None:
        wait_until(lambda: all(lines(Path(f"{path}.pids")) == 1 for path in paths), "both beginnings")
        os.kill(os.getpid(), signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, wanted)
    try:
        threading.Thread(target=ask).start()
        with pytest.raises(SystemExit):
            job()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert all(int(path.read_text()) < 40 for path in paths)
    (submission,) = saved
    assert isinstance(submission, DelayedSubmission)
    assert pickle.loads(pickle.dumps(submission)).result() == {"done": 2}
    assert [path.read_text() for path in paths] == ["40", "40"]
    assert [lines(Path(f"{path}.pids")) for path in paths] == [2, 2], "each was carried on once"


def test_a_job_is_submitted_without_its_process() -> None:
    job = packed("echo", 1)
    job()
    again = pickle.loads(pickle.dumps(job))
    assert again == job and again() == {"done": 1}


def test_no_worker_can_be_started() -> None:
    with pytest.raises(RuntimeError, match="No worker can be started"):
        Pack((Task("run/seed0", 1, None),), "no_such_module:work", workers=1)()
