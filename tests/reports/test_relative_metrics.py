"""Metrics that compare a row with another one: rounds until it gets there, and the speed-up (FedMR, Table 4)."""

from pathlib import Path
from typing import Any

from finished_runs import as_markdown, fail, finish, toy_table

from benchmark.engine.records import Record
from benchmark.experiments.plan import plan
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import load_spec
from benchmark.paths import CONF
from benchmark.reports.collect import collect
from benchmark.reports.layout import as_table
from benchmark.reports.render import latex
from benchmark.reports.results import TableResults
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

CURVES: dict[str, list[dict[int, float] | str]] = {
    # Best .5 in round 2, .6 in round 3, .3 in round 1 and again in 2; what the untrained model gets does not count.
    "fedavg": [{0: 0.9, 1: 0.2, 2: 0.5, 3: 0.4}, {1: 0.2, 2: 0.3, 3: 0.6}, {1: 0.3, 2: 0.3, 3: 0.2}],
    "fedprox": [{1: 0.5, 2: 0.1, 3: 0.7}, {1: 0.5, 2: 0.59, 3: 0.6}, {1: 0.29, 2: 0.31, 3: 0.3}],
    "fedavgm": [{1: 0.1, 2: 0.45, 3: 0.49}, {1: 0.1, 2: 0.7, 3: 0.7}, "failed"],
}
OTHERS = [
    Record(1, "test", "all", "loss", 9.0),
    Record(1, "validation", "all", "accuracy", 0.99),
    Record(1, "test", "class=0", "accuracy", 0.99),
]
"""Records of other names and splits, which must not be counted."""


def spec_of(**changes: Any) -> TableSpec:
    return toy_table(CURVES, **{"metric": "rounds_to_reach", "reference_row": "fedavg"} | changes)


def results_of(tmp_path: Path, skip: tuple[str, int] | None = None, **changes: Any) -> TableResults:
    spec, results = spec_of(**changes), ResultsFolder(tmp_path / "results").open()
    cells = plan(spec, "quick")
    for run, row in ((run, row) for (row, _), cell in cells.items() for run in cell.runs):
        curve = CURVES[row][run.seed]
        if isinstance(curve, str):
            fail(results, run)
        elif (row, run.seed) != skip:
            records = [Record(t, "test", "all", "accuracy", value) for t, value in curve.items()]
            finish(results, run, records + OTHERS)
    return collect(spec, "quick", cells, RunIndex(results))


def outcomes(results: TableResults) -> dict[str, list[tuple[str, float | None]]]:
    return {row: [(run.outcome, run.value) for run in cell.runs] for (row, _), cell in results.cells.items()}


def test_rounds_to_reach(tmp_path: Path) -> None:
    """Seed by seed: the first round at or above the reference's best."""
    results = results_of(tmp_path)
    assert outcomes(results) == {
        "fedavg": [("done", 2), ("done", 3), ("done", 1)],
        "fedprox": [("done", 1), ("done", 3), ("done", 2)],
        "fedavgm": [("not reached", None), ("done", 2), ("failed", None)],
    }
    # A row that never got there in one seed is neither ranked nor counted as missing.
    assert results.cells["fedavg", "a"].mark.best and results.cells["fedprox", "a"].mark.best
    never = results.cells["fedavgm", "a"]
    assert not never.complete
    assert never.troubles == {"not reached": [0], "failed": [2]}
    text = as_markdown(results)
    assert "2.00 (n=1 of 3, 1 not reached, 1 failed)" in text
    assert "not reached (seed 0): fedavgm" in text
    assert "seed by seed with fedavg" in text and "last round" not in text
    assert "(lowest) mean" in text
    printed = latex.render(as_table(results))
    assert r"1/3\,NF" in printed and "N: not reached" in printed
    assert "0=not reached;1=2.0;2=failed" in as_table(results).data.to_csv(index=False)


def test_speedup(tmp_path: Path) -> None:
    """Rounds of the reference over rounds of the row: 2/1, 3/3, 1/2 and 3/2."""
    results = results_of(tmp_path, metric="speedup")
    values = {row: [value for _, value in runs] for row, runs in outcomes(results).items()}
    assert values == {"fedavg": [1, 1, 1], "fedprox": [2, 1, 0.5], "fedavgm": [None, 1.5, None]}
    assert "(highest) mean" in as_markdown(results)


def test_without_the_reference_there_is_nothing_to_reach(tmp_path: Path) -> None:
    runs = outcomes(results_of(tmp_path, skip=("fedavg", 1)))
    assert [outcome for outcome, _ in runs["fedprox"]] == ["done", "missing", "done"]
    assert [outcome for outcome, _ in runs["fedavgm"]] == ["not reached", "missing", "failed"]


def test_the_two_halves_of_fedmr_table_4_are_made_of_the_same_runs() -> None:
    """Evaluated after every round: otherwise the first round that reaches a value is unknown."""
    rounds, speedup = (
        load_spec(CONF / "table" / f"{name}.yaml") for name in ("fedmr_table4", "fedmr_speedup")
    )
    for preset in ("quick", "small", "paper"):
        cells = plan(rounds, preset)
        assert cells == plan(speedup, preset)
        assert {run.evaluation.every for cell in cells.values() for run in cell.runs} <= {1}
