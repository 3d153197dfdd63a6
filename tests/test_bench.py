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


def test_gpu(tmp_path: Path) -> None:
    """The dry run; and another one, which goes on with its runs."""
    first, second, words = tmp_path / "first", tmp_path / "second", ("--dry-run", "--minutes", "60")
    answer(str(BENCH / "gpu"), str(first), *words)
    report = (first / "report.txt").read_text()
    said = r"test_cuda.*(passed|skipped).*ratio \d.*pfl_research, 1500 rounds: .*blazefl, 5 rounds: "
    assert re.search(said + ".*feddiverse_cmnist_gpu: 1 done.*fedmr_fmnist_gpu: 1 done", report, re.DOTALL)
    answer(str(BENCH / "gpu"), str(second), "--before", str(first), *words)
    report = (second / "report.txt").read_text()
    assert report.count("_gpu: 1 done") == 2 and "1 to do" not in report


@pytest.mark.parametrize(
    ("name", "multiplications"),
    [
        ("pfl_research", 30 * 30 * 27 * 32 + 28 * 28 * 288 * 64 + 14 * 14 * 64 * 128 + 128 * 10),
        ("blazefl", 28 * 28 * 75 * 6 + 10 * 10 * 150 * 16 + 400 * 120 + 120 * 84 + 84 * 10),
    ],
)
def test_published_networks(name: str, multiplications: int) -> None:
    """A multiplication counts as two operations, with its sum."""
    count = f"print(count_flops({name!r}, {{}}, 10, (3, 32, 32)))"
    found = answer(
        "-c", f"from benchmark.models.networks import *; {count}", FEDTABLES_PATH=str(BENCH / "gpu")
    )
    assert float(found) == 2 * multiplications


def test_peers(real_data: Path, tmp_path: Path) -> None:
    """Ours; the others need environments of their own."""
    job = {"BENCH_JOB": str(tmp_path / "job.pt"), "BENCH_ROUNDS": "2", "FEDTABLES_DATA": str(real_data)}
    answer(str(BENCH / "peers" / "ours.py"), "job", **job)
    assert (tmp_path / "job.pt").exists()
    assert re.search(r"\baccuracy 0\.\d+", answer(str(BENCH / "peers" / "ours.py"), **job))
