"""Tracking on the command line: which words there are, and what the commands send."""

from pathlib import Path
from typing import Any

from tracked_runs import inspect, of_type, wandb_environment  # noqa: F401

OFFLINE = ("tracking=wandb", "tracking.mode=offline", "tracking.poll=0.05")


def opened(results: Path) -> dict[str, dict[str, Any]]:
    """Id -> what an offline file says of its run; each id has one file."""
    runs = [of_type(inspect(file), "run")[0] for file in results.glob("wandb/offline-run-*/*.wandb")]
    assert len({run["run_id"] for run in runs}) == len(runs)
    return {run["run_id"]: run for run in runs}


def test_a_table_with_tracking(cli: Any, toy: Any) -> None:
    toy(rows=[{"key": "fedavg", "label": "FedAvg", "method": "fedavg"}])
    words = ("table", "seeds=1", "launcher=inline", *OFFLINE)
    code, _, err = cli(*words)
    assert (code, err) == (0, "")
    runs = opened(Path("results"))
    folders = [path.parent for path in Path("results/runs").glob("*/*/result.json")]
    ids = {f"{folder.parent.name.rpartition('-')[2]}-{folder.name}" for folder in folders}
    assert set(runs) == {*ids, "table-quick-toy_table1"}
    assert len(ids) == 2
    for id in ids:
        assert runs[id]["run_group"] == "toy_table1"
        assert set(runs[id]["tags"]) == {"toy_table1", "toy", "quick", "fedavg", "fake", "uniform"}
    assert runs["table-quick-toy_table1"]["job_type"] == "table"

    before = sorted(Path("results/wandb").iterdir())
    assert cli(*words).code == 0
    assert cli("track", *OFFLINE[1:]).out == "0 runs, 0 tables and figures sent\n"
    assert sorted(Path("results/wandb").iterdir()) == before, "nothing is sent twice"


def test_track_sends_what_was_not_tracked(cli: Any, toy: Any) -> None:
    toy(rows=[{"key": "fedavg", "label": "FedAvg", "method": "fedavg"}])
    assert cli("table", "seeds=1", "launcher=inline").code == 0
    alone = cli("run", "dataset=fake", "partition=iid", "partition.clients=4", "train.rounds=1")
    assert alone.code == 0
    assert not Path("results/wandb").exists()
    assert cli("track", *OFFLINE[1:]).out == "3 runs, 1 tables and figures sent\n"
    runs = opened(Path("results"))
    assert sorted(run.get("run_group", "") for run in runs.values()) == ["", *["toy_table1"] * 3]
    assert cli("track", *OFFLINE[1:]).out == "0 runs, 0 tables and figures sent\n"
    code, out, err = cli("track", "tracking.init_timeout=1")
    assert (code, out) == (1, "0 runs, 0 tables and figures sent\n") and "W&B cannot be used" in err
