"""Speed and memory beside a bare PyTorch loop, measured in one run so that the ratios mean something.

``make bench``. The bare loop is what one would write without any federation: each client's samples are gathered once,
shuffled and normalised, then contiguous batches go forward and backward into ``torch.optim.SGD``.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmark.config.compose import compose, resolve
from benchmark.config.schema import RunConfig
from benchmark.engine import randomness
from benchmark.models.networks import build_net
from benchmark.runs.build import build_problem, build_run, choose_device
from benchmark.runs.data import load_data
from benchmark.runs.execute import round_seconds
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import RunFolder
from datasets.core.base import DataError
from methods.core.contexts import Phase, RoundView

REPEATS = 5


def _config(results: str, clients: int, rounds: int, **train: Any) -> RunConfig:
    """FedAvg with the small CNN on MNIST, or on random images of its shape where MNIST is not there."""
    layer: dict[str, Any] = {
        "dataset": {"name": "mnist", "test_per_class": 50},
        "partition": {"name": "iid", "clients": clients},
        "model": "small_cnn",
        "method": "fedavg",
        "train": {"rounds": rounds, "epochs": 1, "batch_size": 32, "lr": 0.01, "momentum": 0.9, **train},
        "evaluation": {"every": 10_000},
        "paths": {"results": results},
    }
    config = resolve(compose("small", layer))
    try:
        load_data(config)
    except DataError:
        print("  (MNIST is not there: random images of its shape)")
        layer["dataset"] = {
            "name": "fake",
            "options": {
                "train_size": 60_000,
                "test_size": 500,
                "size": 28,
                "channels": 1,
                "classes": 10,
            },
            "train_per_class": None,
        }
        config = resolve(compose("small", layer))
    return config


# Against the bare loop -------------------------------------------------------------------------------------------


def bare_loop(config: RunConfig) -> tuple[int, float]:
    """(samples, seconds) of plain PyTorch over the batches of ``config``: no federation, no evaluation."""
    torch.set_num_threads(config.runtime.threads)
    data = load_data(config)
    problem = build_problem(config, data, torch.device("cpu"))
    shape = tuple(problem.images.shape[1:])
    net = build_net(config.model.name, problem.num_classes, shape, config.model.parameters, 0)  # type: ignore[arg-type]
    if config.precision.channels_last:
        net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=config.train.lr, momentum=config.train.momentum)
    net.train()
    size, seen = config.train.batch_size, 0
    started = time.perf_counter()
    for t in range(config.train.rounds):
        for k, indices in enumerate(problem.clients):
            shuffled = torch.from_numpy(
                indices[randomness.generator(0, "batches", t, k, 0).permutation(len(indices))]
            )
            x, y = problem.transform(problem.images[shuffled]), problem.labels[shuffled]
            for start in range(0, len(y), size):
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(net(x[start : start + size]), y[start : start + size]).backward()
                optimizer.step()
            seen += len(y)
    return seen, time.perf_counter() - started


def federated(config: RunConfig) -> tuple[int, float]:
    """(samples, seconds) of the rounds of one FedTables run, states and all, without its last evaluation."""
    torch.set_num_threads(config.runtime.threads)
    run = build_run(config, load_data(config))
    state = run.initial_state()
    started = time.perf_counter()
    for _ in range(config.train.rounds):
        state, _ = run.step(state)
    return int(run.clients.sizes.sum()) * config.train.rounds, time.perf_counter() - started


def _paired(
    a: Callable[[], tuple[int, float]], b: Callable[[], tuple[int, float]]
) -> tuple[float, float, float]:
    """(median rate of a, median rate of b, median of rate b / rate a), taken in turn."""
    a(), b()
    pairs = []
    for _ in range(REPEATS):
        (samples_a, seconds_a), (samples_b, seconds_b) = a(), b()
        pairs.append((samples_a / seconds_a, samples_b / seconds_b))
    ratios = [y / x for x, y in pairs]
    return (
        statistics.median(x for x, _ in pairs),
        statistics.median(y for _, y in pairs),
        statistics.median(ratios),
    )


def one_run(results: str) -> None:
    """One FedTables run beside one bare loop over the same batches, 100 clients."""
    config = _config(results, clients=100, rounds=1)
    bare, ours, ratio = _paired(lambda: bare_loop(config), lambda: federated(config))
    print(f"  bare loop            {bare:9,.0f} samples/s")
    print(
        f"  one FedTables run    {ours:9,.0f} samples/s   {ratio:.1%} of the bare loop (target: at least 95 %)"
    )


def _beside(kind: str, plain: dict[str, Any], barrier: Any, out: Any) -> None:
    """One of two processes side by side: warm up, wait for the other, measure."""
    config = RunConfig.model_validate(plain)
    work = bare_loop if kind == "bare" else federated
    work(config)
    for _ in range(REPEATS):
        barrier.wait()
        out.put((kind, *work(config)))


def two_runs(results: str) -> None:
    """Two runs on two workers beside two bare loops, one thread each."""
    config = _config(results, clients=100, rounds=1).model_dump(mode="json")
    context = multiprocessing.get_context("spawn")
    rates = {}
    for kind in ("bare", "ours"):
        barrier, out = context.Barrier(2), context.Queue()
        both = [context.Process(target=_beside, args=(kind, config, barrier, out)) for _ in range(2)]
        for process in both:
            process.start()
        times = [out.get() for _ in range(2 * REPEATS)]
        for process in both:
            process.join()
        rates[kind] = 2 * statistics.median(samples / seconds for _, samples, seconds in times)
    print(f"  two bare loops       {rates['bare']:9,.0f} samples/s together")
    share = rates["ours"] / rates["bare"]
    print(
        f"  two FedTables runs   {rates['ours']:9,.0f} samples/s together   {share:.1%} (target: at least 95 %)"
    )


def rounds_per_second(results: str) -> None:
    """Rounds per second with 100 and 1,000 clients, all of them in every round, one step each."""
    for clients in (100, 1000):
        config = _config(results, clients, rounds=2, epochs=None, steps=1)
        federated(config)
        _, seconds = federated(config)
        print(f"  {clients:5,} clients, 1 step each   {config.train.rounds / seconds:6.2f} rounds/s")


# Memory ----------------------------------------------------------------------------------------------------------


def peak_memory(clients: int, rounds: int, results: str) -> float:
    """Peak MiB of a process that trains ResNet-18 on ``clients`` clients, above what it held before training."""
    layer = {
        "dataset": {
            "name": "fake",
            "options": {"train_size": 4000, "test_size": 100, "size": 4},
        },
        "partition": {"name": "iid", "clients": clients},
        "model": "resnet18_32",
        "method": "fedavg",
        "train": {"rounds": rounds, "epochs": None, "steps": 1, "batch_size": 2, "lr": 0.01, "momentum": 0.9},
        "paths": {"results": results},
    }
    config = resolve(compose("quick", layer))
    torch.set_num_threads(1)
    run = build_run(config, load_data(config))
    before = _peak_kib()
    state = run.initial_state()
    for _ in range(rounds):
        state, _ = run.step(state)
    return (_peak_kib() - before) / 1024


def _peak_kib() -> int:
    """Most memory that this process has held, in KiB."""
    # A child inherits ru_maxrss from the process that started it, which may be larger than itself; Linux counts the
    # child's own in its status.
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)


def memory(results: str) -> None:
    """Peak memory of a stateless method with 10 and with 1,000 clients, in fresh processes."""
    size = 11_173_962 * 4 / 2**20
    peaks = {}
    for clients, rounds in ((10, 5), (1000, 1)):
        code = f"from benchmark.bench.speed import peak_memory; print(peak_memory({clients}, {rounds}, {results!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        peaks[clients] = float(done.stdout.split()[-1])
        print(
            f"  {clients:5,} clients   {peaks[clients]:6.0f} MiB above the model at rest "
            f"= {peaks[clients] / size:.2f} models"
        )
    grown = (peaks[1000] - peaks[10]) / size
    print(f"  grown from 10 to 1,000 clients: {grown:+.2f} models (target: does not grow)")


# Methods ---------------------------------------------------------------------------------------------------------


def local_steps(method: str, model: str, batch: int, results: str) -> Callable[[], tuple[int, float]]:
    """A function that trains one client for some steps with ``method``, in round 1: (steps, seconds).

    Without what comes before and after training (FedMR's pass over the data for its prototypes, for instance).
    """
    steps = 1 if model == "resnet18_32" else 20
    layer = {
        "dataset": {
            "name": "fake",
            "options": {"train_size": 2 * batch, "test_size": 20, "size": 32, "channels": 3, "classes": 10},
        },
        "partition": {"name": "iid", "clients": 1},
        "model": model,
        "method": method,
        "train": {"epochs": None, "steps": steps, "batch_size": batch, "lr": 0.01, "momentum": 0.9},
        "paths": {"results": results},
    }
    config = resolve(compose("quick", layer))
    torch.set_num_threads(1)
    run = build_run(config, load_data(config))
    state, _ = run.step(run.initial_state())
    one = np.ones(1)
    view = RoundView(1, 0.01, 1, (0,), one, run.clients.sizes, one, one, run.clients.label_counts)
    received = {rule.key: rule.send(state.rules[rule.key], 0, view) for rule in run.method.client}

    def train() -> tuple[int, float]:
        active = run.clients.contexts(run.method.client, state, 0, state.w, received, {}, "bench")
        started = time.perf_counter()
        run.clients.trainer.run(
            run.clients.data(0), active, (Phase(),), lr=0.01, round=1, client=0,
            draw=lambda epoch: np.random.default_rng(0), torch_seed=0,
        )  # fmt: skip
        return steps, time.perf_counter() - started

    return train


def fedmr_step(results: str) -> None:
    """Local steps of FedMR with both losses beside FedAvg's, taken in turn."""
    for model, batch, target in (("resnet18_32", 128, " (target: at most 1.35)"), ("small_cnn", 64, "")):
        plain, ours = (local_steps(method, model, batch, results) for method in ("fedavg", "fedmr"))
        fedavg, fedmr, rates = _paired(plain, ours)
        print(
            f"  {model}, batch {batch}   FedAvg {1000 / fedavg:8,.1f} ms, FedMR {1000 / fedmr:8,.1f} ms per step   "
            f"ratio {1 / rates:.3f}{target}"
        )


# Planning --------------------------------------------------------------------------------------------------------


def _synthetic(results: Path, seeds: int) -> int:
    """Write finished runs of every cell of FedMR's Table 1 that can run, without training; returns their number."""
    from benchmark.experiments.plan import plan, unique_runs
    from benchmark.experiments.tables import find_specs

    spec = find_specs("fedmr", 1)[0]
    rng = np.random.default_rng(0)
    runs = unique_runs([plan(spec, "quick", range(seeds), {"paths": {"results": str(results)}})])
    for key, config in runs.items():
        folder = RunFolder(results / "runs" / key)
        folder.path.mkdir(parents=True)
        lines = "".join(
            json.dumps(
                {
                    "round": t,
                    "split": "test",
                    "group": "all",
                    "metric": "accuracy",
                    "value": float(rng.random()),
                }
            )
            + "\n"
            for t in range(config.train.rounds)
        ).encode()
        folder.records_path.write_bytes(lines)
        final = {"test": {"accuracy": float(rng.random())}}
        folder.write_status(
            Status(RunState.DONE, 1, 1, records_bytes=len(lines), records_sha256="", final=final)
        )
    return len(runs)


def _timed_table(results: Path, seeds: int) -> float:
    started = time.perf_counter()
    words = ["table", "name=fedmr_table1", f"seeds={seeds}", f"results={results}", "tuned=off"]
    subprocess.run([sys.executable, "-m", "benchmark", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def planning(results: str) -> None:
    """Whole processes of ``python -m benchmark table`` on finished runs: interpreter start, plan, tabulate, write."""
    from benchmark.runs.store import Results

    cells = _synthetic(Results(Path(results) / "probe").open().root, 1)
    for wanted, what, target in ((10_000, "plan and tabulate", 10), (1_000, "no-op relaunch of", 5)):
        root = Results(Path(results) / f"synthetic{wanted}").open().root
        seeds = -(-wanted // cells)
        count = _synthetic(root, seeds)
        seconds = _timed_table(root, seeds)
        print(f"  {what} {count:,} finished runs   {round_seconds(seconds):.2f} s (target: under {target} s)")


def main() -> None:
    """Print all figures."""
    print(
        f"torch {torch.__version__}, one thread per run, {choose_device('auto')}, {torch.get_num_threads()} cores"
    )
    with tempfile.TemporaryDirectory() as results:
        for title, part in (
            ("Training, MNIST, small CNN, 100 clients, batch 32", one_run),
            ("Two workers", two_runs),
            ("Rounds", rounds_per_second),
            ("Memory, FedAvg, ResNet-18", memory),
            ("FedMR's losses, images of 32 pixels, ten classes", fedmr_step),
            ("Planning", planning),
        ):
            print(title, flush=True)
            part(results)
