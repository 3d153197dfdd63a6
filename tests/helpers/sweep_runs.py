"""Sweeps in processes of their own, that a test can stop, and what their runs leave on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tiny_runs import FAKE

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ("dataset=digits", "preset=quick", "train.rounds=2")
LONG = (
    "dataset=fake",
    *(f"+dataset.options.{key}={value}" for key, value in FAKE["options"].items()),
    "partition=iid",
    "partition.clients=6",
    "train.batch_size=8",
    "evaluation.every=100",
    "runtime.checkpoint_every=100000",  # what a run goes on from is what it has saved when it was asked to stop
)
"""A round of some milliseconds; train.rounds says for how long."""

Begun = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def processes(folder: Path) -> Iterator[Begun]:
    """``start("run", ...)``: ``python -m benchmark run ...`` in ``folder``, with pipes for stdout and stderr.

    AssertionError if at the end a run of them is still at work on this machine.
    """
    began: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        began.append(
            subprocess.Popen(
                [sys.executable, "-m", "benchmark", *words],
                cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        return began[-1]

    try:
        yield start
    finally:
        for process in began:
            process.kill()
            process.communicate()
        left = [path for path in folder.glob("results/runs/*/*") if _kill(holder_of_run(path))]
    assert not left, f"still at work: {left}"


def _kill(pid: int) -> bool:
    """Whether there was such a process."""
    if not pid:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def holder_of_run(folder: Path, what: str = "pid") -> int:
    """The process (or the ``job``) that works on a run; 0 if none does."""
    leases = sorted(folder.glob("lease.*"), key=lambda path: int(path.suffix[1:]))
    try:
        return int(json.loads(leases[-1].read_text())[what]) if leases else 0
    except ValueError:
        return 0  # released, or being written


def at_work(results: Path, rounds: int) -> Path | None:
    """The folder of a run of so many rounds that a process is at work on and has done some of."""
    for path in results.glob("runs/*/*/config.yaml"):
        records = path.parent / "records.jsonl"
        if yaml.safe_load(path.read_text())["train"]["rounds"] == rounds and holder_of_run(path.parent):
            return path.parent if records.exists() and records.read_bytes().count(b"\n") > 20 else None
    return None


def bits(results: Path) -> dict[str, tuple[bytes, str]]:
    """Records and digest of the model of every run, which must be done."""
    found = {}
    for path in results.glob("runs/*/*/status.json"):
        status = json.loads(path.read_text())
        assert status["state"] == "done"
        name = str(path.parent.relative_to(results))
        found[name] = ((path.parent / "records.jsonl").read_bytes(), status["model_sha256"])
    return found
