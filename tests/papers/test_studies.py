"""The studies in results/studies: each is a repository of one's own whose tables and figures can be made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.experiments.plan import plan
from benchmark.experiments.tables import load_spec
from benchmark.paths import CONF, ROOT, VARIABLE

STUDIES = ROOT / "results" / "studies"
TABLES = {path.stem: path for path in STUDIES.glob("*/conf/table/*.yaml")}


@pytest.fixture(autouse=True)
def all_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.paths.CONF_FOLDERS", [*STUDIES.glob("*/conf"), CONF])


@pytest.mark.parametrize("name", TABLES)
def test_every_table_plans_all_its_presets(name: str) -> None:
    spec = load_spec(TABLES[name])
    for preset in spec.presets:
        assert {cell.state for cell in plan(spec, preset, range(1)).values()} <= {"ok", "not in this preset"}


def test_runs_before_a_default_changed_keep_their_form() -> None:
    """By name: FedSDC's heads and clients; FedMR's loss over the pairs of all ten classes (with 2: 0.002 of 0.01)."""
    fedsdc = load_spec(TABLES["fedsdc_equal_classes"]).cell_settings("fedsdc", "niid1", "small")
    assert fedsdc is not None
    assert fedsdc["method"]["client"] == {"fedsdc": {"head_init": "xavier"}}
    assert fedsdc["partition"]["seed"] is None
    for (row, column), cell in plan(load_spec(TABLES["fedmr_eps"]), "small", range(1)).items():
        if row.startswith("both"):
            fedmr = cell.runs[0].method["client"]["fedmr"]
            assert fedmr["mu2"] == (0.01 if column.endswith("iid") else 0.002)
            assert fedmr["mu1"] == float(row.split("_")[1])


def test_a_study_is_a_repository_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmark", "status", "name=fedsdc_equal_classes", "preset=small"],
        env=os.environ | {VARIABLE: str(STUDIES / "equal_classes"), "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "fedsdc_equal_classes" in done.stdout
