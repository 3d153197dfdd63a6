"""Tracking on the command line: which words there are, and what the commands send."""

from pathlib import Path
from typing import Any

import pytest
from tracked_runs import inspect, of_type, offline_files, wandb_environment  # noqa: F401

OFFLINE = ("tracking=wandb", "tracking.mode=offline")


def opened(results: Path) -> list[dict[str, Any]]:
    """What offline files say of their runs."""
    return [of_type(inspect(file), "run")[0] for file in offline_files(results)]


@pytest.mark.slow
def test_a_table_with_tracking(cli: Any, toy: Any) -> None:
    """With workers, whose runs know the table; the runs that are there already are not sent again."""
    toy(rows=[{"key": "fedavg", "label": "FedAvg", "method": "fedavg"}])
    code, _, err = cli("table", "seeds=1", "workers=2", *OFFLINE)
    assert (code, err) == (0, "")
    runs = opened(Path("results"))
    assert sorted(run["job_type"] for run in runs) == ["fedavg", "fedavg", "table"]
    assert {run["run_group"] for run in runs} == {"toy_table1"}
    tags = {"toy_table1", "toy", "quick", "fedavg", "fake", "uniform"}
    assert all(set(run["tags"]) == tags for run in runs if run["job_type"] == "fedavg")
    assert cli("export", "wandb", *OFFLINE[1:]).out == "0 runs sent\n"


def test_export_sends_what_was_not_tracked(cli: Any, toy: Any) -> None:
    toy(rows=[{"key": "fedavg", "label": "FedAvg", "method": "fedavg"}])
    assert cli("table", "seeds=1", "launcher=inline").code == 0
    assert not Path("results/wandb").exists()
    code, out, err = cli("export", "wandb", "tracking.init_timeout=1")
    assert (code, out) == (1, "0 runs sent\n") and "W&B cannot be used" in err
    assert cli("export", "wandb", *OFFLINE[1:]).out == "2 runs sent\n"
    assert len(opened(Path("results"))) == 2
