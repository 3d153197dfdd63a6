"""Speed and memory beside a bare PyTorch loop, measured in one run so that the ratios mean something.

``make bench``. The bare loop is what one would write without any federation: each client's samples are gathered once,
shuffled and normalised, then contiguous batches go forward and backward into ``torch.optim.SGD``.
"""

import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmark.config.compose import compose, resolve
from benchmark.config.schema import RunConfig
from benchmark.engine import randomness
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Record
from benchmark.experiments.plan import plan, unique_runs
from benchmark.experiments.tables import spec_called
from benchmark.models.networks import build_net
from benchmark.runs.build import build_problem, build_run, choose_device
from benchmark.runs.data import load_data
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import Results, record_lines
from benchmark.runs.writer import write_status
from methods.core.contexts import Phase, RoundView

REPEATS = 5
MNIST = {"train_size": 60_000, "test_size": 500, "size": 28, "channels": 1, "classes": 10}
"""Options of random images of MNIST's shape."""


def _config(
    results: str, data: dict[str, int], clients: int, model: str, method: str = "fedavg", **train: Any
) -> RunConfig:
    layer = {
        "dataset": {"name": "fake", "options": data},
        "partition": {"name": "iid", "clients": clients},
        "model": model,
        "method": method,
        "train": {"lr": 0.01, **train},
        "evaluation": {"every": 10_000},
        "paths": {"results": results},
    }
    return resolve(compose("quick", layer))


def _built(config: RunConfig) -> FederatedRun:
    torch.set_num_threads(config.runtime.threads)
    return build_run(config, load_data(config))


# Against the bare loop -------------------------------------------------------------------------------------------


def bare_loop(config: RunConfig) -> float:
    """Seconds of plain PyTorch over the batches of ``config``: no federation, no evaluation."""
    torch.set_num_threads(config.runtime.threads)
    problem = build_problem(config, load_data(config), torch.device("cpu"))
    _, channels, height, width = problem.images.shape
    shape = (channels, height, width)
    net = build_net(config.model.name, problem.num_classes, shape, config.model.parameters, 0)
    net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=config.train.lr, momentum=config.train.momentum)
    net.train()
    size = config.train.batch_size
    started = time.perf_counter()
    for t in range(config.train.rounds):
        for k, indices in enumerate(problem.clients):
            order = randomness.generator(0, "batches", t, k, 0).permutation(len(indices))
            shuffled = torch.from_numpy(indices[order])
            x, y = problem.transform(problem.images[shuffled]), problem.labels[shuffled]
            for start in range(0, len(y), size):
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(net(x[start : start + size]), y[start : start + size]).backward()
                optimizer.step()
    return time.perf_counter() - started


def federated(config: RunConfig) -> float:
    """Seconds of the rounds of one FedTables run, states and all, without its last evaluation."""
    run = _built(config)
    state = run.initial_state()
    started = time.perf_counter()
    for _ in range(config.train.rounds):
        state, _ = run.step(state)
    return time.perf_counter() - started


def _paired(a: Callable[[], float], b: Callable[[], float]) -> tuple[float, float, float]:
    """(median of a, median of b, median of b / a), taken in turn; the first time warms up."""
    pairs = [(a(), b()) for _ in range(REPEATS + 1)][1:]
    all_a, all_b = zip(*pairs, strict=True)
    return statistics.median(all_a), statistics.median(all_b), statistics.median(b / a for a, b in pairs)


def _rate(pool: Pool, work: Callable[[RunConfig], float], configs: list[RunConfig]) -> float:
    return sum(MNIST["train_size"] / seconds for seconds in pool.map(work, configs, chunksize=1))


def beside_bare_loops(results: str) -> None:
    """One FedTables run beside one bare loop over the same batches, then two beside two, one process for each."""
    for runs in (1, 2):
        configs = [_config(results, MNIST, 100, "small_cnn", rounds=1, batch_size=32)] * runs
        with multiprocessing.get_context("spawn").Pool(runs) as pool:
            bare, ours, ratio = _paired(
                partial(_rate, pool, bare_loop, configs), partial(_rate, pool, federated, configs)
            )
        print(f"  {runs} x bare loop        {bare:9,.0f} samples/s")
        print(f"  {runs} x FedTables run    {ours:9,.0f} samples/s   {ratio:.1%} (target: at least 95 %)")


# Memory ----------------------------------------------------------------------------------------------------------


def peak_memory(clients: int, rounds: int, results: str) -> float:
    """Peak MiB of a process that trains ResNet-18 on ``clients`` clients, above what it held before training."""
    data = {"train_size": 4000, "test_size": 100, "size": 4}
    config = _config(results, data, clients, "resnet18_32", rounds=rounds, epochs=None, steps=1, batch_size=2)
    run = _built(config)
    before = _peak_kib()
    state = run.initial_state()
    for _ in range(rounds):
        state, _ = run.step(state)
    return (_peak_kib() - before) / 1024


def _peak_kib() -> int:
    # On Linux a child inherits ru_maxrss from the process that started it; its status has its own peak.
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # bytes on macOS


def memory(results: str) -> None:
    """Peak memory of a stateless method with 10 and with 1,000 clients, in fresh processes."""
    size = 11_173_962 * 4 / 2**20
    models = []
    for clients, rounds in ((10, 5), (1000, 1)):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            peak = pool.apply(peak_memory, (clients, rounds, results))
        models.append(peak / size)
        print(f"  {clients:5,} clients   {peak:6.0f} MiB above the model at rest = {peak / size:.2f} models")
    print(f"  grown from 10 to 1,000 clients: {models[1] - models[0]:+.2f} models (target: does not grow)")


# Methods ---------------------------------------------------------------------------------------------------------


def local_steps(method: str, model: str, batch: int, results: str) -> Callable[[], float]:
    """A function that trains one client for some steps with ``method``, in round 1, and returns the seconds of a step.

    Without what comes before and after training (FedMR's pass over the data for its prototypes, for instance).
    """
    steps = 1 if model == "resnet18_32" else 20
    data = {"train_size": 2 * batch, "test_size": 20, "size": 32, "channels": 3, "classes": 10}
    config = _config(results, data, 1, model, method, epochs=None, steps=steps, batch_size=batch)
    run = _built(config)
    state, _ = run.step(run.initial_state())
    one = np.ones(1)
    view = RoundView(1, 0.01, 1, (0,), one, run.clients.sizes, one, one, run.clients.label_counts)
    received = {rule.key: rule.send(state.rules[rule.key], 0, view) for rule in run.method.client}

    def train() -> float:
        active = run.clients.contexts(run.method.client, state, 0, state.w, received, {}, "bench")
        started = time.perf_counter()
        run.clients.trainer.run(
            run.clients.data(0), active, (Phase(),), lr=0.01, order=lambda epoch, n: np.arange(n),
            draw=lambda epoch: np.random.default_rng(0), torch_seed=0,
        )  # fmt: skip
        return (time.perf_counter() - started) / steps

    return train


def fedmr_step(results: str) -> None:
    """Local steps of FedMR with both losses beside FedAvg's, taken in turn."""
    for model, batch, target in (("resnet18_32", 128, " (target: at most 1.35)"), ("small_cnn", 64, "")):
        steps = (local_steps(method, model, batch, results) for method in ("fedavg", "fedmr"))
        fedavg, fedmr, ratio = _paired(*steps)
        print(
            f"  {model}, batch {batch}   FedAvg {1000 * fedavg:8,.1f} ms, FedMR {1000 * fedmr:8,.1f} ms per step   "
            f"ratio {ratio:.3f}{target}"
        )


# Planning --------------------------------------------------------------------------------------------------------


def _pretend(results: Results, seeds: int) -> int:
    """Write finished runs of FedMR's Table 1 without training; returns their number."""
    rng = np.random.default_rng(0)
    runs = unique_runs([plan(spec_called("fedmr_table1"), "quick", range(seeds))])
    for key, config in runs.items():
        folder = results.run(key)
        folder.path.mkdir(parents=True)
        values = rng.random(config.train.rounds).tolist()
        lines = record_lines(Record(t, "test", "all", "accuracy", v) for t, v in enumerate(values))
        folder.records_path.write_bytes(lines)
        final = {"test": {"accuracy": values[-1]}}
        write_status(folder.result_path, Status(RunState.DONE, 1, 1, records_bytes=len(lines), final=final))
    return len(runs)


def planning(folder: str) -> None:
    """Whole processes of ``python -m benchmark table`` on finished runs: interpreter start, plan, tabulate, write."""
    cells = len(unique_runs([plan(spec_called("fedmr_table1"), "quick", [0])]))
    for wanted, what, target in ((10_000, "plan and tabulate", 10), (1_000, "no-op relaunch of", 5)):
        results = Results(Path(folder) / f"planning{wanted}").open()
        seeds = -(-wanted // cells)
        count = _pretend(results, seeds)
        words = ["table", "name=fedmr_table1", f"seeds={seeds}", f"results={results.root}", "tuned=off"]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "benchmark", *words], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        print(f"  {what} {count:,} finished runs   {seconds:.2f} s (target: under {target} s)")


def main() -> None:
    """Print all measurements."""
    cores, device = torch.get_num_threads(), choose_device("auto")
    print(f"torch {torch.__version__}, one thread per run, {device}, {cores} cores")
    with tempfile.TemporaryDirectory() as results:
        for title, part in (
            ("Training, images of MNIST's shape, small CNN, 100 clients, batch 32", beside_bare_loops),
            ("Memory, FedAvg, ResNet-18", memory),
            ("FedMR's losses, images of 32 pixels, ten classes", fedmr_step),
            ("Planning", planning),
        ):
            print(title, flush=True)
            part(results)
