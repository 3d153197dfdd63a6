"""Speed and memory beside a bare PyTorch loop, measured in one run so that the ratios mean something.

``make bench``. The bare loop is what one would write without any federation: each client's samples are gathered once,
shuffled and normalised, then contiguous batches go forward and backward into ``torch.optim.SGD``.
"""

import hashlib
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from benchmark import code
from benchmark.config.compose import compose, resolve
from benchmark.config.schema import RunConfig
from benchmark.engine import randomness
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost, Record
from benchmark.experiments.plan import plan, unique_runs
from benchmark.experiments.tables import spec_called
from benchmark.models.networks import build_net
from benchmark.runs.build import build_problem, build_run, choose_device
from benchmark.runs.data import load_data, load_dataset
from benchmark.runs.folder import ResultsFolder, record_lines, write_result
from benchmark.runs.status import Result, RunState
from benchmark.system import processor, usable_cores
from methods.core.contexts import Phase, RoundView

REPEATS = 5


def describe(device: str) -> str:
    """The device's name, cores, threads of a run, and the version of torch."""
    place = choose_device(device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else processor()
    return f"{name}, {usable_cores()} cores, one thread per run, torch {torch.__version__}"


def settings(folder: str, data: dict[str, int], clients: int, model: str, **more: Any) -> RunConfig:
    """A run of FedAvg on random images of ten classes, on the CPU; ``more`` changes it."""
    layer = {
        "dataset": {"name": "fake", "options": {"classes": 10, **data}},
        "partition": {"name": "iid", "clients": clients},
        "model": model,
        "method": "fedavg",
        "train": {"lr": 0.01},
        "evaluation": {"every": 10_000},
        "runtime": {"device": "cpu"},
        "paths": {"results": folder, "cache": folder},
    }
    return resolve(compose("quick", layer, more))


def _built(config: RunConfig) -> FederatedRun:
    torch.set_num_threads(config.runtime.threads)
    return build_run(config, load_data(config))


# Against the bare loop -------------------------------------------------------------------------------------------


def bare_loop(config: RunConfig) -> float:
    """Seconds of plain PyTorch over the batches of ``config``: no federation, no evaluation."""
    torch.set_num_threads(config.runtime.threads)
    device, train, amp = choose_device(config.runtime.device), config.train, config.precision.amp
    problem = build_problem(config, load_data(config), device)
    _, channels, height, width = problem.images.shape
    shape = (channels, height, width)
    net = build_net(config.model.name, problem.num_classes, shape, config.model.parameters, 0)
    net = net.to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=train.lr, momentum=train.momentum)
    net.train()
    size = train.batch_size
    started = time.perf_counter()
    for t in range(train.rounds):
        for k, indices in enumerate(problem.clients):
            order = randomness.generator(0, "batches", t, k, 0).permutation(len(indices))
            shuffled = torch.from_numpy(indices[order]).to(device)
            x, y = problem.transform(problem.images[shuffled]), problem.labels[shuffled]
            for start in range(0, len(y), size):
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast(device.type, torch.bfloat16, enabled=amp):
                    loss = F.cross_entropy(net(x[start : start + size]), y[start : start + size])
                loss.backward()
                optimizer.step()
    loss.item()  # waits for the device
    return time.perf_counter() - started


def federated(config: RunConfig) -> float:
    """Seconds of the rounds of one FedTables run, states and evaluations and all."""
    run = _built(config)
    state = run.initial_state()
    started = time.perf_counter()
    for _ in range(config.train.rounds):
        state, _ = run.run_round(state)
        if state.round % config.evaluation.every == 0:
            run.evaluate(state)
    state.w[0].item()  # waits for the device
    return time.perf_counter() - started


def _paired(a: Callable[[], float], b: Callable[[], float], repeats: int) -> tuple[float, float, float]:
    """(median of a, median of b, median of b / a), taken in turn; the first time warms up."""
    pairs = [(a(), b()) for _ in range(repeats + 1)][1:]
    all_a, all_b = zip(*pairs, strict=True)
    return statistics.median(all_a), statistics.median(all_b), statistics.median(b / a for a, b in pairs)


def _rate(pool: Executor, configs: list[RunConfig], work: Callable[[RunConfig], float]) -> float:
    seconds = pool.map(work, configs)
    return sum(config.dataset.options["train_size"] / t for config, t in zip(configs, seconds, strict=True))


def compare(config: RunConfig, runs: int, repeats: int = REPEATS) -> int:
    """Print samples/s of bare loops and of as many FedTables runs, one process for each; returns how many runs fit."""
    load_dataset(config.dataset, config.paths)  # made here, it is not counted as memory of a run
    configs = [config] * runs
    with ProcessPoolExecutor(runs, multiprocessing.get_context("spawn")) as pool:
        rate = partial(_rate, pool, configs)
        bare, ours, ratio = _paired(partial(rate, bare_loop), partial(rate, federated), repeats)
        used, total = pool.submit(_memory, config.runtime.device).result()
    print(f"  {runs} x bare loop        {bare:9,.0f} samples/s")
    print(
        f"  {runs} x FedTables run    {ours:9,.0f} samples/s   {ratio:.1%} (target: at least 95 %)",
        flush=True,
    )
    return fitting_runs(used, total, usable_cores())


def _memory(device: str) -> tuple[int, int]:
    """(the most KiB that this process has needed, KiB that there are) of the device's memory."""
    if device == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return (total - free) // 1024, total // 1024  # with that of CUDA itself and of other programs
    return _peak_kib(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024


def fitting_runs(used: int, total: int, cores: int) -> int:
    """How many runs of ``used`` KiB fit into 90 % of ``total`` KiB, with a core for each; at least one."""
    return max(1, min(total * 9 // 10 // used, cores))


def speed(folder: str) -> None:
    """One FedTables run beside one bare loop over the same batches, then two beside two."""
    print("Training, images of MNIST's shape, small CNN, 20 clients of 600 samples, batch 32", flush=True)
    data = {"train_size": 12_000, "test_size": 500, "size": 28, "channels": 1}
    for runs in (1, 2):
        compare(settings(folder, data, 20, "small_cnn", train={"rounds": 1, "batch_size": 32}), runs)


# Local steps -----------------------------------------------------------------------------------------------------


def local_steps(method: str, model: str, batch: int, steps: int, folder: str) -> Callable[[], float]:
    """A function that trains one client for some steps with ``method``, in round 1, and returns the seconds of a step.

    Without what comes before and after training (FedMR's pass over the data for its prototypes, for instance).
    """
    data = {"train_size": 2 * batch, "test_size": 20, "size": 32, "channels": 3}
    train = {"epochs": None, "steps": steps, "batch_size": batch}
    run = _built(settings(folder, data, 1, model, method=method, train=train))
    state, _ = run.run_round(run.initial_state())
    one = np.ones(1)
    view = RoundView(1, 0.01, 1, (0,), one, run.clients.sizes, one, one, run.clients.label_counts)
    received = {rule.key: rule.send(state.rules[rule.key], 0, view) for rule in run.method.client}

    def work() -> float:
        active = run.clients.contexts(run.method.client, state, 0, state.w, received, {}, "bench", Cost())
        started = time.perf_counter()
        run.clients.trainer.run(run.clients.work(run.clients.data(0), active, state, 0), (Phase(),), 0.01)
        return (time.perf_counter() - started) / steps

    return work


def multiplication_rate(seconds: float = 0.5) -> float:
    """The most FLOP/s of a product of square float32 matrices, of many of 256 to 2,048 rows."""
    best = 0.0
    for n in (256, 512, 1024, 2048):
        a, b = torch.rand(2, n, n)
        began = time.perf_counter()
        while (started := time.perf_counter()) < began + seconds:
            torch.mm(a, b)
            best = max(best, 2 * n**3 / (time.perf_counter() - started))
    return best


def flop_share(work: Callable[[], object], seconds: float, fastest: float) -> float:
    """The FLOP/s of the matrix products and convolutions in ``work``, as a share of ``fastest``.

    A multiplication and an addition are two FLOPs.
    """
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops() / seconds / fastest)


def time_shares(work: Callable[[], object]) -> dict[str, float]:
    """Which share of the time of local steps on the CPU is spent on what, by torch's profiler.

    Operations on the longest vector, the model, are the optimizer's. What is in no operation is Python and autograd.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # It reports that there is no GPU as an error.
    started = time.perf_counter()
    with profile(record_shapes=True) as profiler:
        work()
    total = time.perf_counter() - started
    events = [e for e in profiler.key_averages(group_by_input_shape=True) if e.key.startswith("aten::")]
    longest = max(shape for event in events for shape in event.input_shapes if len(shape) == 1)
    shares: defaultdict[str, float] = defaultdict(float)
    for event in events:
        product = "conv" in event.key or event.key.endswith("mm")
        what = "optimizer" if longest in event.input_shapes else "products" if product else "other operations"
        shares[what] += event.self_cpu_time_total / 1e6 / total
    return {**shares, "Python and autograd": 1 - sum(shares.values())}


def steps(folder: str) -> None:
    """FedMR's local step beside FedAvg's, and FedAvg's beside the fastest matrix product of the machine."""
    print("Local steps, images of 32 pixels, ten classes", flush=True)
    torch.set_num_threads(1)
    fastest = multiplication_rate()
    print(f"  fastest matrix product      {fastest / 1e9:.0f} GFLOP/s")
    for model, batch, count, target in (
        ("small_cnn", 64, 20, ""),
        ("resnet18_32", 128, 1, " (target: at most 1.35)"),
    ):
        fedavg, fedmr = (local_steps(method, model, batch, count, folder) for method in ("fedavg", "fedmr"))
        pairs = [(fedavg(), fedmr()) for _ in range(REPEATS)]
        seconds, other = (min(times) for times in zip(*pairs, strict=True))  # the best, as of the products
        share = flop_share(fedavg, count * seconds, fastest)
        shares = ", ".join(f"{what} {part:.0%}" for what, part in time_shares(fedavg).items())
        print(
            f"  {model}, batch {batch}: FedAvg {1000 * seconds:,.1f} ms, FedMR {1000 * other:,.1f} ms, "
            f"ratio {other / seconds:.3f}{target}\n"
            f"    FedAvg: {share * fastest / 1e9:.0f} GFLOP/s, {share:.0%} of the fastest matrix product\n"
            f"    FedAvg's time: {shares}",
            flush=True,
        )


# Clients side by side --------------------------------------------------------------------------------------------


def stack(folder: str) -> None:
    """Rounds of FedAvg with 1 to 50 clients side by side, on the present device."""
    device = choose_device("auto").type
    clock = time.process_time if device == "cpu" else time.perf_counter
    print("Clients side by side: samples/s of 50 clients with 100 samples, batch 10", flush=True)
    print(
        f"  ({'CPU-seconds' if device == 'cpu' else describe(device)}; best of {REPEATS} rounds)", flush=True
    )
    for model, size, channels in (("tiny_mlp", 8, 1), ("tiny_cnn", 8, 1), ("small_cnn", 28, 1)):
        data = {"train_size": 5_000, "test_size": 20, "size": size, "channels": channels}
        rates = []
        for clients in (1, 5, 10, 20, 50):
            train = {"batch_size": 10, "stack": clients}
            run = _built(settings(folder, data, 50, model, train=train, runtime={"device": "auto"}))
            state, seconds = run.initial_state(), []
            for _ in range(1 + REPEATS):
                started = clock()
                state, _ = run.run_round(state)
                state.w[0].item()  # waits for the device
                seconds.append(clock() - started)
            rates.append(5_000 / min(seconds[1:]))
            print(
                f"  {model}, train.stack={clients:<2} {rates[-1]:9,.0f}   {rates[-1] / rates[0]:.2f}",
                flush=True,
            )


# Memory ----------------------------------------------------------------------------------------------------------


def peak_memory(clients: int, rounds: int, results: str) -> float:
    """Peak MiB of a process that trains ResNet-18 on ``clients`` clients, above what it held before training."""
    data = {"train_size": 4000, "test_size": 100, "size": 4}
    train = {"rounds": rounds, "epochs": None, "steps": 1, "batch_size": 2}
    run = _built(settings(results, data, clients, "resnet18_32", train=train))
    before = _peak_kib()
    state = run.initial_state()
    for _ in range(rounds):
        state, _ = run.run_round(state)
    return (_peak_kib() - before) / 1024


def _peak_kib() -> int:
    # On Linux a child inherits ru_maxrss from the process that started it; its status has its own peak.
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # bytes on macOS


def memory(results: str) -> None:
    """Peak memory of a stateless method with 10 and with 100 clients, in fresh processes."""
    print("Memory, FedAvg, ResNet-18", flush=True)
    size = 11_173_962 * 4 / 2**20
    models = []
    for clients, rounds in ((10, 2), (100, 1)):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            peak = pool.submit(peak_memory, clients, rounds, results).result()
        models.append(peak / size)
        print(f"  {clients:5,} clients   {peak:6.0f} MiB above the model at rest = {peak / size:.2f} models")
    print(f"  grown from 10 to 100 clients: {models[1] - models[0]:+.2f} models (target: does not grow)")


# Planning --------------------------------------------------------------------------------------------------------


def _pretend(results: ResultsFolder, seeds: int) -> int:
    """Write finished runs of FedMR's Table 1 without training; returns their number."""
    rng = np.random.default_rng(0)
    runs = unique_runs([plan(spec_called("fedmr_table1"), "quick", range(seeds))])
    origin = {"code": {}, "engine": code.engine(), "data": "", "partition": "", "threads": 1}
    origin |= {"torch": "", "dispatch": "", "device": "cpu"}
    made = {"processor": "", "prepared": "", "commit": "", "dirty": False, "repositories": {}, "clients": {}}
    for key, config in runs.items():
        folder = results.run(key).path
        folder.mkdir(parents=True)
        values = rng.random(config.train.rounds).tolist()
        lines = record_lines(Record(t, "test", "all", "accuracy", v) for t, v in enumerate(values))
        (folder / "records.jsonl").write_bytes(lines)
        final, sha = {"test": {"accuracy": values[-1]}}, hashlib.sha256(lines).hexdigest()
        place: dict[str, Any] = {"hash": config.hash, "seed": config.seed, "final": final}
        digests: dict[str, Any] = {"records_bytes": len(lines), "records_sha256": sha, "model_sha256": ""}
        write_result(folder, Result(RunState.DONE, "", 1, 1.0, **place, **digests, origin=origin, made=made))
    return len(runs)


def planning(folder: str) -> None:
    """Whole processes of ``python -m benchmark table`` on finished runs: interpreter start, plan, tabulate, write."""
    print("Planning", flush=True)
    cells = len(unique_runs([plan(spec_called("fedmr_table1"), "quick", [0])]))
    for wanted, what, target in ((10_000, "plan and tabulate", 10), (1_000, "no-op relaunch of", 5)):
        results = ResultsFolder(Path(folder) / f"planning{wanted}").open()
        seeds = -(-wanted // cells)
        count = _pretend(results, seeds)
        words = ["table", "name=fedmr_table1", f"seeds={seeds}", f"results={results.root}", "tuned=off"]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "benchmark", *words], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        print(f"  {what} {count:,} finished runs   {seconds:.2f} s (target: under {target} s)")
