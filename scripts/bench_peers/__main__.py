"""One FedAvg job in FedTables, in other frameworks and in a bare PyTorch loop, timed side by side.

    python3 scripts/bench_peers

needs Linux, `.venv` (`make setup`), a machine without other load, and the internet: for packages, and for MNIST unless
FEDTABLES_DATA has it. Each peer gets an environment of its own, from the list of packages beside its file; all have the
same torch. Writes the section "Beside other frameworks" of docs/performance.md.
"""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usage import memory

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / ".cache" / "bench_peers"
PAGE = ROOT / "docs" / "performance.md"
TITLE = "## Beside other frameworks"
REPEATS, SWEEPS = 5, 3
TOLERANCE = 0.005
"""Most by which two accuracies may differ. Sums in another order have other last bits, which training amplifies: Flower
adds the clients' weights in the order of their arrival, and its accuracy varied by 0.0035 over twelve runs of this job.
With its replies sorted first it was the same in four of four runs.
"""


@dataclass(frozen=True)
class Peer:
    """A framework, its file here, and what it has one of for each core."""

    name: str
    file: str
    unit: str
    units: str
    own_packages: bool = False

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return (WORK / self.file if self.own_packages else ROOT / ".venv") / "bin" / "python"


BARE = Peer("bare loop", "bare", "process", "processes")
OURS = Peer("FedTables", "ours", "process", "processes")
PFL = Peer("pfl-research", "pfl_research", "process", "processes", own_packages=True)
FLOWER = Peer("Flower", "flower", "Ray actor", "Ray actors", own_packages=True)

Case = tuple[Peer, int]
"""A framework on so many cores."""
CASES: list[Case] = [(BARE, 1), (OURS, 1), (PFL, 1), (PFL, 2), (FLOWER, 1), (FLOWER, 2)]
Report = dict[str, Any]
"""What a framework's file prints, ``outside`` (seconds of the command outside its rounds) and ``memory`` (peak MiB)."""


# Measuring -------------------------------------------------------------------------------------------------------


def printed_by(peer: Peer, words: Sequence[str], cores: int = 1) -> str:
    """What the peer's interpreter prints when it is started with ``words``; exits if it fails."""
    log = WORK / f"{peer.file}.log"
    ours = {"BENCH_PEERS_JOB": WORK / "job.npz", "BENCH_PEERS_CORES": cores, "BENCH_PEERS_ROOT": os.getpid()}
    more = ours | {"OMP_NUM_THREADS": 1, "FLWR_TELEMETRY_ENABLED": 0, "RAY_USAGE_STATS_ENABLED": 0}
    if not peer.own_packages:
        more["PYTHONPATH"] = ROOT
    variables = os.environ | {name: str(value) for name, value in more.items()}
    with log.open("a") as messages:
        command = [str(peer.python), *words]
        done = subprocess.run(
            command, env=variables, stdout=subprocess.PIPE, stderr=messages, text=True, cwd=ROOT
        )
    if done.returncode:
        sys.exit(f"bench_peers: {peer.name}: exit code {done.returncode} of {' '.join(words)}; see {log}")
    return done.stdout


def measure(peer: Peer, cores: int, watch: bool) -> Report:
    """Carry out the job once. Watching the memory takes time of its own."""
    peak, ended = [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(1.0):
            peak[0] = max(peak[0], memory(os.getpid()))

    several = peer is PFL and cores > 1
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={cores}"] if several else []
    watcher = threading.Thread(target=sample)
    if watch:
        watcher.start()
    started = time.monotonic()
    try:
        printed = printed_by(peer, [*launcher, str(HERE / f"{peer.file}.py")], cores)
    finally:
        ended.set()
    seconds = time.monotonic() - started
    if watch:
        watcher.join()
    report = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    return report | {"outside": seconds - report["rounds"] * report["seconds"], "memory": peak[0]}


def four_runs(peer: Peer) -> float:
    """Seconds of four runs on two cores: one sweep of FedTables, or four commands, two at a time."""
    started, file = time.monotonic(), str(HERE / f"{peer.file}.py")
    if peer is OURS:
        printed_by(peer, [file, "sweep"])
    else:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda words: printed_by(peer, words), [[file]] * 4))
    return time.monotonic() - started


def set_up() -> None:
    """Write the job, and make the environments that are missing."""
    if sys.platform != "linux":
        sys.exit("bench_peers: needs Linux: CPU time and memory are read from /proc")
    if not OURS.python.exists():
        sys.exit("bench_peers: there is no .venv; run `make setup` first")
    sys.path.append(str(ROOT / "scripts"))
    from setup_environment import find_uv, step

    WORK.mkdir(parents=True, exist_ok=True)
    uv = find_uv()
    for peer in (PFL, FLOWER):
        python, failed = str(peer.python), f"the environment of {peer.name} could not be made; see above"
        if not peer.python.exists():
            step([*uv, "venv", "-q", "-p", str(OURS.python), str(WORK / peer.file)], failed)
        step([*uv, "pip", "sync", "-q", "-p", python, str(HERE / f"{peer.file}.txt")], failed)
    printed_by(OURS, [str(HERE / "job.py")])


# The page --------------------------------------------------------------------------------------------------------


def check(reports: Mapping[Case, Sequence[Report]]) -> float:
    """The difference of the highest and the lowest accuracy; exits if not everybody did the same job."""
    found = {
        f"{peer.name}, {cores}": [r["accuracy"] for r in every] for (peer, cores), every in reports.items()
    }
    values = [value for every in found.values() for value in every]
    if not all(abs(a - b) <= TOLERANCE for a in values for b in values):
        sys.exit(
            f"bench_peers: accuracies differ by more than {TOLERANCE}, so this is no comparison: {found}"
        )
    return max(values) - min(values)


def _spread(values: Sequence[float], digits: int = 2) -> str:
    median, lowest, highest = (f"{f(values):.{digits}f}" for f in (statistics.median, min, max))
    return f"{median} ({lowest} to {highest})"


def _row(case: Case, reports: Sequence[Report], bare: Sequence[Report]) -> str:
    peer, cores = case
    timed = reports[1:]  # the first repeat watches the memory
    ratio = statistics.median(
        a["cpu_seconds"] / b["cpu_seconds"] for a, b in zip(timed, bare[1:], strict=True)
    )
    cells = [
        peer.name,
        f"{cores} {peer.unit if cores == 1 else peer.units}",
        _spread([r["seconds"] for r in timed]),
        _spread([r["cpu_seconds"] for r in timed]),
        f"{ratio:.2f}",
        f"{statistics.median(r['outside'] for r in timed):.1f}",
        f"{reports[0]['memory']:,.0f}",
        " to ".join(dict.fromkeys(f"{f(r['accuracy'] for r in reports):.2%}" for f in (min, max))),
    ]
    return f"| {' | '.join(cells)} |"


COLUMNS = (
    "", "on", "seconds per round", "CPU-seconds per round", "CPU, times the bare loop's", "seconds outside the rounds",
    "peak MiB", "test accuracy",
)  # fmt: skip


def section(
    reports: Mapping[Case, Sequence[Report]], sweeps: Mapping[Peer, Sequence[float]], machine: str
) -> str:
    """The section of the page. The first report of each case is that of the repeat which watches the memory."""
    spread, bare = check(reports), reports[BARE, 1]
    versions = ", ".join(reports[peer, 1][0]["version"] for peer in (BARE, PFL, FLOWER))
    four = "\n".join(f"| {peer.name} | {_spread(seconds, 1)} |" for peer, seconds in sweeps.items())
    return f"""{TITLE}

{INTRODUCTION}

Measured on {machine}; {versions}; median of {len(bare) - 1} interleaved repeats (lowest to highest):

| {" | ".join(COLUMNS)} |
{"|---" * len(COLUMNS)}|
{chr(10).join(_row(case, every, bare) for case, every in reports.items())}

The accuracies differ by {100 * spread:.2f} points at most. Sums in another order have other last bits, which training
amplifies; Flower adds the clients' weights in the order of their arrival.

| four runs on two cores | seconds, median of {len(sweeps[OURS])} |
|---|---|
{four}

{REMARKS}
"""


INTRODUCTION = """\
```
python3 scripts/bench_peers
```

carries out one FedAvg job in FedTables, [pfl-research](https://github.com/apple/pfl-research),
[Flower](https://flower.ai) and a bare PyTorch loop: MNIST, eight rounds, 100 clients (Dirichlet, alpha 0.5), 10 of
them in a round, one local epoch with batches of 32, a CNN with two convolutions. All have the same partition, initial
weights, clients in each round, order of the samples, version of torch, and one thread per process. pfl-research runs on
its simulated backend (torchrun starts two processes), Flower on its simulation runtime (Ray); `scripts/bench_peers/`
has one short file for each."""

REMARKS = """\
- *Seconds per round* leave out the first round (start-up) and the last one (evaluation). *Seconds outside the rounds*
  are the rest of the command: start, data, evaluation, end.
- CPU-seconds count all processes of a framework. Memory counts a page that several processes share once. Where the load
  average is above the number of cores, seconds contain waiting for other programs: compare CPU-seconds.
- A FedTables run is one process with one thread, and two cores carry out two runs. The second table compares one sweep
  of four runs (`run -m`, two workers) with four commands of Flower, two at a time, one Ray actor each.
- FedTables also writes the run's folder, with records and results; the other files write nothing.
- Flower is started with `run_simulation` instead of the command `flwr run`; the simulation engine is the same.
- FL-bench and PFLlib are not compared: neither is on PyPI."""


def machine() -> str:
    """Cores, processor, load and Python of this machine."""
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    name = processor[1] if processor else platform.machine()
    load = f"load average {os.getloadavg()[2]:.1f}"
    return f"{len(os.sched_getaffinity(0))} cores ({name}; {load}), Python {platform.python_version()}"


def put(text: str, page: str) -> str:
    """The page with ``text`` in the place of its section, or at its end."""
    before, title, rest = page.partition(TITLE)
    after = rest.partition("\n## ")[1:] if title else ("", "")
    return f"{before.rstrip()}\n\n{text}{''.join(after)}"


def main() -> None:
    """Measure, check, and write the section."""
    set_up()
    reports: dict[Case, list[Report]] = {case: [] for case in CASES}
    sweeps: dict[Peer, list[float]] = {OURS: [], FLOWER: []}
    for repeat in range(1 + REPEATS):
        for (peer, cores), every in reports.items():
            every.append(measure(peer, cores, watch=repeat == 0))
            print(f"{repeat}/{REPEATS} {peer.name}, {cores}: {every[-1]}", file=sys.stderr, flush=True)
        check(reports)
        for peer, seconds in sweeps.items():
            if 1 <= repeat <= SWEEPS:
                seconds.append(four_runs(peer))
                print(
                    f"{repeat}/{REPEATS} {peer.name}, four runs: {seconds[-1]:.1f} s",
                    file=sys.stderr,
                    flush=True,
                )
    text = section(reports, sweeps, machine())
    print(text)
    PAGE.write_text(put(text, PAGE.read_text()))


if __name__ == "__main__":
    main()
