"""One FedAvg job on MNIST in FedTables, pfl-research and Flower, timed in turn.

    python scripts/bench/peers/measure.py

It needs the internet for the packages (lists beside this file; all have the torch of requirements.lock), and MNIST in
FEDTABLES_DATA. The time of a round is that of a command with 8 rounds less that of one with 2, divided by 6, so
starting and evaluating do not count.
"""

import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORK = ROOT / ".cache" / "bench"
PEERS, REPEATS, TOLERANCE = ("ours", "pfl_research", "flower"), 5, 0.005


def start(peer: str, rounds: int, *words: str) -> tuple[float, float]:
    """(seconds of a command, the accuracy that it prints)."""
    own = (HERE / f"{peer}.txt").exists()
    python = WORK / peer / "bin" / "python" if own else sys.executable
    variables = {"BENCH_JOB": str(WORK / "job.pt"), "BENCH_ROUNDS": str(rounds), "OMP_NUM_THREADS": "1"}
    variables |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    variables |= {"PYTHONPATH": "" if own else str(ROOT)}
    command, began = [python, HERE / f"{peer}.py", *words], time.monotonic()
    done = subprocess.run(command, env=os.environ | variables, check=True, capture_output=True, text=True)
    found = re.findall(r"\baccuracy (0\.\d+)", done.stdout)
    return time.monotonic() - began, float(found[-1]) if found else math.nan


def main() -> None:
    """Make the environments and the job, measure, and print a line for each framework."""
    WORK.mkdir(parents=True, exist_ok=True)
    for peer in ("pfl_research", "flower"):
        subprocess.run([sys.executable, "-m", "venv", WORK / peer], check=True)
        pip = [str(WORK / peer / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps", "-r"]
        subprocess.run([*pip, str(HERE / f"{peer}.txt")], check=True)
    start("ours", 8, "job")
    seconds: dict[str, list[float]] = {peer: [] for peer in PEERS}
    accuracies = {}
    for _ in range(REPEATS):
        for peer in PEERS:
            (few, _), (many, accuracies[peer]) = start(peer, 2), start(peer, 8)
            seconds[peer].append((many - few) / 6)
    if not max(accuracies.values()) - min(accuracies.values()) <= TOLERANCE:
        sys.exit(f"error: accuracies differ by more than {TOLERANCE}: {accuracies}")
    for peer, times in seconds.items():
        middle = statistics.median(times)
        spread = f"{min(times):.2f} to {max(times):.2f}"
        print(f"{peer:13} {middle:.2f} s a round ({spread}), {accuracies[peer]:.2%}")


if __name__ == "__main__":
    main()
