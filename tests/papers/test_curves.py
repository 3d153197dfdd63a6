"""Curves of a table's runs, from records written by hand."""

import math
from pathlib import Path

import pandas as pd
import pytest
from finished_runs import finish

from benchmark.engine.records import Record
from benchmark.experiments.plan import plan
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.tables import spec_called
from benchmark.papers.curves import curves, fifths
from benchmark.runs.folder import ResultsFolder


def options(folder: Path, **values: str) -> TableQuery:
    cells = {"name": "fedmr_table1", "rows": "fedavg,moon", "columns": "fmnist/iid"} | values
    return TableQuery(results=folder, seeds=2, tuned="off", **cells)


def test_the_fifths_of_a_curve(tmp_path: Path) -> None:
    """Ten rounds, evaluated after each, with accuracy t % (seed 0) and 2 t % (seed 1); MOON's second run is missing."""
    spec = spec_called("fedmr_table1").cut(["fedavg", "moon"], ["fmnist/iid"])
    first, second, third, _ = (run for cell in plan(spec, "quick", range(2)).values() for run in cell.runs)
    for run in (first, second, third):
        values = [(t, t * (run.seed + 1) / 100) for t in range(run.train.rounds + 1)]
        records = [Record(t, "test", "all", "accuracy", value) for t, value in values]
        finish(ResultsFolder(tmp_path).open(), run, records)
    table = curves(options(tmp_path))
    (block,) = table.blocks
    assert block.columns == ("column", "seeds", *"12345", "gain", "gain sd")
    # Rounds 1 and 2 make the first fifth: means 1.5 and 3. Rounds 9 and 10 have means 9.5 and 19, round 8 has 8 and 16.
    fedavg = ("fmnist/iid", "2", "2.25", "5.25", "8.25", "11.25", "14.25", "2.25", "1.06")
    assert block.lines[0].cells == fedavg
    assert block.lines[1].cells[:3] == ("fmnist/iid", "1", "1.50")
    assert "Runs that are missing or diverged: 1." in table.notes[1].lines
    at_ten = table.data[(table.data["row"] == "fedavg") & (table.data["round"] == 10)]
    assert at_ten[["mean", "std", "seeds"]].values.tolist() == [[15.0, pytest.approx(50**0.5), 2]]


def test_a_fifth_without_an_evaluation() -> None:
    """Evaluated before the first round and after rounds 5 and 10 of 10: in the third and in the fifth part."""
    parts = fifths(pd.DataFrame({0: [0.0, 4.0, 8.0]}, index=[0, 5, 10]))
    assert math.isnan(parts["1"]) and math.isnan(parts["4"])
    assert (parts["3"], parts["5"], parts["gain"]) == (4.0, 8.0, 4.0)
