"""FedMR's Figs. 1c and 4: what is drawn, from runs and numbers that the test knows."""

from pathlib import Path

import numpy as np
import pytest
from finished_runs import FAKE, finish, request

from benchmark.experiments.figures import FigureSpec, find_figures
from benchmark.experiments.plan import plan
from benchmark.experiments.tables import spec_called
from benchmark.papers import draw_sphere as sphere
from benchmark.papers.figures import find

TOY = {
    "rounds": 3, "epochs": 2, "lr": 0.05, "samples": 8, "noise": 0.2, "mu1": 0.01, "mu2": 0.5, "repeats": 2,
}  # fmt: skip


def figure(number: int) -> FigureSpec:
    (spec,) = find_figures("fedmr", number)
    return spec


# Fig. 1c ---------------------------------------------------------------------------------------------------------


def test_sphere_draws_every_test_point_on_the_unit_sphere(tmp_path: Path) -> None:
    drawn = find("sphere")(request(figure(1), tmp_path, **TOY))
    sizes = drawn.data.groupby(["panel", "class"], sort=False).size()
    assert sizes.to_dict() == {(title, c): 8 for title in sphere.TITLES for c in range(6)}
    places = drawn.data[["x", "y", "z"]].to_numpy()
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), 1, atol=1e-5)
    for axis, title in zip(drawn.figure.axes, sphere.TITLES, strict=True):
        assert axis.get_title() == title
    again = find("sphere")(request(figure(1), tmp_path, **TOY))
    assert drawn.data.equals(again.data) and drawn.remarks == again.remarks
    assert "over 2 draws" in drawn.remarks[0] and len(drawn.remarks) == 4


# Fig. 4 ----------------------------------------------------------------------------------------------------------


def bars() -> FigureSpec:
    longer = FAKE | {"train": {"rounds": 4, "batch_size": 8}}
    rows = [{"key": m, "label": m, "method": m} for m in ("fedavg", "fedprox", "fedmr")]
    columns = [{"key": "a", "label": "A", **FAKE}, {"key": "b", "label": "B", **longer}]
    table = {"metric": "accuracy", "presets": ["quick"], "rows": rows, "columns": columns}
    return FigureSpec(
        name="toy", paper="toy", figure=4, title="Toy", kind="resources", table=table, options={"repeats": 1},
        presets={"quick": {}},
    )  # fmt: skip


def test_bars_are_quotients_and_what_is_reached(tmp_path: Path) -> None:
    """fedprox is done in both columns for seed 0 (40, 60 %) and in one for seed 1: its bar is 50 %."""
    asked = request(bars(), tmp_path)
    reached = {
        ("fedavg", "a"): (0.2, 0.4), ("fedavg", "b"): (0.4, 0.6),
        ("fedprox", "a"): (0.4, 0.9), ("fedprox", "b"): (0.6,),
    }  # fmt: skip
    for cell, values in reached.items():
        for run, value in zip(asked.cells[cell].runs, values, strict=False):
            finish(asked.index.results, run, final={"test": {"accuracy": value}})
    drawn = find("resources")(asked)
    held, seconds, accuracy = drawn.figure.axes
    assert [label.get_text() for label in held.get_yticklabels()] == ["fedavg", "fedprox", "fedmr"]
    widths = [bar.get_width() for bar in held.patches]
    assert widths[:2] == [1, 2] and 1 < widths[2] < 1.1
    assert seconds.patches[0].get_width() == 1
    means = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in accuracy.patches}
    # The mean over seeds of the mean over columns: (30 + 50)/2 for fedavg; fedmr has no run.
    assert {k: v for k, v in means.items() if v == v and v} == {0: pytest.approx(40), 1: pytest.approx(50)}
    sizes = drawn.data.groupby("measure").size().to_dict()
    assert sizes == {"held": 6, "seconds": 6, "accuracy": 3}


def test_figure_4_uses_the_runs_of_table_1() -> None:
    spec = figure(4).runs
    assert spec is not None
    whole = spec_called("fedmr_table1")
    table = whole.cut([row.key for row in whole.rows], [column.key for column in spec.columns])
    for preset in ("quick", "small", "paper"):
        ours, theirs = plan(spec, preset, (0,)), plan(table, preset, (0,))
        assert len(theirs) == 8 * 4
        assert theirs.items() <= ours.items()
