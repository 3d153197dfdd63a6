"""The report about made-up runs of FedMR's Table 1, and a page in the browser that shows it.

In column ``fmnist/p5c2`` FedAvg has 40 and 44 (mean 42, standard deviation 4 / sqrt(2) = 2.83), FedDyn 60 and 64, FedMR
50 and 54; its run of seed 1 in ``fmnist/iid`` diverged, and FedDyn's is missing there.
"""

from pathlib import Path
from typing import Any

import pytest
from chromium import Page
from finished_runs import finish

from benchmark.cli.make import report
from benchmark.engine.records import Record
from benchmark.experiments.plan import plan
from benchmark.experiments.selection import TableQuery, select
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.runs.folder import ResultsFolder

NAME = "fedmr_table1"
CHOICE: dict[str, Any] = {"name": NAME, "rows": "fedavg,feddyn,fedmr", "columns": "fmnist/*", "seeds": 2}
REACHED = {"fedavg": 0.40, "feddyn": 0.60, "fedmr": 0.50}
PARTITION = "pcdd-000000000000"


def records(reached: float) -> list[Record]:
    """Two evaluations, in each two classes; client 1 takes part in round 1, clients 0 and 2 in round 2."""
    values = [(0, reached / 2), (2, reached)]
    curves = [
        Record(round, "test", "all", metric, value * share)
        for round, value in values
        for metric, share in (("accuracy", 1.0), ("worst_group_accuracy", 0.5))
    ]
    groups = [Record(2, "test", f"class={k}", "accuracy", reached) for k in (0, 1)]
    taken = [Record(t, "participation", f"client={k}", "weight", 1.0) for t, k in ((1, 1), (2, 0), (2, 2))]
    return [*curves, *groups, *taken, Record(2, "cost", "all", "scalars_up", 1234.0)]


def fill(folder: Path, spec: TableSpec, text: str = "") -> None:
    """The runs of a table, and their partition; ``text`` is part of all that can be text."""
    results = ResultsFolder(folder).open()
    clients = {
        "class_names": [f"cat{text}", "dog"],
        "attribute_names": [],
        "counts": [[3, 1], [0, 5], [2, 2]],
    }
    made = {"commit": f"abc{text}", "host": f"host{text}", "processor": "x", "clients": clients}
    known = {"made": made, "origin": {"partition": PARTITION}}
    for (row, column), cell in plan(spec, "quick", range(2)).items():
        for run in cell.runs:
            value = REACHED[row.partition(":")[0]] + 0.04 * run.seed
            if (column.partition(":")[0], run.seed) == ("fmnist/iid", 1):
                if row.startswith("fedmr"):
                    finish(results, run, state="diverged", **known)
                if not row.startswith("fedavg"):
                    continue
            finish(results, run, records(value), final={"test": {"accuracy": value}}, **known)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    fill(folder, select(spec_called(NAME), TableQuery(**CHOICE)))
    tables = folder / "tables" / "quick"
    tables.mkdir(parents=True)
    for name in (NAME, "fedmr_table1.wide", "fedmr_table2", "fedmr_table3"):
        (tables / f"{name}.csv").write_text("selection,seconds\nPOW-D,1.25\n")
    assert report([f"results={folder}", *(f"{key}={value}" for key, value in CHOICE.items())]) == 0
    return folder


@pytest.fixture
def page(browser: Page, folder: Path) -> Page:
    browser.open(folder / "report" / "index.html")
    return browser
