"""What the report says of a cell: the command, the configuration beside FedAvg's, long curves cut short."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from finished_runs import finish

from benchmark.engine.records import Record
from benchmark.experiments.plan import PlannedCell, plan
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.tables import spec_called
from benchmark.reports.collect import collect
from benchmark.reports.details import Details, cell_name, differences, measured
from benchmark.reports.results import Cell, CellRun, build_results
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

SPEC = spec_called("fedmr_table1")
KEY = ("fedprox", "fmnist/p5c2")


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        ("done", "threads=2 seeds=1 results=repeated tuned={0}/tuned"),
        ("diverged", "threads=2 seeds=1 results=repeated tuned={0}/tuned"),
        ("missing", "threads=2 seeds=1 results={0}"),
    ],
)
def test_command(tmp_path: Path, outcome: str, end: str) -> None:
    """What has ended is repeated elsewhere with the same tuned values; what is missing goes into the folder itself."""
    path = tmp_path / "tuned" / "quick" / f"{SPEC.name}.yaml"
    path.parent.mkdir(parents=True)
    path.touch()
    results = build_results(SPEC, "quick", {KEY: Cell("ok", (CellRun(0, outcome, 0.5, "runs/x"),))})
    details = Details(RunIndex(ResultsFolder(tmp_path)), TableQuery(results=tmp_path))
    words = f"python -m benchmark table name={SPEC.name} rows=fedprox columns=fmnist/p5c2 preset=quick "
    assert details.command(SPEC, results.cells[KEY], ["threads=2"]) == words + end.format(tmp_path)


def test_configuration_beside_fedavg() -> None:
    cells = plan(SPEC.cut(["fedavg", "fedprox"], ["fmnist/p5c2"]), "quick", [0])
    own, other = (cells[row, "fmnist/p5c2"].runs[0] for row in ("fedprox", "fedavg"))
    assert differences(other, other) == []
    values = {key: pair for key, *pair in differences(own, other)}
    assert values["method.name"] == ["fedprox", "fedavg"]
    assert values["method.client.fedprox.mu"] == [0.01, None]
    assert {key.partition(".")[0] for key in values} == {"method"}


def test_long_runs_are_cut() -> None:
    """Of 250 points every third from the last on; 120 rounds in steps of 3, in which client 7 takes part in all."""
    curve = [Record(t, "test", "all", "accuracy", t / 1000) for t in range(1, 251)]
    taken = [Record(t, "participation", "client=7", "weight", 1.0) for t in range(1, 121)]
    details = measured(SPEC, [*curve, *taken])
    points = details["curves"]["accuracy"]
    assert (len(points), points[0], points[1], points[-1]) == (84, (1, 0.1), (4, 0.4), (250, 25.0))
    assert details["clients"]["width"] == 3
    assert (
        details["clients"]["cells"][:2] == [[1, 7, 3], [4, 7, 3]] and len(details["clients"]["cells"]) == 40
    )


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS))


def test_clients_are_those_of_their_data(tmp_path: Path) -> None:
    """Two data sets may be divided by the same indices, and the base row may have no runs."""
    columns = ("fmnist/iid", "svhn/iid")
    results, spec = ResultsFolder(tmp_path).open(), SPEC.cut(["fedavg", "fedprox"], columns)
    cells = plan(spec, "quick", [0])
    for number, column in enumerate(columns):
        (run,) = cells["fedprox", column].runs
        clients = {"class_names": [column], "attribute_names": [], "counts": [[number]]}
        final = {"test": {"accuracy": 0.5}}
        finish(
            results, run, final=final, origin={"partition": "same", "data": column}, made={"clients": clients}
        )
        cells["fedavg", column] = PlannedCell("fedavg", column, "not tuned")
    details = Details(RunIndex(results), TableQuery(results=tmp_path))
    details.add(collect(spec, "quick", cells, RunIndex(results)), cells)
    assert {key: unpacked(text)["counts"] for key, text in details.partitions.items()} == {
        "fmnist/iid/same": [[0]], "svhn/iid/same": [[1]],
    }  # fmt: skip
    assert "config" not in unpacked(details.cells[cell_name(spec, "fedprox", "fmnist/iid")])
