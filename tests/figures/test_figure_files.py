"""The files of conf/figure: their runs can be planned, and what a drawing without runs says."""

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
            states = {cell.state for cell in plan(spec.runs, preset, (0,)).values()}
            known = "not tuned" if spec.runs.tuned_only else "ok"
            assert {known} <= states <= {known, "not in this preset"}


@pytest.mark.parametrize(
    "name", ["feddiverse_figure4", "feddiverse_figure5", "fedsdc_figure1", "fedsdc_figure4", "leaderboard"]
)
def test_a_drawing_of_runs_needs_a_table_and_runs(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing to (draw|rank)"):
        drawn(SPECS[name], tmp_path)
    with pytest.raises(ConfigError, match="needs a table"):
        find(SPECS[name].kind)(request(SPECS["feddiverse_figure3"], tmp_path))


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ConfigError, match=r"kind: got 'curve'.*Did you mean 'curves'"):
        find("curve")
