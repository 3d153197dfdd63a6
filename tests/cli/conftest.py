"""Commands that are refused, and a table small enough to be made in a second."""

import copy
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import Cli, cli, own_conf  # noqa: F401
from tiny_runs import FAKE

TOY: dict[str, Any] = {
    "paper": "toy",
    "table": 1,
    "title": "Toy (2025), Table 1: nothing of importance",
    "metric": "accuracy",
    "seeds": 3,
    "overrides": [{"dataset": FAKE, "train": {"rounds": 2, "batch_size": 8}, "evaluation": {"every": 1}}],
    "presets": ["quick"],
    "rows": [
        {"key": "fedavg", "label": "FedAvg", "method": "fedavg"},
        {"key": "fedavgm", "label": "FedAvgM", "method": "fedavgm", "selection": "round_robin"},
    ],
    "columns": [
        {"key": "iid", "label": "IID", "partition": {"name": "iid", "clients": 4}},
        {"key": "dir", "label": "Dirichlet", "partition": {"name": "dirichlet", "clients": 3, "min_size": 2}},
        {"key": "avg", "label": "Average", "average_of": ["iid", "dir"]},
    ],
}


@pytest.fixture
def refusal(cli: Cli) -> Callable[[Sequence[str], str], str]:  # noqa: F811
    """``refusal(words, pattern)``: the command is refused with one message, which is returned."""

    def call(words: Sequence[str], said: str) -> str:
        code, out, err = cli(*words)
        assert code == 2, (out, err)
        assert err.startswith("error: "), err
        assert err.count("error: ") == 1, err
        assert "Traceback" not in out + err
        assert re.search(said, err, re.DOTALL), err
        return err

    return call


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``toy(rows=[...])``: the table command knows one table, `TOY` with these changes."""
    folder = own_conf(tmp_path, monkeypatch, "table", "figure") / "table"
    monkeypatch.setattr("benchmark.papers.registry.PAPER_TABLES", ())

    def change(**changes: Any) -> None:
        (folder / "toy_table1.yaml").write_text(yaml.safe_dump(copy.deepcopy(TOY) | changes))

    change()
    return change
