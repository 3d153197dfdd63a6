"""One FedAvg job in FedTables, in other frameworks and in a bare PyTorch loop, timed side by side.

``make bench ARGS=peers`` needs Linux, a machine without other load, and the internet: for packages, and for MNIST
unless FEDTABLES_DATA has it. Each framework gets an environment of its own, from the list of packages beside its file
in scripts/bench_peers; all have the same torch. docs/performance.md shows the tables and says what they mean.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmark.errors import UserError, wrong
from benchmark.paths import ROOT
from benchmark.reports.render import markdown
from benchmark.reports.tables import text_table

SCRIPTS, WORK = ROOT / "scripts" / "bench_peers", ROOT / ".cache" / "bench_peers"
REPEATS, SWEEPS, TOLERANCE = 5, 3, 0.005
"""TOLERANCE: most by which two accuracies may differ. Sums in another order have other last bits."""


class Peer(NamedTuple):
    """A framework, its file in scripts/bench_peers, and the cores that it may use."""

    name: str
    file: str
    cores: int = 1

    def start(self, *words: str, watch: bool = False) -> str:
        """What the framework's Python prints when it is started with ``words``; `UserError` if it fails."""
        has_packages = (SCRIPTS / f"{self.file}.txt").exists()
        python = WORK / self.file / "bin" / "python" if has_packages else sys.executable
        variables = {
            "BENCH_PEERS_JOB": WORK / "job.pt", "BENCH_PEERS_CORES": self.cores, "BENCH_PEERS_WATCH": int(watch),
            "BENCH_PEERS_ROOT": os.getpid(), "OMP_NUM_THREADS": 1, "FLWR_TELEMETRY_ENABLED": 0,
            "RAY_USAGE_STATS_ENABLED": 0, "PYTHONPATH": "" if has_packages else ROOT,
        }  # fmt: skip
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        done = subprocess.run([python, *words], env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise UserError(f"peers: {self.name} ended with exit code {done.returncode}; see above.")
        return done.stdout

    def measure(self, repeat: int) -> dict[str, Any]:
        """Carry out the job once. The first repeat watches the memory, which takes time of its own."""
        torchrun = f"-m torch.distributed.run --standalone --nproc-per-node={self.cores}".split()
        words = [*(torchrun if self == TWO_PROCESSES else []), str(SCRIPTS / f"{self.file}.py")]
        started = time.monotonic()
        lines = self.start(*words, watch=repeat == 0).splitlines()
        report = json.loads(next(line for line in lines if line.startswith("{")))
        report["outside"] = time.monotonic() - started - report.pop("rounds") * report["seconds"]
        return {"framework": self.name, "cores": self.cores, "repeat": repeat, **report}

    def four_runs(self) -> float:
        """Seconds of four runs on two cores: one sweep of FedTables, or four commands, two at a time."""
        file, started = str(SCRIPTS / f"{self.file}.py"), time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda words: self.start(file, *words), [["sweep"]] if self == OURS else [[]] * 4))
        return time.monotonic() - started


BARE, OURS, FLOWER = Peer("bare loop", "bare"), Peer("FedTables", "ours"), Peer("Flower", "flower")
PFL, TWO_PROCESSES = (Peer("pfl-research", "pfl_research", cores) for cores in (1, 2))
PEERS = (BARE, OURS, PFL, TWO_PROCESSES, FLOWER, FLOWER._replace(cores=2))


def spread(values: pd.Series) -> str:
    """``1.50 (1.20 to 1.90)``: median, lowest and highest."""
    return f"{values.median():.2f} ({values.min():.2f} to {values.max():.2f})"


def summary(reports: pd.DataFrame) -> pd.DataFrame:
    """A line for each peer from one report per repeat; `UserError` if their accuracies differ."""
    accuracy = reports.groupby(["framework", "cores"], sort=False)["accuracy"]
    if not np.ptp(reports["accuracy"].to_numpy()) <= TOLERANCE:
        raise UserError(f"peers: accuracies differ by more than {TOLERANCE}: {accuracy.agg(list).to_dict()}.")
    bare = reports[reports["framework"] == BARE.name].set_index("repeat")["cpu_seconds"]
    reports = reports.assign(ratio=reports["cpu_seconds"] / reports["repeat"].map(bare))
    timed = reports[reports["repeat"] > 0].groupby(["framework", "cores"], sort=False)
    watched = reports[reports["repeat"] == 0].set_index(["framework", "cores"])
    columns = {
        "seconds per round": timed["seconds"].agg(spread),
        "CPU-seconds per round": timed["cpu_seconds"].agg(spread),
        "CPU, times the bare loop's": timed["ratio"].median(),
        "seconds outside the rounds": timed["outside"].median(),
        "peak MiB": watched["memory"].map("{:,.0f}".format),
        "test accuracy": accuracy.agg(lambda values: f"{values.min():.2%} to {values.max():.2%}"),
        "version": watched["version"],
    }
    return pd.DataFrame(columns).reset_index()


def peers(folder: str) -> None:
    """Make the environments and the job, measure, and print both tables."""
    if sys.platform != "linux":
        raise UserError(wrong("peers", sys.platform, "linux: CPU time and memory are read from /proc"))
    WORK.mkdir(parents=True, exist_ok=True)
    for peer in (PFL, FLOWER):
        subprocess.run([sys.executable, "-m", "venv", WORK / peer.file], check=True)
        peer.start("-m", "pip", "install", "--no-deps", "-r", str(SCRIPTS / f"{peer.file}.txt"))
    OURS.start(str(SCRIPTS / "ours.py"), "job")
    reports, sweeps = [], []
    for repeat in range(1 + REPEATS):
        for peer in PEERS:
            reports.append(peer.measure(repeat))
            print(reports[-1], file=sys.stderr, flush=True)
        measured = summary(pd.DataFrame(reports))
        for peer in (OURS, FLOWER) if 1 <= repeat <= SWEEPS else ():
            sweeps.append({"framework": peer.name, "seconds": peer.four_runs()})
    four = pd.DataFrame(sweeps).groupby("framework", sort=False)["seconds"].agg(spread).reset_index()
    title = f"One FedAvg job, median of {REPEATS} repeats (lowest to highest)"
    print(markdown.render(text_table("peers", title, measured, decimals=2)))
    print(markdown.render(text_table("four", f"Four runs on two cores, median of {SWEEPS}", four)))
