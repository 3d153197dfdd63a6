"""`run -m hydra/launcher=submitit_slurm` on a cluster that is there: its jobs, queued again and cancelled."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweep_runs import DIGITS, LONG, Begun, at_work, bits, holder_of_run, processes
from tiny_runs import wait_until

SLURM = "hydra/launcher=submitit_slurm"
SECONDS = 300
"""A cluster may have other work."""


pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("cluster")]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Begun]:
    """``begun("run", ...)``: the command as a process of its own; its jobs end with the test."""
    name = f"hydra{os.getpid()}"
    try:
        with processes(tmp_path) as start:
            yield lambda *words: start(*words, f"hydra.launcher.name={name}" if SLURM in words else "seed=1")
    finally:
        subprocess.run(["scancel", "--me", f"--name={name}"], check=False)


def ended(process: subprocess.Popen[str], code: int) -> tuple[str, str]:
    """What the command said when it ended with ``code``."""
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code, err
    assert "Traceback" not in out + err
    return out, err


def test_the_jobs_give_the_same_bits(begun: Begun, tmp_path: Path) -> None:
    words = ("run", "-m", *DIGITS, "method=fedavg,fedmr", "seed=1")
    out, _ = ended(begun(*words, SLURM), 0)
    assert out.endswith("\n2 runs: 2 done\n")
    ended(begun(*words[:-1], "paths.results=basic"), 0)
    assert len(bits(tmp_path / "results")) == 2
    assert bits(tmp_path / "results") == bits(tmp_path / "basic")


def test_what_slurm_refuses(begun: Begun) -> None:
    words = ("run", "-m", *DIGITS, "seed=0,1", SLURM, "hydra.launcher.partition=nowhere")
    _, err = ended(begun(*words), 2)
    assert err.startswith("error: SLURM takes no job with these settings (hydra.launcher.*): ")
    assert err.count("nvalid partition") == 2  # both lines of sbatch, once
    assert "Nothing was submitted." in err


@pytest.mark.parametrize("how", ["SIGUSR2", "requeue"])
def test_a_job_that_is_queued_again(begun: Begun, tmp_path: Path, how: str) -> None:
    """Asked by submitit's signal, or killed by SLURM itself: it goes on to the bits of a run that never stopped."""
    process = begun("run", "-m", *LONG, "train.rounds=400", "seed=1", SLURM, "hydra.launcher.timeout_min=30")
    results = tmp_path / "results"
    wait_until(lambda: at_work(results, 400) is not None, "the run is at work", SECONDS)
    folder = at_work(results, 400)
    assert folder is not None
    job = str(holder_of_run(folder, "job"))
    command = ["scontrol", "requeue", job] if how == "requeue" else ["scancel", "--signal=USR2", f"{job}.0"]
    subprocess.run(command, check=True)
    out, _ = ended(process, 0)
    assert out.endswith("\n1 run: 1 done\n")
    resumed = re.search(r"resumed after round (\d+)", (folder / "log.txt").read_text())
    assert resumed and 0 < int(resumed[1]) < 400
    ended(begun("run", *LONG, "train.rounds=400", "paths.results=basic"), 0)
    assert bits(results) == bits(tmp_path / "basic")


def test_a_job_that_is_cancelled(begun: Begun, tmp_path: Path) -> None:
    """It saves its state; the sweep says so, and the same command would go on."""
    process = begun("run", "-m", *LONG, "train.rounds=1000000", "seed=1", SLURM)
    results = tmp_path / "results"
    wait_until(lambda: at_work(results, 1000000) is not None, "the run is at work", SECONDS)
    folder = at_work(results, 1000000)
    assert folder is not None
    subprocess.run(["scancel", str(holder_of_run(folder, "job"))], check=True)
    out, err = ended(process, 130)
    assert out.endswith("\n1 run: 1 interrupted\n")
    assert re.search(r"^interrupted: results/runs/\S+/seed1: ", err, re.MULTILINE)
    assert (folder / "checkpoint.pt").exists()


def test_a_sweep_that_is_left_alone(begun: Begun, tmp_path: Path) -> None:
    """Ctrl-C ends the command; what it has submitted goes on."""
    process = begun("run", "-m", *LONG, "train.rounds=1000000", "seed=1", SLURM)
    results = tmp_path / "results"
    wait_until(lambda: at_work(results, 1000000) is not None, "the run is at work", SECONDS)
    process.send_signal(signal.SIGINT)
    _, err = ended(process, 130)
    assert err.startswith("left alone: jobs that were submitted go on")
    folder = at_work(results, 1000000)
    assert folder is not None
    subprocess.run(["scancel", str(holder_of_run(folder, "job"))], check=True)
    wait_until(lambda: not holder_of_run(folder), "the job has ended", SECONDS)
