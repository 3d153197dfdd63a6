"""The job that every framework carries out, and what all of them share to do it. Needs torch alone."""

import json
import os
import threading
import time
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from usage import cpu_seconds, memory


@dataclass(frozen=True)
class Job:
    """FedAvg, written down.

    Attributes:
        images, labels, test_images, test_labels: uint8 images [N, c, H, W] and their labels [N].
        mean, std: Of each channel, on the scale 0..1.
        cohorts: The clients of each round [rounds, clients per round].
        orders: Training samples in the order of the batches, of each client of the first round, of the second ...
        weights: Initial parameters, in the order of `network`.
    """

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    mean: Tensor
    std: Tensor
    cohorts: Tensor
    orders: list[Tensor]
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
        order = self.orders[position]
        return self.normalise(self.images[order]), self.labels[order]

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
        predicted = torch.cat([net(self.normalise(x)).argmax(1) for x in self.test_images.split(512)])
        return float((predicted == self.test_labels).double().mean())


@cache
def load() -> Job:
    """The job of this process, from the file that BENCH_PEERS_JOB names; torch gets one thread."""
    torch.set_num_threads(1)
    return Job(**torch.load(os.environ["BENCH_PEERS_JOB"], weights_only=True))


class Clock:
    """When the rounds ended. The first one (start-up) and the last one (evaluation, for some) do not count."""

    def __init__(self) -> None:
        """With BENCH_PEERS_WATCH=1 a thread measures the memory every second."""
        self.root = int(os.environ.get("BENCH_PEERS_ROOT", os.getppid()))
        self.marks: list[tuple[float, float]] = []
        self.memory = 0.0
        if os.environ.get("BENCH_PEERS_WATCH") == "1":
            threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.memory = max(self.memory, memory(self.root))
            time.sleep(1.0)

    def tick(self) -> None:
        """A round has ended."""
        self.marks.append((time.monotonic(), cpu_seconds(self.root)))

    def report(self, version: str, accuracy: float) -> None:
        """Print what was measured as one line of JSON: means of a round, peak MiB."""
        (seconds, cpu), (last_seconds, last_cpu) = self.marks[0], self.marks[-2]
        rounds = len(self.marks) - 2
        measured = {"seconds": (last_seconds - seconds) / rounds, "cpu_seconds": (last_cpu - cpu) / rounds,
                    "rounds": len(self.marks), "memory": self.memory}  # fmt: skip
        print(json.dumps({"version": version, "accuracy": accuracy, **measured}))
