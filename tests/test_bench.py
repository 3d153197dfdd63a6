"""The measurements of speed start."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BENCH = Path(__file__).resolve().parent.parent / "scripts" / "bench"


def answer(*words: str, **variables: str) -> str:
    command = [sys.executable, *words]
    environment = os.environ | {"PYTHONPATH": str(BENCH.parents[1])} | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_speed() -> None:
    text = answer(str(BENCH / "speed.py"), "cpu", "mini")
    assert re.search(r"small CNN, .*: bare loop [\d,]+ samples/s, FedTables [\d,]+, ratio \d", text)


def test_peers(real_data: Path, tmp_path: Path) -> None:
    """Ours; the others need environments of their own."""
    job = {"BENCH_JOB": str(tmp_path / "job.pt"), "BENCH_ROUNDS": "2", "FEDTABLES_DATA": str(real_data)}
    answer(str(BENCH / "peers" / "ours.py"), "job", **job)
    assert (tmp_path / "job.pt").exists()
    assert re.search(r"\baccuracy 0\.\d+", answer(str(BENCH / "peers" / "ours.py"), **job))
