"""FedTables beside a bare PyTorch loop over the same batches, measured in turn so that the ratio means something.

    python scripts/bench/speed.py              # small CNN on a CPU
    python scripts/bench/speed.py cuda         # ResNet-18 in float32 and bf16, plain and with CUDA graphs
    python scripts/bench/speed.py cuda mini    # tiny sizes: shows that it works

The bare loop is what one would write without any federation: each client's samples are gathered once, shuffled and
normalised, then contiguous batches go forward and backward into ``torch.optim.SGD``.
"""

import itertools
import statistics
import sys
import tempfile
import time
from typing import Any

import torch
import torch.nn.functional as F

from benchmark.config.compose import compose, resolve
from benchmark.config.schema import RunConfig
from benchmark.engine import randomness
from benchmark.models.networks import build_net
from benchmark.runs.build import build_problem, build_run, choose_device
from benchmark.runs.data import load_data

REPEATS = 5


def settings(folder: str, data: dict[str, int], clients: int, model: str, **more: Any) -> RunConfig:
    """FedAvg on random images of ten classes, one round and one epoch; ``more`` changes it."""
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
    device, train, amp = choose_device(config.runtime.device), config.train, config.precision.amp
    problem = build_problem(config, load_data(config), device)
    _, channels, height, width = problem.images.shape
    shape = (channels, height, width)
    net = build_net(config.model.name, problem.num_classes, shape, config.model.parameters, 0)
    net = net.to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=train.lr, momentum=train.momentum)
    started = time.perf_counter()
    for visit in range(train.rounds * (train.clients_per_round or len(problem.clients))):
        indices = problem.clients[visit % len(problem.clients)]
        for epoch in range(train.epochs or 1):
            order = randomness.generator(0, "batches", 0, visit, epoch).permutation(len(indices))
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
    """Seconds of the same rounds in FedTables."""
    run = build_run(config, load_data(config))
    state = run.initial_state()
    started = time.perf_counter()
    for _ in range(config.train.rounds):
        state, _ = run.run_round(state)
    state.w[0].item()
    return time.perf_counter() - started


def compare(title: str, config: RunConfig) -> tuple[float, float]:
    """Print samples/s of both, and the median of their ratios. The median seconds of the bare loop and of FedTables."""
    torch.set_num_threads(config.runtime.threads)
    clients, train = config.partition.parameters["clients"], config.train
    visits = train.rounds * (train.clients_per_round or clients)
    samples = config.dataset.options["train_size"] / clients * visits * (train.epochs or 1)
    times = [(bare_loop(config), federated(config)) for _ in range(REPEATS + 1)][1:]  # the first warms up
    bare, ours = (statistics.median(values) for values in zip(*times, strict=True))
    ratio = statistics.median(a / b for a, b in times)
    rates = f"bare loop {samples / bare:,.0f} samples/s, FedTables {samples / ours:,.0f}"
    print(f"{title}: {rates}, ratio {ratio:.2f}", flush=True)
    return bare, ours


def main(device: str = "cpu", size: str = "full") -> None:
    """Print the measurements of a device."""
    mini = size == "mini"
    with tempfile.TemporaryDirectory() as folder:
        if device == "cpu":
            data = {"train_size": 400 if mini else 12_000, "test_size": 20, "size": 28, "channels": 1}
            more = {"train": {"batch_size": 32}, "runtime": {"device": "cpu"}}
            config = settings(folder, data, 20, "small_cnn", **more)
            compare("small CNN, MNIST's shape, 20 clients of 600 samples, batch 32", config)
            return
        pixels, clients, samples = (8, 2, 2) if mini else (32, 10, 2_560)
        data = {"train_size": clients * samples, "test_size": 10, "size": pixels, "channels": 3}
        for amp, graphs in itertools.product((False, True), repeat=2):
            more = {"precision": {"amp": amp}, "runtime": {"device": device, "cuda_graphs": graphs}}
            config = settings(folder, data, clients, "resnet18_32", train={"batch_size": 128}, **more)
            precision = "bf16" if amp else "float32"
            compare(f"ResNet-18, {pixels} px, batch 128, {precision}, graphs {graphs}", config)


if __name__ == "__main__":
    main(*sys.argv[1:])
