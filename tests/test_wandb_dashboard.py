"""The dashboard as code: its names are those that tracking logs, and it becomes the specification that W&B reads."""

import runpy
import sys
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


def test_it_becomes_the_specification(dashboard: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb_workspaces", reason="the optional package wandb-workspaces is not installed")
    from wandb_workspaces.reports.v2 import interface

    # The number of the project is asked of the server; everything else is made here.
    monkeypatch.setattr(interface, "_get_api", lambda: None)
    monkeypatch.setattr(interface, "execute_graphql", lambda *_: {"project": {"internalId": "1"}})
    spec = dashboard.report("team", "mine")._to_model().spec.model_dump(by_alias=True)
    grids = [block["metadata"] for block in spec["blocks"] if block["type"] == "panel-grid"]
    for grid, wanted in zip(grids, (("NIN", ["table", "figure"]), ("=", "table")), strict=True):
        (runs,) = grid["runSets"]
        assert (runs["project"]["entityName"], runs["project"]["name"]) == ("team", "mine")
        (chosen,) = runs["filters"]["filters"]
        assert (chosen["key"]["name"], chosen["op"], chosen["value"]) == ("jobType", *wanted)
    *lines, bar = (panel["config"] for panel in grids[0]["panelBankSectionConfig"]["panels"])
    assert {line["chartTitle"]: line["metrics"][0] for line in lines} == dashboard.LINES
    assert {(line["groupBy"], line["xAxis"]) for line in lines} == {("method.value.name", "round")}
    assert bar["metrics"] == ["summary_metrics.seconds_per_round"]


def test_without_the_package(
    dashboard: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports.v2", None)
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    assert dashboard.main([]) == 0
    assert "Worst-group accuracy: test/worst_group_accuracy\n" in capsys.readouterr().out
    assert dashboard.main(["create", "team"]) == 2
    assert "pip install wandb-workspaces" in capsys.readouterr().err
    assert dashboard.main(["make", "it"]) == 2
    assert "got 'make it'" in capsys.readouterr().err
