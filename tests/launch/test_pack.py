"""Runs that share a batch job: retries, runs of others, and what a job leaves behind when its place is wanted."""

import math
import os
import pickle
import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_gpus import fake_gpus
from finished_runs import put_status
from processes import wait_until
from submitit.helpers import DelayedSubmission

from benchmark.launch import local, resources
from benchmark.launch.settings import LocalSettings
from benchmark.launch.slurm import batch_job as pack
from benchmark.launch.slurm.batch_job import BatchJob
from benchmark.launch.slurm.preflight import environment
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.tasks import Outcome, StopRequest, Task
from benchmark.runs.build import limit_memory
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import ResultsFolder

ROOT = Path(__file__).resolve().parents[2]
HELPERS = ROOT / "tests" / "helpers"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HELPERS))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{HELPERS}")


def packed(
    work: str,
    *payloads: Any,
    environment: Mapping[str, str] | None = None,
    results: str = "nowhere",
    **settings: Any,
) -> BatchJob:
    tasks = tuple(Task(f"run/seed{index}", payload) for index, payload in enumerate(payloads))
    parsed = SlurmSettings.of({"workers": 2, **settings})
    return BatchJob(ResultsFolder(Path(results)), tasks, f"launch_work:{work}", parsed, environment or {})


def test_all_runs_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    here = environment()
    job = packed("echo", *range(5), environment=here)
    assert job() == {"done": 5}
    out = capsys.readouterr().out
    assert out.count("begins") == 5 and out.count("done  ") == 5
    assert signal.getsignal(signal.SIGTERM) == before
    assert pickle.loads(pickle.dumps(job)) == job, "it is submitted again without its process"
    with pytest.raises(RuntimeError, match=r"has other versions: torch .* \(submitted with 1\.0\.0\)"):
        packed("echo", 1, environment={**here, "torch": "1.0.0"})()


def test_a_run_that_fails_is_tried_again(tmp_path: Path) -> None:
    payload = {"path": str(tmp_path / "tries"), "times": 2, "how": "failed"}
    assert packed("at_last", payload, retries=2)() == {"done": 1}


@pytest.mark.parametrize(("seconds", "ending"), [(1.0, "done"), (0.1, "running")])
def test_a_held_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, ending: str) -> None:
    """The other one may be dead; after the time that shows it, it is alive, and does the run."""
    monkeypatch.setattr(local, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(pack, "PATIENCE", seconds)
    job = packed("at_last", {"path": str(tmp_path / "held"), "times": 4, "how": "running"})
    assert job() == {ending: 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_let_runs_save(tmp_path: Path, number: int) -> None:
    """Some clusters send nothing else; the job is queued again by the scheduler."""
    path = tmp_path / "run"
    job = packed("until_stop", str(path), "never begun", workers=1)
    threading.Thread(
        target=lambda: (
            wait_until(path.exists, "the run's beginning"),
            os.kill(os.getpid(), number),
        )
    ).start()
    assert job() == {"interrupted": 2}
    assert path.with_suffix(".saved").exists()


def test_a_time_that_is_too_short_for_a_round(tmp_path: Path) -> None:
    """A job that gains nothing in its whole time, here a minute, would be queued again for ever."""
    job = packed("echo", 0, 1, results=str(tmp_path), time=2, signal_delay=60, grace=10)
    folder = job.results.run("run/seed1")
    folder.path.mkdir(parents=True)
    put_status(folder, Status(RunState.INTERRUPTED, 5, 9))
    future: Future[list[Outcome]] = Future()
    future.set_result([])
    now = time.monotonic()
    job._session = pack._Session(StopRequest(), future, job.rounds(), now)
    assert isinstance(job.checkpoint(), DelayedSubmission), "it has only begun"
    job._session = pack._Session(StopRequest(), future, job.rounds(), now - 60)
    with pytest.raises(RuntimeError, match=r"no run of this task finished one round.*Raise launcher\.time"):
        job.checkpoint()
    put_status(folder, Status(RunState.INTERRUPTED, 6, 9))
    assert isinstance(job.checkpoint(), DelayedSubmission)


@pytest.mark.parametrize(
    ("gpu_gb", "visible", "workers"),
    [
        # Two GPUs with 85.9 and 42.9 GB: 8 + 4 runs of 10 GB, as far as there are cores for them.
        (10.0, None, 12),
        (30.0, None, 3),
        (100.0, None, 2),
        (10.0, "1", 4),
    ],
)
def test_runs_side_by_side_as_the_memory_of_the_gpus_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu_gb: float, visible: str | None, workers: int
) -> None:
    fake_gpus(tmp_path, monkeypatch, visible, 1 if visible else 2)
    seen: list[LocalSettings] = []
    monkeypatch.setattr(pack, "launch", lambda tasks, work, settings, **_: seen.append(settings) or [])
    gpus = {"gpus_per_job": 2, "cpus_per_job": 8, "gpu_gb_per_run": gpu_gb}
    for cores, more, expected in (
        (64, {}, workers),
        (6, {"threads": 2}, min(workers, 3)),
        (1, {}, 1),
        (64, {"workers": 5}, 5),  # what is said counts
    ):
        monkeypatch.setattr(resources, "usable_cores", lambda cores=cores: cores)
        packed("echo", 0, **{"workers": None, **gpus, **more})._carry_out(StopRequest())
        assert len(resources.assign_devices(99, seen[-1])) == expected


@pytest.mark.parametrize(("share", "fraction"), [("8", 0.1), ("200", 1.0), (None, None)])
def test_a_run_gets_no_more_of_a_gpu_than_its_share(
    monkeypatch: pytest.MonkeyPatch, share: str | None, fraction: float | None
) -> None:
    """Of a GPU of 80 GB."""
    told: list[tuple[float, int | None]] = []  # torch takes no device without a number here
    properties = SimpleNamespace(total_memory=80e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda part, index: told.append((part, index))
    )
    monkeypatch.delenv("FEDTABLES_GPU_GB", raising=False)
    if share is not None:
        monkeypatch.setenv("FEDTABLES_GPU_GB", share)
    usable = [limit_memory(torch.device(name)) for name in ("cuda", "cuda:1", "cpu")]
    assert usable == [80e9 * (fraction or 1)] * 2 + [math.inf]
    assert told == ([] if fraction is None else [(fraction, None), (fraction, 1)])


def test_the_share_of_a_worker_is_in_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDTABLES_GPU_GB", raising=False)
    tasks = [Task("run/seed0", ("FEDTABLES_GPU_GB", str(tmp_path), 1))]
    for given, expected in (({"gpu_gb_per_run": 8.0}, "8.0"), ({}, "unset")):
        settings = LocalSettings(workers=1, devices=("cpu",), **given)
        (outcome,) = local.launch(tasks, "launch_work:environment", settings, listener=pack.Log())
        assert outcome.message == expected
