"""The runs of a column are compared before it is printed: other data is a gap, anything else a mark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from finished_runs import as_markdown, finish, toy_table

from benchmark.experiments.plan import plan
from benchmark.reports.collect import collect
from benchmark.reports.layout import as_table
from benchmark.reports.results import TableResults
from benchmark.runs.index import RunIndex
from benchmark.runs.store import ResultsFolder

SPEC = toy_table(("fedavg", "fedprox", "scaffold"), seeds=2)
USUAL = {
    "data": "d",
    "partition": "p",
    "torch": "2.0",
    "threads": 1,
    "device": "cuda A",
    "processor": "Abacus",
    "dispatch": "AVX2",
}


def results_of(tmp_path: Path, first: Mapping[str, Any]) -> TableResults:
    """The table; seed 0 of FedAvg was made first, as ``first`` says."""
    results, cells = ResultsFolder(tmp_path).open(), plan(SPEC, "quick")
    oldest, *others = (run for cell in cells.values() for run in cell.runs)
    for run, origin in [(oldest, {**USUAL, **first}), *((run, USUAL) for run in others)]:
        finish(results, run, final={"test": {"accuracy": 0.5}}, origin=origin)
    return collect(SPEC, "quick", cells, RunIndex(results))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ({"torch": "1.9"}, "torch 1.9 and not 2.0"),
        ({"threads": 4}, "threads 4 and not 1"),
        ({"device": "cpu"}, "device cpu and not cuda"),
        ({"partition": "q"}, "other clients"),
        ({"engine": "0"}, "another version of the engine"),
        ({"mixed": "threads (4, now 1)"}, "parts with other threads (4, now 1)"),
    ],
)
def test_a_run_that_was_made_in_another_way_is_marked(
    tmp_path: Path, first: dict[str, Any], said: str
) -> None:
    results = results_of(tmp_path, first)
    assert {row: cell.differs for (row, _), cell in results.cells.items()} == {
        "fedavg": {said: [0]}, "fedprox": {}, "scaffold": {}
    }  # fmt: skip
    assert f"‡ {said} (seed 0): fedavg" in as_markdown(results)
    lines = [line for line in as_markdown(results).splitlines() if line.startswith(("| fed", "| scaffold"))]
    assert ["‡" in line for line in lines] == [True, False, False]
    data = as_table(results).data.set_index("row")
    assert list(data["differs"]) == [said, "", ""] and data.loc["fedavg", "n"] == 2
    assert "differs" in data.loc["fedavg", "marks"]


def test_a_run_on_other_data_is_a_gap(tmp_path: Path) -> None:
    results = results_of(tmp_path, {"data": "other"})
    cell = results.cells["fedavg", "a"]
    assert [(run.outcome, run.value) for run in cell.runs] == [("other data", None), ("done", 0.5)]
    assert results.cells["fedprox", "a"].complete and not cell.complete
    assert "other data (seed 0): fedavg" in as_markdown(results)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"device": "cuda B"}, ""),
        ({"processor": "Zuse"}, "Zuse AVX2"),
        ({"dispatch": "AVX512"}, "Abacus AVX512"),
    ],
)
def test_other_types_of_processors_are_one_sentence(
    tmp_path: Path, first: dict[str, Any], other: str
) -> None:
    results = results_of(tmp_path, first)
    assert not any(cell.differs for cell in results.cells.values())
    said = (
        f"The runs were made on 2 types of processors, so that bits may differ: Abacus AVX2 (5), {other} (1)."
    )
    assert as_markdown(results).count(said) == bool(other)
    processors = list(as_table(results).data["processor"])
    mixed = f"0={other}; 1=Abacus AVX2" if other else "Abacus AVX2"
    assert processors == [mixed, "Abacus AVX2", "Abacus AVX2"]
    pairs = as_table(results, "difference").data.set_index("row")["difference_n"]
    assert list(pairs[1:]) == ([1, 1] if other else [2, 2])
