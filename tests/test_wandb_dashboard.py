"""The dashboard as code: its names are those that tracking logs, and it becomes the specification that W&B reads."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from tracked_runs import history, inspect, merged, of_type, offline_files, wandb_environment  # noqa: F401

from benchmark.cli.make import run as run_command

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "wandb_dashboard.py"


@pytest.fixture(scope="module")
def dashboard() -> SimpleNamespace:
    """The script as a module."""
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def test_every_name_is_one_that_tracking_logs(dashboard: SimpleNamespace, tmp_path: Path) -> None:
    words = ["dataset=fake", "partition=iid", "partition.clients=4", "train.rounds=1", "tracking=wandb"]
    assert run_command([*words, "tracking.mode=offline", f"paths.results={tmp_path}"]) == 0
    (file,) = offline_files(tmp_path)
    logged = {name for _, values in history([file]) for name in values}
    above = set(merged(of_type(inspect(file), "summary")))
    assert set(dashboard.LINES.values()) <= logged
    assert set(dashboard.BARS.values()) <= above
