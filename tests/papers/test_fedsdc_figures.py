"""FedSDC's figures: bars and curves of made-up runs, and who holds what, counted from the split itself."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished_runs import drawn, finish

from benchmark.config.compose import compose, resolve
from benchmark.engine.records import Record
from benchmark.experiments.figures import FIGURE_FOLDER, FigureSpec, load_figure
from benchmark.experiments.plan import plan
from benchmark.papers.figures import Drawing
from benchmark.runs.data import load_data
from benchmark.runs.folder import ResultsFolder


def spec_of(number: int) -> FigureSpec:
    return load_figure(FIGURE_FOLDER / f"fedsdc_figure{number}.yaml")


def finished(spec: FigureSpec, folder: Path, values: Mapping[tuple[str, str, int], Any]) -> Drawing:
    """The drawing of runs with these last values by (row, column, seed). A word is a state; without a value, no run.

    Every run has a record of a group and one of the validation split that must not be drawn.
    """
    results = ResultsFolder(folder).open()
    assert spec.runs is not None
    for (row, column), cell in plan(spec.runs, "quick", range(2)).items():
        for run in cell.runs:
            value = values.get((row, column, run.seed))
            if isinstance(value, str):
                finish(results, run, state=value)
            elif value is not None:
                places = [(0, "test", "all", value / 2), (4, "test", "all", value)]
                others = [(4, "test", "class=0", 9.0), (4, "validation", "all", 9.0)]
                records = [Record(t, split, group, "micro_f1", v) for t, split, group, v in places + others]
                finish(results, run, records, final={"test": {"micro_f1": value}})
    return drawn(spec, folder)


def test_bars(tmp_path: Path) -> None:
    """Height: mean over seeds in percent; half of the line: one sample standard deviation; a dot per seed."""
    values = {
        ("fedrep", "balanced", 0): 0.5, ("fedrep", "balanced", 1): 0.7,
        ("fedsdc", "balanced", 0): 0.9, ("fedsdc", "balanced", 1): 0.8,
        ("fedrep", "imbalanced", 0): 0.2, ("fedrep", "imbalanced", 1): 0.3,
        ("fedsdc", "imbalanced", 0): 0.6, ("fedsdc", "imbalanced", 1): "diverged",
    }  # fmt: skip
    drawing = finished(spec_of(1), tmp_path / "a", values)
    axis = drawing.figure.axes[0]
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in axis.patches]
    heights = {tuple(np.round(bar, 6)) for bar in bars}
    # Two bars of width .4 beside each tick; the patches of the legend are empty.
    assert heights - {(0.0, 0.0)} == {(-0.2, 60.0), (0.2, 85.0), (0.8, 25.0), (1.2, 60.0)}
    heights_of = (np.asarray(line.get_ydata(), dtype=float) for line in axis.lines)
    spans = sorted(float(np.nanmax(y) - np.nanmin(y)) for y in heights_of if np.isfinite(y).any())
    expected = [2 * np.std(pair, ddof=1) for pair in ((20, 30), (80, 90), (50, 70))]
    assert [s for s in spans if s > 1] == pytest.approx(expected)
    dots = np.concatenate([np.asarray(points.get_offsets()) for points in axis.collections])
    assert sorted(dots[:, 1]) == pytest.approx([20, 30, 50, 60, 70, 80, 90])
    assert len(drawing.data) == 7
    assert drawing.remarks[1] == "Not shown: FedSDC, imbalanced: diverged."
    assert len(finished(spec_of(1), tmp_path / "b", values | {("fedsdc", "imbalanced", 1): 0.5}).remarks) == 1


def test_data_of_the_clients(tmp_path: Path) -> None:
    """Counts in the CSV, one sample at a time from the split that seed 0 trains on; a panel per column of Table 1."""
    drawing = drawn(spec_of(3), tmp_path)
    totals = drawing.data.groupby("column", sort=False)["samples"].sum().to_dict()
    assert totals | {"niid2": 0} == {"iid": 2905, "niid1": 2451, "niid2": 0}
    layer = {"dataset": "digits_ham", "partition": {"name": "dirichlet", "clients": 15, "alpha": 5.0}}
    data = load_data(resolve(compose("quick", layer)))
    names, labels = data.dataset.classes, data.train.labels
    counts = Counter((k, names[int(labels[i])]) for k, client in enumerate(data.clients) for i in client)
    shown = drawing.data[(drawing.data["column"] == "niid1") & (drawing.data["samples"] > 0)]
    assert shown.set_index(["client", "class"])["samples"].to_dict() == counts
    panels = drawing.figure.axes
    assert panels[0].get_title() == "IID: 2,905 samples"
    assert [len(axis.get_yticklabels()) for axis in panels] == [10, 7, 13]


def test_curves(tmp_path: Path) -> None:
    """Mean over seeds by round in percent, one panel per scenario, of the test set alone."""
    spec = spec_of(4).model_copy(update={"rows": ("fedavgm", "fedsdc")})
    rows = (("fedavgm", 0, 0.4), ("fedavgm", 1, 0.5), ("fedsdc", 0, 0.6), ("fedsdc", 1, 0.7))
    values = {(row, column, seed): v for row, seed, v in rows for column in ("iid", "niid1", "niid2")}
    drawing = finished(spec, tmp_path, values)
    assert [axis.get_title() for axis in drawing.figure.axes] == ["IID", "NIID-1", "NIID-2"]
    for axis in drawing.figure.axes:
        lines = [np.asarray(line.get_xydata()) for line in axis.lines if len(line.get_xydata()) == 2]  # type: ignore[arg-type]
        curves = sorted(tuple(map(tuple, np.round(line, 6))) for line in lines)
        assert curves == [((0.0, 22.5), (4.0, 45.0)), ((0.0, 32.5), (4.0, 65.0))]
    assert drawing.figure.axes[0].get_ylabel() == "Micro-F1 (%)"
    assert set(drawing.data["value"]) == {20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0, 70.0}


def test_a_band_stays_within_0_and_100(tmp_path: Path) -> None:
    """Final values 90 and 100: mean 95, standard deviation 7.07, so the band ends at 100."""
    spec = spec_of(4).model_copy(update={"rows": ("fedavgm",)})
    values = {("fedavgm", c, s): v for s, v in ((0, 0.9), (1, 1.0)) for c in ("iid", "niid1", "niid2")}
    for axis in finished(spec, tmp_path, values).figure.axes:
        (band,) = axis.collections
        assert band.get_paths()[0].vertices[:, 1].max() == 100.0


def test_a_forest(tmp_path: Path) -> None:
    """FedSDC - FedAvgM: 4 and 6 points, mean 5, standard deviation sqrt 2; t is 12.706205.

    The paper: 68.76 +- 0.99 and 66.29 +- 1.63 over five runs: squared errors 0.19602 and 0.53138, 6.5976 degrees of
    freedom, for which t is 2.39417, so 2.47 +- 2.04194.
    """
    values = {("fedavgm", s): 0.5 for s in range(2)} | {("fedsdc", 0): 0.54, ("fedsdc", 1): 0.56}
    table = {"extends": "fedsdc_table1", "rows": ["fedavgm", "fedsdc"], "columns": ["niid1"]}
    spec = FigureSpec(
        name="toy", paper="toy", figure=1, title="Toy", kind="forest", table=table, presets={"quick": {}}
    )
    assert spec.runs is not None
    results = ResultsFolder(tmp_path).open()
    for (row, _), cell in plan(spec.runs, "quick", range(2)).items():
        for run in cell.runs:
            finish(results, run, final={"test": {"micro_f1": values[row, run.seed]}})
    drawing = drawn(spec, tmp_path)
    published, here = drawing.data.to_dict("records")
    assert (published["source"], published["cell"]) == ("published", "FedSDC, NIID-1")
    assert published["difference"] == pytest.approx(68.76 - 66.29)
    assert published["low"] == pytest.approx(2.47 - 2.04194, abs=1e-4) and published["pairs"] is None
    assert [here[key] for key in ("source", "pairs")] == ["here", 2]
    assert [here[key] for key in ("difference", "low", "high")] == pytest.approx(
        [5, 5 - 12.706205, 5 + 12.706205]
    )
    assert "difference to FedAvgM" in drawing.figure.axes[0].get_xlabel()
