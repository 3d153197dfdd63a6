"""Folders of runs written by hand, and wandb's own reader of offline files, for tests."""

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from finished_runs import MADE, ORIGIN

from benchmark import tracking
from benchmark.runs.folder import ResultsFolder, write_result
from benchmark.runs.status import Result, RunState
from benchmark.tracking import TrackedRun, TrackingSettings

KEY = "digits-pcdd-fedavg-uniform-0123456789ab/seed3"
RUN = TrackedRun(KEY, "fedmr_table1", ("fedmr_table1", "fedmr"))
ID = "0123456789ab-seed3"
CONFIG = {
    "hash": "0123456789ab",
    "preset": "quick",
    "method": {"name": "fedavg"},
    "dataset": {"name": "digits", "options": {"stands_for": "mnist"}},
    "selection": {"name": "uniform"},
    "seed": 3,
}

# What rounds 0 to 4 leave in records.jsonl, and what of it is to arrive.
ROUNDS: dict[int, list[tuple[str, str, str, float]]] = {
    0: [
        ("test", "all", "accuracy", 0.1),
        ("test", "class=1", "accuracy", 0.25),
        ("cost", "all", "forward", 60.0),
    ],
    1: [("train", "all", "loss", 2.5), ("participation", "client=7", "weight", 0.125)],
    2: [
        ("train", "all", "loss", 1.0 / 3.0),
        ("participation", "client=2", "weight", 1.0),
        ("test", "all", "accuracy", 0.30000000000000004),
        ("test", "class=1,attribute=0", "accuracy", 1e-7),
    ],
    3: [("train", "all", "loss", 1.5)],
    4: [("train", "all", "loss", 1.25), ("test", "all", "accuracy", 0.75)],
}
LOGGED: dict[int, dict[str, float]] = {
    0: {"test/accuracy": 0.1, "test/accuracy/class=1": 0.25, "cost/forward": 60.0},
    1: {"train/loss": 2.5},
    2: {
        "train/loss": 1.0 / 3.0,
        "test/accuracy": 0.30000000000000004,
        "test/accuracy/class=1,attribute=0": 1e-7,
    },
    3: {"train/loss": 1.5},
    4: {"train/loss": 1.25, "test/accuracy": 0.75},
}


def settings(**changes: Any) -> TrackingSettings:
    """Offline, with short times."""
    return TrackingSettings(**{"name": "wandb", "mode": "offline", "poll": 0.1, "init_timeout": 1, **changes})


def lines(rounds: Sequence[int]) -> bytes:
    names = ("split", "group", "metric", "value")
    return b"".join(
        json.dumps({"round": number, **dict(zip(names, values, strict=True))}).encode() + b"\n"
        for number in rounds
        for values in ROUNDS[number]
    )


def write_run(root: Path, key: str = KEY, state: str = "done", message: str = "") -> Path:
    """The folder of a finished run of four rounds."""
    folder = ResultsFolder(root).open().run(key)
    folder.path.mkdir(parents=True)
    content = lines(range(5))
    (folder.path / "records.jsonl").write_bytes(content)
    (folder.path / "config.yaml").write_text(json.dumps(CONFIG))
    sha256, final = hashlib.sha256(content).hexdigest(), {"test": {"accuracy": 0.75}}
    sizes = {"records_bytes": len(content), "records_sha256": sha256, "model_sha256": ""}
    place = {"hash": CONFIG["hash"], "seed": int(key.rpartition("seed")[2]), "origin": ORIGIN, "made": MADE}
    result = Result(RunState(state), message, 4, 8.0, final=final, **place, **sizes)  # type: ignore[arg-type]
    write_result(folder.path, result)
    return folder.path


# Reading back ------------------------------------------------------------------------------------------------------


def inspect(file: Path) -> list[dict[str, Any]]:
    """The records of an offline file, by the reader that comes with wandb."""
    from wandb.util import get_core_path

    flags = ["--no-observability", "--json", "--run-file", str(file)]
    words = [get_core_path(), "leet", "inspect", *flags, str(file.parent.parent)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def offline_files(root: Path, id: str = ID) -> list[Path]:
    """The offline files of a run, in the order in which they were begun."""
    found = (root / "wandb").glob(f"offline-run-*/run-{id}.wandb")
    return sorted(found)  # the folders' names begin with the time


def history(files: Sequence[Path]) -> list[tuple[int, dict[str, float]]]:
    """(step, logged values) of every logged round; ``round`` is checked to be the step, and left out."""
    found = []
    for file in files:
        for record in inspect(file):
            if record["type"] == "history":
                item = record["history"]["item"]
                assert item["round"] == item["_step"] == record["history"]["step"]["num"]
                values = {key: value for key, value in item.items() if key != "round" and key[0] != "_"}
                found.append((item["round"], values))
    return found


def of_type(records: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record[kind] for record in records if record["type"] == kind]


def merged(updates: Sequence[dict[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for update in updates:
        values |= update.get("update", {})
    return values


@pytest.fixture(autouse=True)
def wandb_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No server, no key, no settings of the user's; what is sent all the same ends at a closed port."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{one.getsockname()[1]}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    # A slow machine is no dead server.
    monkeypatch.setattr(tracking, "WAIT_SECONDS", 300.0)
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # with the address of the server, which it keeps
