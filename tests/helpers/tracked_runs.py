"""wandb's own reader of offline files, and an environment without a server, for tests."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmark.engine.records import Record
from benchmark.tracking import Wandb


def wandb(root: Path, groups: dict[str, tuple[str, ...]] | None = None, **settings: Any) -> Wandb:
    """Offline, with a short time to wait for a server."""
    plain = {"name": "wandb", "mode": "offline", "init_timeout": 1, **settings}
    return Wandb.model_validate({"settings": plain, "root": root, "groups": groups or {}})


def by_round(records: Sequence[Record]) -> list[tuple[int, dict[str, float]]]:
    """(round, values) as W&B is to have them."""
    rounds: dict[int, dict[str, float]] = {}
    for record in records:
        if record.split != "participation":
            name = f"{record.split}/{record.metric}"
            name += "" if record.group == "all" else f"/{record.group}"
            rounds.setdefault(record.round, {})[name] = record.value
    return sorted(rounds.items())


def inspect(file: Path) -> list[dict[str, Any]]:
    """The records of an offline file, by the reader that comes with wandb."""
    from wandb.util import get_core_path

    flags = ["--no-observability", "--json", "--run-file", str(file)]
    words = [get_core_path(), "leet", "inspect", *flags, str(file.parent.parent)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def offline_files(root: Path) -> list[Path]:
    """All offline files, in the order in which they were begun."""
    return sorted((root / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime)


def history(files: Sequence[Path]) -> list[tuple[int, dict[str, float]]]:
    """(round, logged values) of every logged round; the round is checked to be the step, and left out."""
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
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # with the address of the server, which it keeps
