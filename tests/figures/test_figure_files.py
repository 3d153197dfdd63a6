"""The files of conf/figure: which there are, that their runs can be planned, and what a drawing without runs says."""

from __future__ import annotations

from pathlib import Path

import pytest
from finished_runs import drawn, request

from benchmark.errors import ConfigError
from benchmark.experiments.figures import find_figures
from benchmark.experiments.plan import plan
from benchmark.figures.registry import find

SPECS = {spec.name: spec for spec in find_figures()}


@pytest.mark.parametrize("name", SPECS)
def test_every_file_plans_all_its_presets(name: str) -> None:
    spec = SPECS[name]
    for preset in spec.presets:
        spec.settings(preset)
        if spec.runs is not None:
            states = {cell.state for cell in plan(spec.runs, preset).values()}
            assert states <= {"ok", "not in this preset"}
            assert "ok" in states


def test_there_are_the_figures_with_numbers_of_the_papers() -> None:
    numbers = {
        paper: [s.figure for s in SPECS.values() if s.paper == paper] for paper in ("feddiverse", "fedsdc")
    }
    assert numbers == {"feddiverse": list(range(3, 10)), "fedsdc": [1, 3, 4]}


@pytest.mark.parametrize(
    "name", ["feddiverse_figure4", "feddiverse_figure5", "fedsdc_figure1", "fedsdc_figure4"]
)
def test_without_finished_runs_there_is_nothing_to_draw(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to draw"):
        drawn(SPECS[name], tmp_path)


@pytest.mark.parametrize(
    "kind", ["resources", "bars", "curves", "sensitivity", "selected_clients", "critical_difference"]
)
def test_a_drawing_of_runs_needs_a_table(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a table"):
        find(kind)(request(SPECS["feddiverse_figure3"], tmp_path))
