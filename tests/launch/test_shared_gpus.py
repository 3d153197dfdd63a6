"""GPUs that several runs share: their names, their memory, and CUDA's Multi-Process Service."""

import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_gpus import PARTS, fake_gpus
from launch_work import Log
from processes import wait_until

from benchmark.errors import ConfigError
from benchmark.launch import resources
from benchmark.launch.local import launch
from benchmark.launch.settings import LocalSettings
from benchmark.launch.slurm.batch_job import BatchJob
from benchmark.launch.slurm.preflight import PreflightCheck
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.tasks import Outcome, Task
from benchmark.runs.build import state_bytes
from benchmark.runs.store import ResultsFolder

ROOT = Path(__file__).resolve().parents[2]
HELPERS = ROOT / "tests" / "helpers"

PARTS_LISTED = ", ".join(PARTS)


def local(work: str, *payloads: Any, workers: int, **settings: Any) -> list[Outcome]:
    tasks = [Task(f"run/seed{index}", payload) for index, payload in enumerate(payloads)]
    given = LocalSettings(workers=workers, **settings)
    return launch(tasks, f"launch_work:{work}", given, listener=Log())


def services(calls: Path) -> list[tuple[str, str]]:
    """The GPU of each service, and what it was told. Each had folders of its own, which are gone."""
    told: dict[str, tuple[str, str]] = {}
    for line in calls.read_text().splitlines():
        options, said, gpu, there, pipes = line.split("|")
        assert there == "there" and len(pipes) <= 87
        told[pipes] = gpu, f"{told.get(pipes, ('', ''))[1]} {options or said}".strip()
    assert not any(Path(pipes).parent.exists() for pipes in told)
    return sorted(told.values())


# Names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "count", "devices", "assigned"),
    [
        # CUDA shows a process one MIG device only, whichever are listed.
        (PARTS_LISTED, 1, None, [*PARTS]),
        (PARTS_LISTED, 1, ("cuda:1",), [PARTS[1]]),
        ("MIG-3333,", 1, None, ["MIG-3333"]),
        (PARTS_LISTED, 0, None, [None]),  # they do not work
        ("GPU-2222, 0", 2, None, ["GPU-2222", "0"]),
        (None, 2, None, ["0", "1"]),
    ],
)
def test_names_stay_as_they_are(
    tmp_path: Path, monkeypatch: Any, visible: str, count: int, devices: Any, assigned: list[str | None]
) -> None:
    fake_gpus(tmp_path, monkeypatch, visible, count)
    monkeypatch.setattr(resources, "usable_cores", lambda: 1)
    assert resources.assign_devices(9, LocalSettings(devices=devices)) == assigned
    gpus = sum(name is not None for name in assigned)
    if devices is None and gpus:
        settings = SlurmSettings.of({"gpus_per_job": gpus})
        assert PreflightCheck.of(tmp_path, settings).check() == ""


@pytest.mark.parametrize(
    ("visible", "count", "runs"),
    [
        (None, 2, 8 + 4),  # of 10 GB, on 85.9 and 42.9 GB
        ("1", 1, 4),
        ("GPU-2222", 1, 4),  # the beginning of a name is enough
        (PARTS_LISTED, 1, 2 + 1),  # 20 GB and 10 GB
        ("MIG-3333-cccc", 1, 1),  # unknown to the driver
    ],
)
def test_as_many_runs_as_fit_by_memory(
    tmp_path: Path, monkeypatch: Any, visible: str | None, count: int, runs: int
) -> None:
    fake_gpus(tmp_path, monkeypatch, visible, count)
    monkeypatch.setattr(resources, "usable_cores", lambda: 64)
    assert len(resources.assign_devices(99, LocalSettings(gpu_gb_per_run=10.0))) == runs


# The service -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "count", "workers", "shared", "alone"),
    [
        (None, 2, 3, ["GPU-1111-aaaa"], ["1"]),
        (PARTS_LISTED, 1, 4, [*PARTS], []),
        ("1", 1, 2, ["GPU-2222-bbbb"], []),
    ],
)
def test_each_shared_gpu_has_a_service(
    tmp_path: Path,
    monkeypatch: Any,
    visible: str | None,
    count: int,
    workers: int,
    shared: list[str],
    alone: list[str],
) -> None:
    calls = fake_gpus(tmp_path, monkeypatch, visible, count)
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    seen: dict[str, list[str]] = {}
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY"):
        (tmp_path / name).mkdir()
        payloads = [(name, str(tmp_path / name), workers)] * workers
        seen[name] = sorted(o.message for o in local("environment", *payloads, workers=workers, mps=True))
    assert seen["CUDA_VISIBLE_DEVICES"] == sorted(shared * 2 + alone)
    pipes = seen["CUDA_MPS_PIPE_DIRECTORY"]
    assert pipes.count("unset") == len(alone) and len({*pipes} - {"unset"}) == len(shared)
    assert services(calls) == sorted((gpu, "-d quit") for gpu in shared * 2), "for each of the two launches"


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (1, {"workers": 2}),
        (2, {"workers": 2, "mps": True}),
        (1, {"workers": 1, "mps": True}),
        (0, {"workers": 2, "mps": True}),
        (2, {"workers": 2, "mps": True, "devices": ("cpu",)}),
    ],
)
def test_no_service_where_none_is_asked_for_or_no_gpu_is_shared(
    tmp_path: Path, monkeypatch: Any, count: int, settings: dict[str, Any]
) -> None:
    calls = fake_gpus(tmp_path, monkeypatch, None, count)
    assert [outcome.state for outcome in local("echo", 1, 2, **settings)] == ["done"] * 2
    assert services(calls) == []


def test_it_stops_after_workers_that_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_gpus(tmp_path, monkeypatch, None, 1)
    outcomes = local("pid", "signal", "exit", None, None, workers=2, mps=True)
    assert [outcome.state for outcome in outcomes] == ["failed", "failed", "done", "done"]
    # The tasks whose workers died were tried again.
    assert services(calls) == [("GPU-1111-aaaa", "-d quit")] * 2


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_a_slurm_job_starts_and_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals | None
) -> None:
    calls = fake_gpus(tmp_path, monkeypatch, "0", 1)
    settings = SlurmSettings.of({"gpus_per_job": 1, "workers": 2, "mps": True})
    paths = [tmp_path / "run0", tmp_path / "run1"]
    work, payloads = ("echo", [0, 1]) if number is None else ("until_stop", list(map(str, paths)))
    tasks = tuple(Task(f"run/seed{index}", payload) for index, payload in enumerate(payloads))
    job = BatchJob(ResultsFolder(tmp_path / "results"), tasks, f"launch_work:{work}", settings)
    if number is not None:

        def kill() -> None:
            wait_until(lambda: all(path.exists() for path in paths), "both runs have begun")
            assert calls.read_text().startswith("-d|"), "it has not stopped yet"
            os.kill(os.getpid(), number)

        threading.Thread(target=kill).start()
    assert job() == {"done" if number is None else "interrupted": 2}
    assert services(calls) == [("GPU-1111-aaaa", "-d quit")]


def test_it_stops_when_the_launcher_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by a signal to all processes of the job, as SLURM sends it."""
    calls = fake_gpus(tmp_path, monkeypatch, None, 1)
    runs = [tmp_path / "run0", tmp_path / "run1"]
    code = f"""
import sys
sys.path[:0] = [{str(HELPERS)!r}, {str(ROOT)!r}]
import torch
torch.cuda.device_count = lambda: 1
from launch_work import Log
from benchmark.launch.local import Task, launch
from benchmark.launch.settings import LocalSettings
tasks = [Task(path, path) for path in {list(map(str, runs))}]
launch(tasks, "launch_work:until_stop", LocalSettings(workers=2, mps=True, grace=0), listener=Log())
"""
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        wait_until(lambda: all(path.exists() for path in runs), "both runs have begun")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        shells = [
            int(pid) for pid in children if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sh\0")
        ]
        for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            os.killpg(shells[0], number)
        assert len(shells) == 1 and calls.read_text().count("\n") == 1
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: calls.read_text().count("\n") == 2, "the service is stopped")
    pipes = Path(calls.read_text().splitlines()[0].rpartition("|")[2])
    wait_until(lambda: not pipes.parent.exists(), "its folder is removed")
    assert services(calls) == [("GPU-1111-aaaa", "-d quit")]


def test_a_service_that_does_not_start_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_gpus(tmp_path, monkeypatch, None, 1, control="echo An instance is running; exit 1")
    with pytest.raises(ConfigError, match=r"launcher\.mps: got True.*fails here \(An instance is running\)"):
        local("echo", 1, 2, workers=2, mps=True)
    assert services(calls) == [("GPU-1111-aaaa", "-d")]
    settings = SlurmSettings.of({"gpus_per_job": 1, "workers": 2, "mps": True})
    check = PreflightCheck.of(tmp_path, settings)
    assert check.check() == ""
    (tmp_path / "driver" / "nvidia-cuda-mps-control").unlink()
    assert check.check() == "it has no nvidia-cuda-mps-control, which launcher.mps=true needs."
    with pytest.raises(ConfigError, match=r"launcher\.mps: .*nvidia-cuda-mps-control fails.*not found"):
        local("echo", 1, 2, workers=2, mps=True)
    (tmp_path / "driver" / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    with pytest.raises(ConfigError, match=r"launcher\.mps: .*nvidia-smi names no GPUs"):
        local("echo", 1, 2, workers=2, mps=True)


def test_pipes_are_in_a_short_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_gpus(tmp_path, monkeypatch, None, 1)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for name, place in (("short", f"{folder}/short"), ("long" * 20, "/tmp")):
            Path(folder, name).mkdir()
            monkeypatch.setattr(tempfile, "tempdir", f"{folder}/{name}")
            local("echo", 1, 2, workers=2, mps=True)
            pipes = Path(calls.read_text().splitlines()[-1].rpartition("|")[2])
            assert pipes.parent.parent == Path(place)
    assert services(calls) == [("GPU-1111-aaaa", "-d quit")] * 2


@pytest.mark.parametrize(
    ("place", "device", "expected"),
    [(None, "cuda", 20e9), ("host", "cuda:1", 0), ("device", "cuda", math.inf), ("host", "cpu", math.inf)],
)
def test_memory_of_a_gpu_for_clients_states(place: str | None, device: str, expected: float) -> None:
    """A quarter of 80 GB, unless the configuration says where they are kept; a CPU has one memory."""
    assert state_bytes(place, torch.device(device), 80e9) == expected
