"""What tables ask for before they are made: arithmetic by hand, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmark.commands.planning import plans_of
from benchmark.runs import estimate
from benchmark.runs.estimate import Pace, blocks, timed
from benchmark.runs.plan import unique_runs


def one_block(preset: str, **values: str) -> estimate.Block:
    plans = plans_of({"seeds": "2", **values}, preset)
    (block,) = blocks("t", list(unique_runs([cells for _, cells in plans]).values()))
    return block


def test_samples_rounds_and_evaluations(cli: Any) -> None:
    """FedMR, Table 1: 10 clients hold all 60,000 images, 10 epochs, 100 rounds; 10,000 test images, every 5 rounds."""
    block = one_block("paper", paper="fedmr", table="1", rows="fedavg", columns="fmnist/p10c5")
    assert (block.runs, block.rounds, block.samples_per_round) == (2, 100, 600_000)
    assert block.evaluated == 21 * 10_000
    # 2 x (100 x 600,000 / 100,000 + 210,000 / 210,000) seconds are 1,202.
    assert block.hours(Pace(1e-5, 1 / 210_000)) == pytest.approx(1202 / 3600)


def test_clients_by_their_matrices(cli: Any) -> None:
    """FedDiverse, CMNIST_GSC: 24 clients of 200 samples, 9 of them a round."""
    block = one_block("paper", name="feddiverse_cmnist_gsc", rows="fedavg/uniform")
    assert block.samples_per_round == 9 * 200


def test_a_pace_is_measured(cli: Any) -> None:
    """No number is known beforehand; but twice the images take longer than half of them."""
    plans = plans_of(
        {"seeds": "1", "paper": "fedmr", "table": "1", "rows": "fedmr", "columns": "fmnist/p5c2"}, "quick"
    )
    (run,) = unique_runs([cells for _, cells in plans]).values()
    shape = estimate.Shape(1, 8, 10, "tiny_mlp", "fedmr", 20)
    pace = timed(run, shape)
    assert 0 < pace.train < 1 and 0 < pace.evaluate < 1


def test_plan(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDTABLES_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("benchmark.commands.plan.timed", lambda *_: Pace(1e-5, 0.0))
    words = (
        "plan",
        "paper=fedmr",
        "table=1",
        "preset=paper",
        "seeds=2",
        "rows=fedavg",
        "columns=fmnist/p10c5",
    )
    code, out, err = cli(*words)
    assert code == 0
    assert "fedmr_table1: 2 runs, 0 ended" in out
    (line,) = (line for line in out.splitlines() if "│ fashionmnist" in line)
    assert [cell.strip() for cell in line.split("│")[1:-1]] == [
        "fedmr_table1",
        "fashionmnist",
        "resnet18_32",
        "2",
        "100",
        "600,000",
        "0.3",
        "289 kB",  # 2 x (6 x 4,096 + 100 x 12 x 100)
    ]
    # 70,000 images of 28 x 28 are 54.9 MB.
    assert "fashionmnist: not there; downloads by itself, 55 MB prepared" in out
    assert not (tmp_path / "nothing").exists() and not (tmp_path / "cache").exists(), "looking leaves nothing"
    assert err.count("timing ") == 1
    assert "?" in cli(*words, "timing=off").out


def test_plan_of_data_and_weights_by_hand(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What does not download by itself is told in full."""
    monkeypatch.setenv("FEDTABLES_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("FEDTABLES_WEIGHTS", str(tmp_path / "weights"))
    words = ("plan", "paper=fedld", "table=1", "preset=paper", "rows=fedavg", "timing=off")
    code, out, _ = cli(*words)
    assert code == 0 and "retina: missing" in out
    for part in ("looked at: ", "expected: ", "found: ", "cause: ", "get it: ", "counts: "):
        assert part in out
    assert f"weights {tmp_path}/weights/resnet50-0676ba61.pth: not there; downloads by itself (103 MB" in out


def test_wrong_words(refusal: Any) -> None:
    refusal(["plan", "timing=maybe"], r"timing: came 'maybe'; allowed: on, off")
