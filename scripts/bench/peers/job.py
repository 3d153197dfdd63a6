"""The job that every framework carries out, and what all of them share to do it. Needs torch alone."""

import os
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "8"))


@dataclass(frozen=True)
class Job:
    """FedAvg, written down.

    Attributes:
        images, labels, test_images, test_labels: Normalised images [N, c, H, W] and their labels [N].
        cohort: Clients in each round.
        orders: Training samples in the order of the batches, of each client of the first round, of the second ...
        weights: Initial parameters, in the order of `network`.
    """

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    cohort: int
    orders: list[Tensor]
    weights: list[Tensor]
    lr: float
    batch_size: int

    def data(self, position: int) -> tuple[Tensor, Tensor]:
        """(x, y) of one client in one round, in the order of its batches; ``position`` counts over all rounds."""
        return self.images[self.orders[position]], self.labels[self.orders[position]]

    def network(self) -> nn.Module:
        """A small convolutional network with the initial weights."""
        _, channels, height, width = self.images.shape
        net = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(32 * (height // 4) * (width // 4), 128), nn.ReLU(inplace=True),
            nn.Linear(128, len(self.weights[-1])),
        )  # fmt: skip
        with torch.no_grad():
            for parameter, value in zip(net.parameters(), self.weights, strict=True):
                parameter.copy_(value)
        return net.to(memory_format=torch.channels_last)

    def train(self, net: nn.Module, position: int) -> int:
        """Train one client for one epoch; returns its number of samples."""
        x, y = self.data(position)
        optimizer = torch.optim.SGD(net.parameters(), lr=self.lr)
        for images, labels in zip(x.split(self.batch_size), y.split(self.batch_size), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
        return len(y)

    @torch.no_grad()
    def report(self, net: nn.Module) -> None:
        """Print the share of the test samples that the network classifies rightly."""
        predicted = torch.cat([net(x).argmax(1) for x in self.test_images.split(512)])
        print(f"accuracy {float((predicted == self.test_labels).double().mean())}")


@cache
def load() -> Job:
    """The job of this process, from the file that BENCH_JOB names; torch gets one thread."""
    torch.set_num_threads(1)
    return Job(**torch.load(os.environ["BENCH_JOB"], weights_only=True))
