"""The leaderboard: who is ranked, and what methods cost, counted by hand."""

import math
from pathlib import Path

import pytest
from finished_runs import drawn, finish

from benchmark.analyses import leaderboard
from benchmark.analyses.leaderboard import board, costs
from benchmark.analyses.registry import RunOptions
from benchmark.experiments.figures import FIGURE_FOLDER, load_figure
from benchmark.experiments.plan import plan
from benchmark.experiments.tables import spec_called
from benchmark.reports.results import Cell, CellRun, build_results
from benchmark.runs.store import Results


def test_only_methods_with_all_their_runs_are_ranked() -> None:
    """FedAvg is done, FedProx diverged once and comes last there, SCAFFOLD lacks a run."""
    spec = spec_called("leaderboard").cut(["fedavg", "fedprox", "scaffold"], ["fmnist/p5c2", "cmnist_gsc"])
    cells = {}
    for row in spec.rows:
        for column in spec.columns:
            runs = [CellRun(seed, "done", 0.5 + 0.1 * seed, "runs/x") for seed in range(2)]
            if row.key == "fedprox":
                runs = [CellRun(0, "done", 0.9, "runs/y"), CellRun(1, "diverged", None, "runs/y")]
            if row.key == "scaffold" and column.key == "cmnist_gsc":
                runs[1] = CellRun(1, "missing")
            cells[row.key, column.key] = Cell("ok", tuple(runs))
    found = board(build_results(spec, "quick", cells))
    assert found.incomplete == ["SCAFFOLD"]
    assert list(found.values.columns) == ["FedAvg", "FedProx"]
    assert [column for column, _ in found.values.index] == ["fmnist/p5c2"] * 2 + ["cmnist_gsc"] * 2
    assert found.values["FedProx"].tolist() == [0.9, -math.inf, 0.9, -math.inf]
    # FedProx wins with seed 0, FedAvg with seed 1, twice each.
    assert found.ranking.table["rank"].tolist() == [1.5, 1.5]


def test_the_table_and_the_diagram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedProx leads everywhere, FedAvg is last, MOON has no runs."""
    rows, columns = ("fedavg", "fedprox", "scaffold", "moon"), ("fmnist/p5c2", "cmnist_gsc")
    spec = spec_called("leaderboard").cut(rows, columns)
    monkeypatch.setattr(leaderboard, "spec_called", lambda name: spec)
    monkeypatch.setattr(leaderboard, "costs", lambda spec, cells: {"FedAvg": {"time": 1.0}})
    options = RunOptions(results=tmp_path, seeds=2, tuned="off")
    results = Results(tmp_path).open()
    assert list(leaderboard.leaderboard(options).data["method"]) == [row.label for row in spec.rows]
    reached = {"fedavg": 0.5, "fedprox": 0.7, "scaffold": 0.6}
    for (row, _), cell in plan(spec, "quick", range(2)).items():
        for run in cell.runs if row in reached else ():
            finish(results, run, final={"test": {spec.metric: reached[row] + run.seed / 10}})
    table = leaderboard.leaderboard(options)
    data = table.data.set_index("method")
    assert data["rank"].to_dict() == {"FedProx": 1, "SCAFFOLD": 2, "FedAvg": 3}
    assert data[spec.columns[0].label].tolist() == pytest.approx([75, 65, 55])
    assert data["time"].dropna().to_dict() == {"FedAvg": 1.0}
    command = "python -m benchmark table name=leaderboard preset=quick seeds=2"
    assert f"Not ranked, as runs are missing: MOON. Make them with: {command}" in table.notes[2].lines[0]
    figure = load_figure(FIGURE_FOLDER / "leaderboard.yaml")
    drawing = drawn(figure.model_copy(update={"rows": rows, "columns": columns}), tmp_path)
    (axis,) = drawing.figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == list(data.index)
    assert drawing.data["rank"].tolist() == [1, 2, 3]
    assert drawing.remarks[1] == "Not ranked, as runs are missing: MOON."


def test_costs_in_model_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of length d sent up and down, kept by a client and by the server."""
    monkeypatch.setattr(leaderboard, "REPEATS", 1)
    monkeypatch.setattr(leaderboard, "ROUNDS", 1)
    rows = "fedavg fedavgm fedadam scaffold feddyn feddc moon fedmr fedrep fedpac".split()
    spec = spec_called("leaderboard").cut(rows, ["fmnist/p5c2"])
    found = costs(spec, plan(spec, "quick", range(1)))
    expected = {
        "FedAvg": (1, 1, 0, 0),
        "FedAvgM": (1, 1, 0, 1),
        "FedAdam": (1, 1, 0, 2),
        "SCAFFOLD": (2, 2, 1, 1),
        "FedDyn": (1, 1, 1, 1),
        "FedDC": (2, 2, 2, 2),
        "MOON": (1, 1, 1, 0),
    }
    for method, counted in expected.items():
        line = [found[method][name] for name in ("up", "down", "client", "server")]
        assert line == pytest.approx(counted, abs=1e-9), method
    assert found["FedAvg"]["time"] == 1.0 and found["MOON"]["time"] > 0
    # FedMR: C h = 10 x 32 features and 10 counts up, features and 10 flags down; the MLP on 8 x 8 images has
    # (64 64 + 64) + (64 32 + 32) + (32 10 + 10) = 6,570 parameters.
    assert (found["FedMR"]["up"], found["FedMR"]["down"]) == pytest.approx((1 + 330 / 6570,) * 2, abs=1e-9)
    # FedRep's head (330) stays. FedPAC's takes the place of the model's own; beside it go up V, H, class sums and
    # counts (1 + 320 + 320 + 10), and down features and flags (320 + 10).
    assert (found["FedRep"]["up"], found["FedRep"]["down"]) == pytest.approx((1 - 330 / 6570,) * 2, abs=1e-9)
    assert found["FedRep"]["client"] == pytest.approx(330 / 6570, abs=1e-9)
    assert found["FedPAC"]["up"] == pytest.approx(1 + 651 / 6570, abs=1e-9)
    assert found["FedPAC"]["down"] == pytest.approx(1 + 330 / 6570, abs=1e-9)
