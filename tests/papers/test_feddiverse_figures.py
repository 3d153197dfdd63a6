"""FedDiverse's figures: their numbers by hand, from made-up runs, and their files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from finished_runs import drawn, finish, request

from benchmark.engine.records import Record
from benchmark.errors import ConfigError
from benchmark.experiments.figures import FIGURE_FOLDER, FigureSpec, load_figure
from benchmark.experiments.plan import plan
from benchmark.papers.draw_clients import TYPES, _types
from benchmark.runs.folder import ResultsFolder


def spec_of(number: int) -> FigureSpec:
    return load_figure(FIGURE_FOLDER / f"feddiverse_figure{number}.yaml")


def test_errors_are_means_over_seeds_in_their_places(tmp_path: Path) -> None:
    spec = spec_of(4).model_copy(update={"rows": ("q=0.1", "q=0.3")})
    results = ResultsFolder(tmp_path).open()
    assert spec.runs is not None
    for cell in plan(spec.runs, "quick", range(2)).values():
        for run in cell.runs:
            largest = run.selection["q"] + run.selection["tau_a"] / 100 + run.seed / 10
            errors = {"dht_error": run.selection["tau_b"] / 1000, "dht_error_max": largest}
            finish(results, run, final={"selection": errors})
    drawing = drawn(spec, tmp_path)
    panels = drawing.figure.axes
    assert len(panels) == 4  # two metrics, two q
    upper = [float(text.get_text()) for text in panels[1].texts]
    # q = .3, seeds' mean .05; columns 5, 10, 50 attribute steps, the same in all three rows
    assert upper == [0.40, 0.45, 0.85] * 3
    lower = [float(text.get_text()) for text in panels[3].texts]
    assert lower == [0.10] * 3 + [0.05] * 3 + [0.01] * 3  # large tau_b on top; .005 shows as .01
    framed = [axis for axis in panels if axis.patches]
    assert framed == [panels[1], panels[3]]  # q = .3
    assert framed[0].patches[0].get_xy() == (1, 1)  # 10 attribute steps, 50 biased steps
    assert drawing.remarks == ("Means over seeds (2).", "Framed: the values that the paper chose.")


CAPTIONS = {
    5: (4, 4, 16),  # the captions: 16.7, 16.7, 66.6 % of 24
    6: (16, 4, 4),
    7: (3, 20, 2),  # 12 % CI, 8 % SC of 25; four clients have equal CI and AI
    8: (4, 4, 17),
    9: (3, 2, 25),  # 10.0, 6.7, 83.3 % of 30
}


@pytest.mark.parametrize("number", CAPTIONS)
@pytest.mark.parametrize("scale", [None, 1.0])
def test_types_are_those_of_the_captions(number: int, scale: float | None, tmp_path: Path) -> None:
    """Also with the scaled matrices of the stand-ins. Other partitions have no types."""
    asked = request(spec_of(number), tmp_path)
    run = next(iter(asked.cells.values())).runs[0]
    partition = run.partition.model_copy(update={} if scale is None else {"scale": scale})
    types = _types(asked, run.model_copy(update={"partition": partition}))
    assert tuple((types == name).sum() for name in TYPES) == CAPTIONS[number]
    iid = run.partition.model_copy(update={"name": "iid"})
    with pytest.raises(ConfigError, match="partition: got 'iid'"):
        _types(asked, run.model_copy(update={"partition": iid}))


def participation(rounds: Mapping[int, Sequence[int]]) -> list[Record]:
    pairs = [(t, k) for t, clients in rounds.items() for k in clients]
    return [Record(t, "participation", f"client={k}", "weight", 0.25) for t, k in pairs]


def test_shares_and_rounds_by_hand(tmp_path: Path) -> None:
    """WaterBirds: clients 1, 2, 4 are CI (Table 6), 0 and 3 AI. Pre-training has no records; 20 rounds are shown."""
    spec = spec_of(9)
    assert spec.runs is not None
    cells, results = plan(spec.runs, "quick", range(1)), ResultsFolder(tmp_path).open()
    assert [row.key for row in spec.runs.rows] == ["uniform", "known", "known_absolute", "estimated"]
    forms = [cells[row.key, "waterbirds_dist"].runs[0] for row in spec.runs.rows]
    assert [run.selection.get("third") for run in forms] == [None, "signed", "absolute", "signed"]
    absolute, estimated = forms[2:]
    finish(results, absolute, participation({t: [1, 2, 0, 20] for t in range(2, 30)}))
    finish(results, estimated, participation({t: [3, 10, 11, 12 + t % 2] for t in range(2, 22)}))
    drawing = drawn(spec, tmp_path)
    data = drawing.data
    assert set(data["round"]) == set(range(2, 22))
    assert len(data) == 2 * 20 * 4
    # sorted by type: CI are clients 1, 2, 4, then AI 0, 3, then the rest in order
    place = dict(zip(data["client"], data["place"], strict=True))
    assert [place[k] for k in (1, 2, 0, 3, 10, 20)] == [0, 1, 3, 4, 10, 20]
    assert drawing.remarks == (
        "Clients: 3 CI, 2 AI, 25 SC. Share of places: "
        "known triplets, absolute CI 50.0 %, AI 25.0 %, SC 25.0 % (seeds: 1); "
        "estimated triplets, signed CI 0.0 %, AI 25.0 %, SC 75.0 % (seeds: 1).",
    )
    first = drawing.figure.axes[0]
    assert "CI 50.0 % (10.0 %)" in [text.get_text() for text in first.texts]
    dots = np.asarray(first.collections[-1].get_offsets())
    assert sorted(dots[dots[:, 0] == 2][:, 1].tolist()) == [0, 1, 3, 20]
