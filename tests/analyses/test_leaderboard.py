"""The leaderboard: who is ranked, and what methods cost, counted by hand."""

from __future__ import annotations

import math

import pytest

from benchmark.analyses import leaderboard
from benchmark.analyses.leaderboard import board, costs
from benchmark.experiments.plan import plan
from benchmark.experiments.tables import spec_called
from benchmark.reports.results import Cell, CellRun, build_results


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
