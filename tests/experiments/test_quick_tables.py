"""Preset quick: small, but every column of the papers' first tables is a task that plain averaging learns."""

import pytest

from benchmark.experiments.plan import plan
from benchmark.experiments.tables import spec_called
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data

ROWS = {"feddiverse": "uniform", "fedld": "fedavg", "fedmr": "fedavg", "fedsdc": "fedavgm"}
"""FedAvg or, where a table has no such row, FedAvgM."""

CELLS = [(paper, column.key) for paper in ROWS for column in spec_called(f"{paper}_table1").run_columns]


@pytest.mark.parametrize(("paper", "column"), CELLS)
def test_averaging_learns_every_column(paper: str, column: str) -> None:
    """Twice as often right as chance; with two classes half as often wrong."""
    spec = spec_called(f"{paper}_table1").cut([ROWS[paper]], [column])
    (cell,) = plan(spec, "quick", [0]).values()
    data = load_data(cell.runs[0])
    run = build_run(cell.runs[0], data)
    state = run.initial_state()
    while state.round < run.schedule.rounds:
        state, _ = run.run_round(state)
    values = {record[1:4]: record.value for record in run.evaluate(state)}
    classes = len(data.dataset.classes)
    assert values["test", "all", "accuracy"] > min(2 / classes, (1 + 1 / classes) / 2)
