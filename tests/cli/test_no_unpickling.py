"""Whoever can write data into a results folder or the cache cannot make a command run code.

Not meant are code/ (snapshots that workers run from) and what submitit keeps in launches/ for its own tasks.
"""

import io
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

TABLE = ("name=toy_table1", "seeds=1", "rows=fedavg", "columns=iid", "launcher=inline")


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.place,)


def raw(payload: Payload) -> bytes:
    return pickle.dumps(payload, protocol=2)  # torch warns of others


def npz(payload: Payload) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **dict.fromkeys(("flat", "offsets"), np.array([payload], dtype=object)))
    return stream.getvalue()


def npy(payload: Payload) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([payload], dtype=object))
    return stream.getvalue()


def pt(payload: Payload) -> bytes:
    stream = io.BytesIO()
    torch.save({"state": payload}, stream)
    return stream.getvalue()


def tag(payload: Payload) -> bytes:
    return f"name: !!python/object/apply:os.mkdir [{payload.place}]\n".encode()


FORMS: dict[str, tuple[Callable[[Payload], bytes], ...]] = {
    ".npz": (npz, raw),
    ".npy": (npy, raw),
    ".pt": (pt, raw),
    ".yaml": (tag, raw),
}


@pytest.fixture
def files(
    cli: Any, toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[Path, bytes]]:
    """Every kind of file that commands read, with its content: of runs, jobs and data."""
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr("benchmark.tracking.Wandb.open", Mock(side_effect=OSError("no server")))
    toy(rows=[{"key": "fedavg", "label": "FedAvg", "method": "fedavg"}])
    assert cli("table", *TABLE).code == 0
    (run,) = Path("results/runs").glob("*/seed0")
    launch = Path("results/launches/one")
    launch.mkdir(parents=True)
    (launch / "job").write_text("7")
    for name in ("plan.json", "7_0_0_log.err", "7_0_0_result.pkl", "7_0_submitted.pkl", "worker0.log"):
        (launch / name).write_text("{}")
    attempt = run.with_name(".seed0-0123456789ab")
    attempt.mkdir()
    shutil.copy(run / "config.yaml", attempt)
    for name in ("checkpoint.pt", "records.jsonl", "launch", "end"):
        (attempt / name).touch()
    tuned = Path("results/tuned/quick/toy_table1.yaml")
    tuned.parent.mkdir(parents=True)
    tuned.write_text("table: toy_table1\npreset: quick\ncells: {}\n")
    paths = [path for folder in ("results", "cache") for path in sorted(Path(folder).rglob("*"))]
    paths = [path for path in paths if path.is_file() and path.parts[1] != "code"]
    return {str(path): (path, path.read_bytes()) for path in paths}


def is_read_by_runs(path: Path) -> bool:
    return "cache" in path.parts or path.parent.name.startswith(".seed")


COMMANDS = {
    "status": (),
    "table": TABLE,
    "runs": (),
    "export": ("wandb",),
    "report": (),
}


def test_nothing_is_unpickled(cli: Any, files: dict[str, tuple[Path, bytes]], tmp_path: Path) -> None:
    """What a run reads, the cache and attempts, is read by a table whose run is gone."""
    payload = Payload(tmp_path / "ran")
    assert {"result.json", "records.jsonl", "config.yaml", "plan.json", "FORMAT", "checkpoint.pt"} <= {
        path.name for path, _ in files.values()
    }
    for path, content in sorted(files.values(), key=lambda file: is_read_by_runs(file[0])):
        for form in FORMS.get(path.suffix, (raw,)):
            for command in ("table",) if is_read_by_runs(path) else COMMANDS:
                if is_read_by_runs(path):
                    for run in Path("results/runs").glob("*/seed0"):
                        shutil.rmtree(run)
                planted = form(payload)
                if path.suffix == ".npy":  # the size of arrays is compared first
                    planted = planted.ljust(len(content), b"\0")
                replace(path, planted)
                assert cli(command, *COMMANDS[command]).code in (0, 1, 2), (path, command)
                assert not (tmp_path / "ran").exists(), (path, command)
        replace(path, content)


def replace(path: Path, content: bytes) -> None:
    """Write a new file: the old one may be memory-mapped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
