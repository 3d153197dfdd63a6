"""The runs of a column are compared before it is printed: other data is a gap, anything else a mark."""

from pathlib import Path
from typing import Any

import pytest
from finished_runs import as_markdown, finish, toy_table

from benchmark.experiments.plan import plan
from benchmark.reports.collect import collect
from benchmark.reports.layout import as_table
from benchmark.reports.results import TableResults
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

SPEC = toy_table(("fedavg", "fedprox", "scaffold"), seeds=2)


def results_of(tmp_path: Path, **first: Any) -> TableResults:
    """The table; seed 0 of FedAvg was made first, as ``first`` says."""
    results, cells = ResultsFolder(tmp_path).open(), plan(SPEC, "quick")
    oldest, *others = (run for cell in cells.values() for run in cell.runs)
    for run, how in [(oldest, first), *((run, {}) for run in others)]:
        finish(results, run, final={"test": {"accuracy": 0.5}}, **how)
    return collect(SPEC, "quick", cells, RunIndex(results))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ({"origin": {"torch": "1.9"}}, "torch (1.9, now 2.0)"),
        ({"origin": {"threads": 4}}, "threads (4, now 1)"),
        ({"origin": {"device": "cuda A"}}, "device (cuda A, now cpu)"),
        ({"origin": {"dispatch": "AVX512"}}, "dispatch (AVX512, now AVX2)"),
        ({"origin": {"partition": "q"}}, "the partition"),
        ({"origin": {"engine": "0"}}, "the engine"),
        ({"parts": "threads (4, now 1)"}, "parts with other threads (4, now 1)"),
    ],
)
def test_a_run_that_was_made_in_another_way_is_marked(
    tmp_path: Path, first: dict[str, Any], said: str
) -> None:
    results = results_of(tmp_path, **first)
    assert {row: cell.differs for (row, _), cell in results.cells.items()} == {
        "fedavg": {said: [0]}, "fedprox": {}, "scaffold": {}
    }  # fmt: skip
    assert f"‡ {said} (seed 0): fedavg" in as_markdown(results)
    lines = [line for line in as_markdown(results).splitlines() if line.startswith(("| fed", "| scaffold"))]
    assert ["‡" in line for line in lines] == [True, False, False]
    data = as_table(results).data.set_index("row")
    assert list(data["differs"]) == [said, "", ""] and data.loc["fedavg", "n"] == 2
    assert "differs" in data.loc["fedavg", "marks"]


@pytest.mark.parametrize("first", [{"data": "other"}, {"code": {"methods/fedavg.py": "0"}}])
def test_a_run_on_other_data_or_of_other_code_is_a_gap(tmp_path: Path, first: dict[str, Any]) -> None:
    results = results_of(tmp_path, origin=first)
    cell = results.cells["fedavg", "a"]
    assert [(run.outcome, run.value) for run in cell.runs] == [("differs", None), ("done", 0.5)]
    assert results.cells["fedprox", "a"].complete and not cell.complete
    assert "differs (seed 0): fedavg" in as_markdown(results)


@pytest.mark.parametrize("processor", ["Abacus", "Zuse"])
def test_other_types_of_processors_are_one_sentence(tmp_path: Path, processor: str) -> None:
    results, other = results_of(tmp_path, made={"processor": processor}), processor == "Zuse"
    assert not any(cell.differs for cell in results.cells.values())
    said = "The runs were made on 2 types of processors, so that bits may differ: Abacus AVX2 (5), Zuse AVX2 (1)."
    assert as_markdown(results).count(said) == other
    mixed = "0=Zuse AVX2; 1=Abacus AVX2" if other else "Abacus AVX2"
    assert list(as_table(results).data["processor"]) == [mixed, "Abacus AVX2", "Abacus AVX2"]
    pairs = as_table(results, "difference").data.set_index("row")["difference_n"]
    assert list(pairs[1:]) == ([1, 1] if other else [2, 2])
