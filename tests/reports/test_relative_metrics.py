"""Metrics that compare a row with another one: rounds until it gets there, and the speed-up (FedMR, Table 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.errors import ConfigError
from benchmark.experiments.plan import plan
from benchmark.experiments.spec import TABLE_FOLDER, TableSpec, load_spec
from benchmark.reports.collect import collect
from benchmark.reports.tables import Table
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import Results

CURVES: dict[str, list[dict[int, float] | str]] = {
    # Best .5 in round 2, .6 in round 3, .3 in round 1 and again in 2; what the untrained model gets does not count.
    "fedavg": [{0: 0.9, 1: 0.2, 2: 0.5, 3: 0.4}, {1: 0.2, 2: 0.3, 3: 0.6}, {1: 0.3, 2: 0.3, 3: 0.2}],
    "fedprox": [{1: 0.5, 2: 0.1, 3: 0.7}, {1: 0.5, 2: 0.59, 3: 0.6}, {1: 0.29, 2: 0.31, 3: 0.3}],
    "fedavgm": [{1: 0.1, 2: 0.45, 3: 0.49}, {1: 0.1, 2: 0.7, 3: 0.7}, "failed"],
}


def spec_of(tmp_path: Path, **changes: Any) -> TableSpec:
    node = {
        "paper": "toy",
        "title": "Toy",
        "metric": "rounds_to_reach",
        "reference_row": "fedavg",
        "presets": {"quick": {}},
        "rows": [{"key": name, "label": name, "method": name} for name in CURVES],
        "columns": [{"key": "a", "label": "A", "presets": {"quick": {"dataset": "digits"}}}],
    }
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(node | changes))
    return load_spec(path)


def write_run(results: Results, run: RunConfig, curve: dict[int, float] | str) -> None:
    """A run's folder with this test accuracy; records of other names and splits are there to be overlooked."""
    folder = results.run(run.key)
    folder.path.mkdir(parents=True)
    if isinstance(curve, str):
        folder.write_status(Status(state=RunState(curve)))
        return
    records = [Record(t, "test", "all", "accuracy", value) for t, value in curve.items()]
    records += [
        Record(1, "test", "all", "loss", 9.0),
        Record(1, "validation", "all", "accuracy", 0.99),
        Record(1, "test", "class=0", "accuracy", 0.99),
    ]
    folder.append_records(records)
    size, digest = folder.records_digest()
    folder.write_status(Status(state=RunState.DONE, records_bytes=size, records_sha256=digest))


def table_of(tmp_path: Path, skip: tuple[str, int] | None = None, **changes: Any) -> Table:
    spec, results = spec_of(tmp_path, **changes), Results(tmp_path / "results").open()
    cells = plan(spec, "quick")
    for (row, _), cell in cells.items():
        for run in cell.runs:
            if (row, run.seed) != skip:
                write_run(results, run, CURVES[row][run.seed])
    return collect(spec, "quick", cells, results)


def found(table: Table) -> dict[str, list[tuple[str, float | None]]]:
    return {row: [(run.status, run.value) for run in cell.runs] for (row, _), cell in table.cells.items()}


def test_rounds_to_reach(tmp_path: Path) -> None:
    """Seed by seed: the first round at or above the reference's best."""
    table = table_of(tmp_path)
    assert found(table) == {
        "fedavg": [("done", 2), ("done", 3), ("done", 1)],
        "fedprox": [("done", 1), ("done", 3), ("done", 2)],
        "fedavgm": [("not reached", None), ("done", 2), ("failed", None)],
    }
    # A row that never got there in one seed is neither ranked nor counted as missing.
    assert table.cells["fedavg", "a"].mark.best
    assert table.cells["fedprox", "a"].mark.best
    never = table.cells["fedavgm", "a"]
    assert not never.complete
    assert never.troubles == ["1 not reached", "1 failed"]
    markdown = table.to_markdown()
    assert "2.00 (n=1 of 3, 1 not reached, 1 failed)" in markdown
    assert "not reached (seed 0): fedavgm" in markdown
    assert "compared seed by seed with fedavg" in markdown
    assert "last round" not in markdown
    assert "(lowest) mean" in markdown
    assert r"1/3\,NF" in table.to_latex()
    assert "N not reached" in table.to_latex()
    assert "0=not reached;1=2.0;2=failed" in table.to_csv()


def test_speedup(tmp_path: Path) -> None:
    """Rounds of the reference over rounds of the row: 2/1, 3/3, 1/2 and 3/2."""
    table = table_of(tmp_path, metric="speedup")
    assert found(table) == {
        "fedavg": [("done", 1), ("done", 1), ("done", 1)],
        "fedprox": [("done", 2), ("done", 1), ("done", 0.5)],
        "fedavgm": [("not reached", None), ("done", 1.5), ("failed", None)],
    }
    assert "(highest) mean" in table.to_markdown()


def test_without_the_reference_there_is_nothing_to_reach(tmp_path: Path) -> None:
    table = table_of(tmp_path, skip=("fedavg", 1))
    assert [run.status for run in table.cells["fedprox", "a"].runs] == ["done", "missing", "done"]
    assert [run.status for run in table.cells["fedavgm", "a"].runs] == ["not reached", "missing", "failed"]


def test_a_reference_row_belongs_to_these_metrics(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reference_row: came None .*rounds_to_reach, speedup need a row"):
        spec_of(tmp_path, reference_row=None)
    with pytest.raises(ConfigError, match=r"reference_row: came 'fedavg' with metric accuracy"):
        spec_of(tmp_path, metric="accuracy")
    with pytest.raises(ConfigError, match=r"reference_row: unknown 'fedav'\. Did you mean 'fedavg'"):
        spec_of(tmp_path, reference_row="fedav")
    spec = spec_of(tmp_path)
    with pytest.raises(ConfigError, match="compares with row 'fedavg'; choose it too"):
        spec.cut(["fedprox"], ["a"])
    assert [row.key for row in spec.cut(["fedprox", "fedavg"], ["a"]).rows] == ["fedavg", "fedprox"]


def test_the_two_halves_of_fedmr_table_4_are_made_of_the_same_runs() -> None:
    """Evaluated after every round, for else a first round cannot be told."""
    rounds, speedup = (load_spec(TABLE_FOLDER / f"{name}.yaml") for name in ("fedmr_table4", "fedmr_speedup"))
    for preset in ("quick", "small", "paper"):
        assert plan(rounds, preset) == plan(speedup, preset)
        for row in rounds.rows:
            for column in rounds.columns:
                settings = rounds.cell_overrides(row.key, column.key, preset)
                assert settings is not None
                assert settings["evaluation"]["every"] == 1
