"""The leaderboard: who is ranked, and what methods cost, counted by hand."""

from pathlib import Path

import pandas as pd
import pytest
from finished_runs import drawn, finish

from benchmark.analyses import leaderboard
from benchmark.analyses.leaderboard import costs
from benchmark.experiments.figures import FIGURE_FOLDER, load_figure
from benchmark.experiments.plan import plan
from benchmark.experiments.selection import RunQuery
from benchmark.experiments.tables import spec_called
from benchmark.runs.store import ResultsFolder


def test_the_table_and_the_diagram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedProx wins with seed 0, but its seed 1 diverged and comes last there. One run of MOON is missing."""
    rows, columns = ("fedavg", "fedprox", "scaffold", "moon"), ("fmnist/p10c2", "cmnist_gsc")
    spec = spec_called("leaderboard").cut(rows, columns)
    monkeypatch.setattr(leaderboard, "spec_called", lambda name: spec)
    monkeypatch.setattr(leaderboard, "costs", lambda spec, cells: {"FedAvg": {"time": 1.0}})
    options = RunQuery(results=tmp_path, seeds=2, tuned="off")
    results = ResultsFolder(tmp_path).open()
    assert list(leaderboard.leaderboard(options).data["method"]) == [row.label for row in spec.rows]
    reached = {"fedavg": 0.5, "fedprox": 0.7, "scaffold": 0.6, "moon": 0.9}
    for (row, column), cell in plan(spec, "quick", range(2)).items():
        for run in cell.runs:
            if (row, run.seed) == ("fedprox", 1):
                finish(results, run, state="diverged")
            elif (row, column, run.seed) != ("moon", "cmnist_gsc", 1):
                finish(results, run, final={"test": {spec.metric: reached[row] + run.seed / 10}})
    table = leaderboard.leaderboard(options)
    data = table.data.set_index("method")
    assert data["rank"].to_dict() == {"SCAFFOLD": 1.5, "FedProx": 2, "FedAvg": 2.5}
    assert data[spec.columns[0].label].tolist() == pytest.approx([65, 70, 55])
    assert data["time"].dropna().to_dict() == {"FedAvg": 1.0}
    command = "python -m benchmark table name=leaderboard preset=quick seeds=2"
    assert f"Not ranked, as runs are missing: MOON. Make them with: {command}" in table.notes[2].lines[0]
    figure = load_figure(FIGURE_FOLDER / "leaderboard.yaml")
    drawing = drawn(figure.model_copy(update={"rows": rows, "columns": columns}), tmp_path)
    (axis,) = drawing.figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == list(data.index)
    assert drawing.data["rank"].tolist() == [1.5, 2, 2.5]
    assert drawing.remarks[1] == "Not ranked, as runs are missing: MOON."


def test_costs_in_model_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of length d sent up and down, kept by a client and by the server."""
    monkeypatch.setattr(leaderboard, "REPEATS", 1)
    monkeypatch.setattr(leaderboard, "ROUNDS", 1)
    rows = "fedavg fedavgm fedadam scaffold feddyn feddc moon fedmr fedrep fedpac hcsfed".split()
    spec = spec_called("leaderboard").cut(rows, ["fmnist/p10c2"])
    prices = pd.DataFrame(costs(spec, plan(spec, "quick", range(1))))
    # FedMR: C h = 10 x 64 features and 10 counts up, features and 10 flags down; the MLP on 8 x 8 images has
    # (64 64 + 64) + (64 10 + 10) = 4,810 parameters. FedRep's head (650) stays. FedPAC's takes the place of the model's
    # own; beside it go up V, H, class sums and counts (1 + 640 + 640 + 10), and down features and flags (640 + 10).
    head, several = 650 / 4810, 1291 / 4810
    expected = {
        "FedAvg": (1, 1, 0, 0),
        "FedAvgM": (1, 1, 0, 1),
        "FedAdam": (1, 1, 0, 2),
        "SCAFFOLD": (2, 2, 1, 1),
        "FedDyn": (1, 1, 1, 1),
        "FedDC": (2, 2, 2, 2),
        "MOON": (1, 1, 1, 0),
        "FedMR": (1 + head, 1 + head),
        "FedRep": (1 - head, 1 - head, head),
        "FedPAC": (1 + several, 1 + head),
    }
    for method, counted in expected.items():
        line = prices.loc[["up", "down", "client", "server"], method]
        assert tuple(line)[: len(counted)] == pytest.approx(counted, abs=1e-9), method
    assert "HCSFed" not in prices  # one client cannot be put into its clusters
    assert prices.loc["time", "FedAvg"] == 1.0 and prices.loc["time", "MOON"] > 0
