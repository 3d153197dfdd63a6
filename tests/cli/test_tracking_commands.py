"""Tracking on the command line: which words there are, and what the commands hand over."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from tracked_runs import closed_port, inspect, of_type

from benchmark.cli.options import TrackingOptions
from benchmark.cli.tracking import settings_of
from benchmark.config.compose import load_group
from benchmark.tracking.settings import TrackingSettings

OFFLINE = ("tracking=wandb", "tracking.mode=offline", "tracking.poll=0.05", "tracking.patience=120")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server, no key, no settings of the user's."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def opened(results: Path) -> dict[str, dict[str, Any]]:
    """Id -> what an offline file says of its run; each id has one file."""
    runs = [of_type(inspect(file), "run")[0] for file in results.glob("wandb/offline-run-*/*.wandb")]
    assert len({run["run_id"] for run in runs}) == len(runs)
    return {run["run_id"]: run for run in runs}


@pytest.mark.parametrize("launcher", ["inline", "local"])
def test_a_table_with_tracking(cli: Any, toy: Any, launcher: str) -> None:
    toy(rows=[{"key": "fedavg", "label": "FedAvg", "method": "fedavg"}])
    words = ("table", "seeds=1", f"launcher={launcher}", *OFFLINE)
    code, _, err = cli(*words)
    assert code == 0
    assert "wandb sync" in err
    runs = opened(Path("results"))
    folders = [path.parent for path in Path("results/runs").glob("*/*/status.json")]
    ids = {f"{folder.parent.name.rpartition('-')[2]}-{folder.name}" for folder in folders}
    assert set(runs) == {*ids, "table-quick-toy_table1"}
    assert len(ids) == 2
    for id in ids:
        assert runs[id]["run_group"] == "toy_table1"
        assert set(runs[id]["tags"]) == {"toy_table1", "toy", "quick", "fedavg", "fake", "uniform"}
    assert runs["table-quick-toy_table1"]["job_type"] == "table"

    before = sorted(Path("results/wandb").iterdir())
    assert cli(*words).code == 0
    assert cli("track", *OFFLINE[1:], "name=toy_table1").out.startswith("0 runs, 0 tables")
    assert sorted(Path("results/wandb").iterdir()) == before, "nothing is sent twice"


def test_track_sends_what_was_not_tracked(cli: Any, toy: Any) -> None:
    toy(rows=[{"key": "fedavg", "label": "FedAvg", "method": "fedavg"}])
    assert cli("table", "seeds=1", "launcher=inline").code == 0
    alone = cli("run", "dataset=fake", "partition=iid", "partition.clients=4", "train.rounds=1")
    assert alone.code == 0
    assert not Path("results/wandb").exists()
    assert cli("track", *OFFLINE[1:], "name=toy_table1").out == "2 runs, 1 tables and figures sent\n"
    assert len(opened(Path("results"))) == 3
    assert cli("track", *OFFLINE[1:]).out == "1 runs, 0 tables and figures sent\n"
    runs = opened(Path("results"))
    assert sorted(run.get("run_group", "") for run in runs.values()) == ["", *["toy_table1"] * 3]
    assert cli("track", *OFFLINE[1:]).out == "0 runs, 0 tables and figures sent\n"


def test_a_sweep_has_one_tracker(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    from benchmark.tracking import settings as tracking

    start = tracking._start
    monkeypatch.setattr(tracking, "_start", lambda tracker: (started.append(tracker), start(tracker)))
    words = ("dataset=fake", "partition=iid", "partition.clients=4", "train.rounds=1", "seed=0,1,2")
    assert cli("run", "-m", *words, *OFFLINE).code == 0
    assert len(started) == 1
    assert {run["job_type"] for run in opened(Path("results")).values()} == {"fedavg"}
    assert {id.rpartition("-")[2] for id in opened(Path("results"))} == {"seed0", "seed1", "seed2"}


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (["tracking=wand"], r"tracking: got 'wand'; .*off, wandb.*'wandb'"),
        (
            ["tracking=wandb", "tracking.projct=x"],
            r"tracking\.projct: no such setting.*Did you mean 'project'",
        ),
        (["tracking=wandb", "tracking.mode=loud"], r"tracking\.mode: got 'loud'"),
        (["tracking.mode=offline"], r"tracking\.mode=?.*tracking is off\. Add tracking=wandb"),
        (["trackin=wandb"], r"unknown key 'trackin'.*Did you mean 'tracking'\?"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("table", "name=fedmr_table1", "seeds=1"),
        ("figure", "name=fedmr_figure4", "seeds=1"),
        ("tune", "method=fedprox", "name=fedmr_table1", "columns=fmnist/p5c2"),
    ],
    ids=lambda words: words[0],
)
def test_wrong_words(cli: Any, command: tuple[str, ...], words: list[str], pattern: str) -> None:
    code, _, err = cli(*command, *words)
    assert code == 2
    assert re.search(pattern, err), err
    assert not list(Path().glob("results/runs/*-*"))


@pytest.mark.parametrize("word", ["tracking=off", "tracking.mode=disabled"])
def test_track_without_tracking(cli: Any, word: str) -> None:
    code, _, err = cli("track", word)
    assert code == 2
    assert err.startswith("error: track: nothing can be sent: tracking is off, or")


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (["tracking=wand"], "Did you mean 'wandb'?"),
        (["tracking=wandb", "tracking.mode=loud"], "tracking.mode: got 'loud'"),
        (
            ["tracking=wandb", "tracking.projct=x"],
            "Did you mean 'project'?",
        ),
    ],
)
def test_wrong_words_of_run(cli: Any, words: list[str], pattern: str) -> None:
    code, _, err = cli("run", *words)
    assert code == 2
    assert pattern in err
    assert not Path("results/runs").exists()


def test_the_files_say_what_the_settings_say() -> None:
    """conf/tracking/wandb.yaml names every key, with the default of the class."""
    plain = load_group("tracking", "wandb")
    assert set(plain) == set(TrackingSettings.model_fields)
    assert TrackingSettings.of(plain) == TrackingSettings(name="wandb")
    assert settings_of(TrackingOptions()) == TrackingSettings(name="off")
    options = TrackingOptions(tracking="wandb", tracking_settings={"tags": "[a, b]", "patience": "5"})
    assert settings_of(options) == TrackingSettings(name="wandb", tags=("a", "b"), patience=5.0)
