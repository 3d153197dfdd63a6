"""The files of conf/figure: their runs can be planned, and what a drawing without runs says."""

import pytest

from benchmark.experiments.figures import find_figures
from benchmark.experiments.plan import plan

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
