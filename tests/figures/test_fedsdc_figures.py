"""FedSDC's figures: bars and curves of made-up runs, and who holds what, counted from the split itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmark.config.compose import compose, resolve
from benchmark.engine.records import Record
from benchmark.errors import ConfigError
from benchmark.experiments.plan import plan
from benchmark.figures.registry import Drawing, Request, find
from benchmark.figures.spec import FIGURE_FOLDER, FigureSpec, load_figure
from benchmark.runs.execute import load_data

FILES = sorted(FIGURE_FOLDER.glob("fedsdc_*.yaml"))


class Folder:
    """A run's folder that exists in memory: done with these final values and records, or ended in ``state``."""

    def __init__(self, final: float, records: Sequence[Record], state: str) -> None:
        self.path = Path("made-up")
        self._status = SimpleNamespace(
            state=state, ended=True, records_bytes=0, final={"test": {"micro_f1": final}}
        )
        self._records = records

    def status(self) -> Any:
        return self._status

    def read_records(self) -> Sequence[Record]:
        return self._records

    def complete(self, status: Any) -> bool:
        return True


class Runs:
    """Results by key."""

    def __init__(self, folders: Mapping[str, Folder]) -> None:
        self.folders = folders

    def run(self, key: str) -> Any:
        return self.folders.get(key) or SimpleNamespace(status=lambda: None, path=Path("none"))


def spec_of(number: int) -> FigureSpec:
    return load_figure(FIGURE_FOLDER / f"fedsdc_figure{number}.yaml")


def drawn(
    spec: FigureSpec, preset: str, values: Mapping[tuple[str, str, int], Any], seeds: int = 2
) -> Drawing:
    """The drawing of runs that end with these values by (row, column, seed); a string is a state, a missing one no run.

    Every run has two test records, one of a group and one of the validation split that must not be drawn."""
    table = spec.runs
    cells = {} if table is None else plan(table, preset, range(seeds))
    folders = {}
    for (row, column), cell in cells.items():
        for run in cell.runs:
            value = values.get((row, column, run.seed))
            if value is None:
                continue
            final = 0.0 if isinstance(value, str) else value
            records = [
                Record(0, "test", "all", "micro_f1", final / 2), Record(4, "test", "all", "micro_f1", final),
                Record(4, "test", "class=0", "micro_f1", 9.0), Record(4, "validation", "all", "micro_f1", 9.0),
            ]  # fmt: skip
            folders[run.key] = Folder(final, records, value if isinstance(value, str) else "done")
    request = Request(spec, preset, spec.settings(preset), table, cells, Runs(folders), {}, seeds)  # type: ignore[arg-type]
    return find(spec.kind)(request)


def test_there_are_the_papers_figures_with_data() -> None:
    assert [load_figure(path).figure for path in FILES] == [1, 3, 4]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_plans_all_its_presets(path: Path) -> None:
    spec = load_figure(path)
    assert set(spec.presets) == {"quick", "paper"}
    for preset in spec.presets:
        if spec.runs is not None:
            states = {cell.state for cell in plan(spec.runs, preset).values()}
            allowed = {f"{what} not available yet" for what in ("dataset", "model", "method")}
            assert states <= {"ok", *allowed}


# Fig. 1 --------------------------------------------------------------------------------------------------------------


def test_settings_of_figure_1() -> None:
    """Section 1: three clients; balanced, and with three classes held back from each of them."""
    table = spec_of(1).runs
    assert table is not None
    cells = plan(table, "quick", (0,))
    assert {row for row, _ in cells} == {"fedrep", "fedsdc"}
    sizes = {}
    for (_, column), cell in cells.items():
        data = load_data(cell.runs[0])
        sizes[column] = [len(np.unique(np.asarray(data.train.labels)[c])) for c in data.clients]
    assert sizes == {"balanced": [15, 15, 15], "imbalanced": [12, 12, 12]}


def test_bars() -> None:
    """Height: mean over seeds in percent; half of the line: one sample standard deviation; a dot per seed."""
    values = {
        ("fedrep", "balanced", 0): 0.5, ("fedrep", "balanced", 1): 0.7,
        ("fedsdc", "balanced", 0): 0.9, ("fedsdc", "balanced", 1): 0.8,
        ("fedrep", "imbalanced", 0): 0.2, ("fedrep", "imbalanced", 1): 0.3,
        ("fedsdc", "imbalanced", 0): 0.6, ("fedsdc", "imbalanced", 1): "diverged",
    }  # fmt: skip
    drawing = drawn(spec_of(1), "quick", values)
    axis = drawing.figure.axes[0]
    heights = {
        tuple(np.round([bar.get_x() + bar.get_width() / 2, bar.get_height()], 6)) for bar in axis.patches
    }
    # Two bars of width .4 beside each tick; the patches of the legend are empty.
    assert heights - {(0.0, 0.0)} == {(-0.2, 60.0), (0.2, 85.0), (0.8, 25.0), (1.2, 60.0)}
    heights_of = (np.asarray(line.get_ydata(), dtype=float) for line in axis.lines)
    spans = sorted(float(np.nanmax(y) - np.nanmin(y)) for y in heights_of if np.isfinite(y).any())
    expected = [2 * np.std(pair, ddof=1) for pair in ((20, 30), (80, 90), (50, 70))]
    assert [s for s in spans if s > 1] == pytest.approx(expected)
    dots = np.concatenate([np.asarray(points.get_offsets()) for points in axis.collections])
    assert sorted(dots[:, 1]) == pytest.approx([20, 30, 50, 60, 70, 80, 90])
    assert [label.get_text() for label in axis.get_xticklabels()] == ["balanced", "imbalanced"]
    assert axis.get_ylabel() == "Micro-F1 (%)"
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["FedRep", "FedSDC"]
    assert len(drawing.data) == 7
    assert drawing.remarks[1] == "Not shown: FedSDC, imbalanced: diverged."
    assert len(drawn(spec_of(1), "quick", values | {("fedsdc", "imbalanced", 1): 0.5}).remarks) == 1


def test_bars_of_nothing() -> None:
    with pytest.raises(ConfigError, match=r"figure fedsdc_figure1: no run of it is done"):
        drawn(spec_of(1), "quick", {})
    with pytest.raises(ConfigError, match=r"kind bars needs a table"):
        drawn(spec_of(1).model_copy(update={"table": None}), "quick", {})


# Fig. 3 --------------------------------------------------------------------------------------------------------------


def test_data_of_the_clients() -> None:
    """Counts in the CSV, one sample at a time from the split that seed 0 trains on; a panel per column of Table 1."""
    drawing = drawn(spec_of(3), "quick", {})
    assert list(drawing.data["column"].unique()) == ["iid", "niid1", "niid2"]
    layer = {"dataset": "digits_ham", "partition": {"name": "dirichlet", "clients": 15, "alpha": 5.0}}
    data = load_data(resolve(compose("quick", layer)))
    counts: dict[tuple[int, str], int] = {}
    for k, client in enumerate(data.clients):
        for i in client:
            key = (k, data.dataset.classes[int(data.train.labels[i])])
            counts[key] = counts.get(key, 0) + 1
    shown = drawing.data[(drawing.data["column"] == "niid1") & (drawing.data["samples"] > 0)]
    assert {
        (c, n): s for c, n, s in zip(shown["client"], shown["class"], shown["samples"], strict=True)
    } == counts
    panels = drawing.figure.axes
    assert [axis.get_title() for axis in panels] == [
        "IID: 2,905 samples", "NIID-1: 2,451 samples", f"NIID-2: {_total(drawing, 'niid2'):,} samples",
    ]  # fmt: skip
    assert [len(axis.get_yticklabels()) for axis in panels] == [10, 7, 13]
    # As many bubbles as there are cells with samples.
    assert len(np.asarray(panels[1].collections[0].get_offsets())) == len(counts)


def _total(drawing: Drawing, column: str) -> int:
    return int(drawing.data.loc[drawing.data["column"] == column, "samples"].sum())


def test_data_of_some_columns() -> None:
    spec = spec_of(3).model_copy(update={"columns": ("niid1",)})
    assert set(drawn(spec, "quick", {}).data["column"]) == {"niid1"}


def test_data_of_what_is_not_there() -> None:
    spec = spec_of(3).model_copy(update={"options": {"of": "fedsdc_tabel1"}})
    with pytest.raises(
        ConfigError, match=r"options\.of: came 'fedsdc_tabel1'\. Did you mean 'fedsdc_table1'\?"
    ):
        drawn(spec, "quick", {})
    absent = spec_of(3).model_copy(update={"options": {"of": "fedsdc_table1"}, "presets": {"small": {}}})
    with pytest.raises(ConfigError, match=r"column iid of fedsdc_table1: not in this preset"):
        drawn(absent, "small", {})


# Fig. 4 --------------------------------------------------------------------------------------------------------------


def test_curves() -> None:
    """Mean over seeds by round in percent, one panel per scenario, of the test set alone."""
    values = {
        (row, column, seed): base + seed / 10
        for row, base in (("fedavgm", 0.4), ("fedsdc", 0.6)) for column in ("iid", "niid1", "niid2") for seed in (0, 1)
    }  # fmt: skip
    drawing = drawn(spec_of(4), "quick", values)
    assert [axis.get_title() for axis in drawing.figure.axes] == ["IID", "NIID-1", "NIID-2"]
    for axis in drawing.figure.axes:
        lines = [np.asarray(line.get_xydata()) for line in axis.lines if len(line.get_xydata()) == 2]  # type: ignore[arg-type]
        found = sorted(tuple(map(tuple, np.round(line, 6))) for line in lines)
        assert found == [((0.0, 22.5), (4.0, 45.0)), ((0.0, 32.5), (4.0, 65.0))]
    assert drawing.figure.axes[0].get_ylabel() == "Micro-F1 (%)"
    assert set(drawing.data["value"]) == {20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0, 70.0}
