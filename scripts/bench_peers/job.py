"""The job that every framework carries out, and what all of them share to do it.

``python job.py`` writes it: samples, weights, the clients of each round and the order of their samples. That needs
FedTables and its environment; the rest of the file needs numpy and torch alone.
"""

import json
import os
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from usage import cpu_seconds

SETTINGS = (
    "dataset=mnist partition=dirichlet partition.clients=100 partition.alpha=0.5 model=small_cnn method=fedavg "
    "train.rounds=8 train.clients_per_round=10 train.epochs=1 train.batch_size=32 train.lr=0.02 train.momentum=0 "
    "evaluation.every=8 runtime.device=cpu"
).split()
"""The job as words of ``python -m benchmark run``."""


@dataclass(frozen=True)
class Job:
    """FedAvg, written down.

    Attributes:
        images, labels, test_images, test_labels: uint8 images [N, c, H, W] and their labels [N].
        mean, std: Of each channel, on the scale 0..1.
        cohorts: The clients of each round [rounds, clients per round].
        samples: Training samples in the order in which the clients of the first round, of the second ... visit them.
        ends: Where the part of each client ends in ``samples`` [rounds * clients per round].
        weights: Initial parameters, in the order of `network`.
    """

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    mean: Tensor
    std: Tensor
    cohorts: np.ndarray
    samples: Tensor
    ends: np.ndarray
    weights: list[Tensor]
    lr: float
    batch_size: int

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.cohorts)

    def normalise(self, images: Tensor) -> Tensor:
        """The network's input."""
        return (images / 255 - self.mean) / self.std

    def data(self, position: int) -> tuple[Tensor, Tensor]:
        """(x, y) of one client in one round, in the order of its batches; ``position`` counts over all rounds."""
        start = 0 if position == 0 else self.ends[position - 1]
        chosen = self.samples[start : self.ends[position]]
        return self.normalise(self.images[chosen]), self.labels[chosen]

    def network(self) -> nn.Module:
        """A small convolutional network with the initial weights."""
        _, channels, height, width = self.images.shape
        net = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (height // 4) * (width // 4), 128),
            nn.ReLU(inplace=True),
            nn.Linear(128, len(self.weights[-1])),
        )
        with torch.no_grad():
            for parameter, value in zip(net.parameters(), self.weights, strict=True):
                parameter.copy_(value)
        return net.to(memory_format=torch.channels_last)

    def train(self, net: nn.Module, position: int) -> int:
        """Train one client for one epoch; returns its number of samples."""
        x, y = self.data(position)
        optimizer = torch.optim.SGD(net.parameters(), lr=self.lr)
        for start in range(0, len(y), self.batch_size):
            optimizer.zero_grad()
            part = slice(start, start + self.batch_size)
            F.cross_entropy(net(x[part]), y[part]).backward()
            optimizer.step()
        return len(y)

    @torch.no_grad()
    def accuracy(self, net: nn.Module) -> float:
        """Share of the test samples that the network classifies rightly."""
        batches = zip(self.test_images.split(512), self.test_labels.split(512), strict=True)
        return sum(int((net(self.normalise(x)).argmax(1) == y).sum()) for x, y in batches) / len(
            self.test_labels
        )


@cache
def load() -> Job:
    """The job of this process, from the file that BENCH_PEERS_JOB names; torch gets one thread."""
    torch.set_num_threads(1)
    with np.load(os.environ["BENCH_PEERS_JOB"]) as file:
        arrays = dict(file)
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items() if value.ndim}
    return Job(
        images=tensors["images"],
        labels=tensors["labels"],
        test_images=tensors["test_images"],
        test_labels=tensors["test_labels"],
        mean=tensors["mean"],
        std=tensors["std"],
        cohorts=arrays["cohorts"],
        samples=tensors["samples"],
        ends=arrays["ends"],
        weights=[tensors[name] for name in arrays if name.startswith("weight")],
        lr=float(arrays["lr"]),
        batch_size=int(arrays["batch_size"]),
    )


@dataclass
class Clock:
    """When the rounds ended. The first one (start-up) and the last one (evaluation, for some) do not count."""

    marks: list[tuple[float, float]] = field(default_factory=list)

    def tick(self) -> None:
        """A round has ended."""
        root = os.environ.get("BENCH_PEERS_ROOT")
        self.marks.append((time.monotonic(), cpu_seconds(int(root) if root else os.getppid())))

    def report(self, version: str, accuracy: float) -> None:
        """Print what was measured as one line of JSON."""
        (seconds, cpu), (last_seconds, last_cpu) = self.marks[0], self.marks[-2]
        rounds = len(self.marks) - 2
        measured = {"seconds": (last_seconds - seconds) / rounds, "cpu_seconds": (last_cpu - cpu) / rounds}
        print(json.dumps({"version": version, **measured, "rounds": len(self.marks), "accuracy": accuracy}))


def make(path: Path, words: list[str]) -> None:
    """Write the job that ``words`` of ``python -m benchmark run`` describe: what FedTables does with seed 0."""
    from benchmark.cli.overrides import configurations
    from benchmark.engine.randomness import generator
    from benchmark.engine.records import Cost
    from benchmark.engine.views import client_pool
    from benchmark.runs.build import build_run
    from benchmark.runs.data import load_data

    (config,) = configurations(words, many=False)
    data = load_data(config)
    run = build_run(config, data)
    pool = client_pool(run.clients, run.initial_state(), Cost())
    per_round = config.train.clients_per_round or len(data.clients)
    cohorts, samples = [], []
    for t in range(config.train.rounds):
        rng = generator(config.seed, "participation", t)
        ids, _ = run.method.selection.choose(t, per_round, pool, {}, rng)
        cohorts.append(sorted(ids))
        for k in cohorts[-1]:
            order = generator(config.seed, "batches", t, k, 0).permutation(len(data.clients[k]))
            samples.append(data.clients[k][order])
    arrays: dict[str, Any] = {
        "images": data.train.images,
        "labels": data.train.labels,
        "test_images": data.test.images,
        "test_labels": data.test.labels,
        "mean": np.array(data.dataset.mean, np.float32).reshape(-1, 1, 1),
        "std": np.array(data.dataset.std, np.float32).reshape(-1, 1, 1),
        "cohorts": np.array(cohorts),
        "samples": np.concatenate(samples),
        "ends": np.cumsum([len(order) for order in samples]),
        "lr": config.train.lr,
        "batch_size": config.train.batch_size,
    }
    for i, parameter in enumerate(run.model.net.parameters()):
        arrays[f"weight{i}"] = parameter.detach().numpy()
    np.savez(path, **arrays)


if __name__ == "__main__":
    make(Path(os.environ["BENCH_PEERS_JOB"]), SETTINGS)
