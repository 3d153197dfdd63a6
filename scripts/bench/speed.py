"""FedTables beside a bare PyTorch loop over the same batches, measured in turn so that the ratio means something.

    python scripts/bench/speed.py              # small CNN on a CPU: one run, then two at the same time
    python scripts/bench/speed.py cuda         # ResNet-18 in float32 and bf16, plain and with CUDA graphs
    python scripts/bench/speed.py cuda mini    # tiny sizes: shows that it works

The bare loop is what one would write without any federation: each client's samples are gathered once, shuffled and
normalised, then contiguous batches go forward and backward into ``torch.optim.SGD``.
"""

import itertools
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F

from benchmark.config.compose import compose, resolve
from benchmark.config.schema import RunConfig
from benchmark.engine import randomness
from benchmark.models.networks import build_net
from benchmark.runs.build import build_problem, build_run, choose_device
from benchmark.runs.data import load_data, load_dataset

REPEATS = 5


def settings(folder: str, data: dict[str, int], clients: int, model: str, **more: Any) -> RunConfig:
    """One round of FedAvg on random images of ten classes; ``more`` changes it."""
    layer = {
        "dataset": {"name": "fake", "options": {"classes": 10, **data}},
        "partition": {"name": "iid", "clients": clients},
        "model": model,
        "method": "fedavg",
        "train": {"lr": 0.01, "rounds": 1},
        "paths": {"results": folder, "cache": folder},
    }
    return resolve(compose("quick", layer, more))


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
    started = time.perf_counter()
    for k, indices in enumerate(problem.clients):
        order = randomness.generator(0, "batches", 0, k, 0).permutation(len(indices))
        shuffled = torch.from_numpy(indices[order]).to(device)
        x, y = problem.transform(problem.images[shuffled]), problem.labels[shuffled]
        for images, labels in zip(x.split(train.batch_size), y.split(train.batch_size), strict=True):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=amp):
                loss = F.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
    loss.item()  # waits for the device
    return time.perf_counter() - started


def federated(config: RunConfig) -> float:
    """Seconds of the same round in FedTables."""
    torch.set_num_threads(config.runtime.threads)
    run = build_run(config, load_data(config))
    state = run.initial_state()
    started = time.perf_counter()
    state, _ = run.run_round(state)
    state.w[0].item()
    return time.perf_counter() - started


def compare(config: RunConfig, runs: int, repeats: int) -> None:
    """Print samples/s of ``runs`` bare loops and of as many FedTables runs, one process for each."""
    load_dataset(config.dataset, config.paths)
    samples = runs * config.dataset.options["train_size"]
    with ProcessPoolExecutor(runs, multiprocessing.get_context("spawn")) as pool:

        def rate(work: Callable[[RunConfig], float]) -> float:
            return samples / max(pool.map(work, [config] * runs))

        pairs = [(rate(bare_loop), rate(federated)) for _ in range(repeats + 1)][1:]  # the first one warms up
    bare, ours = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(
        f"  {runs} x bare loop {bare:9,.0f} samples/s, FedTables {ours:9,.0f}, ratio {ratio:.2f}", flush=True
    )


def main(device: str = "cpu", size: str = "full") -> None:
    """Print the measurements of a device."""
    mini = size == "mini"
    with tempfile.TemporaryDirectory() as folder:
        if device == "cpu":
            print("small CNN, MNIST's shape, 20 clients of 600 samples, batch 32", flush=True)
            data = {"train_size": 400 if mini else 12_000, "test_size": 20, "size": 28, "channels": 1}
            for runs in (1, 2):
                train, runtime = {"batch_size": 32}, {"device": "cpu"}
                compare(settings(folder, data, 20, "small_cnn", train=train, runtime=runtime), runs, REPEATS)
            return
        pixels, clients, samples = (8, 2, 2) if mini else (32, 10, 2_560)
        data = {"train_size": clients * samples, "test_size": 10, "size": pixels, "channels": 3}
        for amp, graphs in itertools.product((False, True), repeat=2):
            precision = "bf16" if amp else "float32"
            print(f"ResNet-18, {pixels} px, batch 128, {precision}, graphs {graphs}", flush=True)
            more = {"precision": {"amp": amp}, "runtime": {"device": device, "cuda_graphs": graphs}}
            config = settings(folder, data, clients, "resnet18_32", train={"batch_size": 128}, **more)
            compare(config, 1, REPEATS)


if __name__ == "__main__":
    main(*sys.argv[1:])
