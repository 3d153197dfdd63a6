"""What only a GPU can show: `python scripts/bench/gpu OUT`, with tiny sizes on a CPU for --dry-run.

FEDTABLES_DATA and FEDTABLES_WEIGHTS name the folders with MNIST, FashionMNIST and the weights of results/studies/gpu.
A bare machine with torch, torchvision, timm, pandas and pytest lacks hydra-core, omegaconf, antlr4-python3-runtime,
submitit, pydantic, pydantic-core, annotated-types, typing-inspection and filelock. Bring wheels of the versions in
requirements.lock: `python3 -m pip install --no-index --no-deps --target .site WHEELS/*.whl; export PYTHONPATH=.site`
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE, ROOT = (Path(__file__).resolve().parents[up] for up in (0, 3))

RUN = '{ echo "== ${*:2}"; timeout --foreground -k 45 "$1" "${@:2}"; } 2>&1 | tee -a "$0/report.txt"'
PACK = '[ ! -d "$0/results" ] || tar -C "$0" --remove-files -cf - results | split -b 15m - "$0/results.tar."'

# The study's questions 8 (seven runs at once) and 9 (one after another: a checkpoint has 45 MB), seed by seed.
TABLES = [f"name=feddiverse_cmnist_gpu seeds={seeds} workers=7" for seeds in range(1, 9)]
TABLES += [f"name=fedmr_fmnist_gpu seeds={seeds} workers=1" for seeds in range(1, 6)]


def commands(results: Path, dry: bool) -> list[tuple[float, str]]:
    """Seconds and words of each command: tests, speed, published workloads, and runs of the study."""
    tests = " ".join(map(str, (ROOT / "tests").rglob("test_cuda*.py")))
    how, tables, workers, size = "preset=paper device=cuda cuda_graphs=true", TABLES, 8, "cuda"
    if dry:
        tables = [f"{TABLES[0]} rows=uniform", f"{TABLES[8]} rows=fedavg"]
        how, workers, size = "preset=quick device=cpu", 0, "cpu mini"
    table = f"env FEDTABLES_PATH={ROOT}/results/studies/gpu {sys.executable} -m benchmark table results={results} {how}"
    return [
        (180, f"{sys.executable} -m pytest -n {workers} {tests}"),
        (120, f"{sys.executable} {HERE.parent}/speed.py {size}"),
        (180, f"env FEDTABLES_PATH={HERE} {sys.executable} {HERE}/workloads.py {size}"),
        *((3600, f"{table} {which}") for which in tables),
    ]


def shell(script: str, *words: object) -> int:
    """Run a line of bash with these words; its exit code."""
    path = f"{ROOT}:{HERE.parent}:{os.environ.get('PYTHONPATH', '')}"
    variables = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    command = ["bash", "-o", "pipefail", "-c", script, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=variables).returncode


def main() -> int:
    """Carry out the commands in turn; 1 if one failed for another reason than its time (exit code 124)."""
    parser = argparse.ArgumentParser(prog="scripts/bench/gpu", description="What only a GPU can show.")
    parser.add_argument("out", type=Path, help="folder for report.txt, and results.tar.* with the runs")
    parser.add_argument("--before", type=Path, help="an earlier OUT: only its runs go on")
    parser.add_argument("--minutes", type=float, default=9, help="for all commands together")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on a CPU")
    given = parser.parse_args()
    out, before = given.out.resolve(), given.before and given.before.resolve()
    end = time.monotonic() + 60 * given.minutes - 45  # then runs save their state, and are packed
    out.mkdir(parents=True, exist_ok=True)
    codes: list[int] = []
    if before and shell('cat "$1"/results.tar.* | tar -C "$0" -xf -', out, before):
        return 2  # it says why
    for limit, words in commands(out / "results", given.dry_run)[3 if before else 0 :]:
        if (left := end - time.monotonic()) > 1:
            codes.append(shell(RUN, out, min(limit, left), *words.split()))
    return int(any(code not in (0, 124) for code in [*codes, shell(PACK, out)]))


if __name__ == "__main__":
    sys.exit(main())
