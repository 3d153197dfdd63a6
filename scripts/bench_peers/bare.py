"""FedAvg without a framework: two loops and a weighted mean."""

import torch
from job import Clock, Job, load
from torch import nn


def train_round(job: Job, net: nn.Module, t: int) -> None:
    """One round: each client starts from the global weights; the global weights become the mean of the clients'."""
    start = [p.detach().clone() for p in net.parameters()]
    total = [torch.zeros_like(p) for p in start]
    samples, size = 0, job.cohorts.shape[1]
    for position in range(t * size, (t + 1) * size):
        with torch.no_grad():
            for p, value in zip(net.parameters(), start, strict=True):
                p.copy_(value)
        n = job.train(net, position)
        samples += n
        with torch.no_grad():
            for p, sum_of_p in zip(net.parameters(), total, strict=True):
                sum_of_p.add_(p, alpha=n)
    with torch.no_grad():
        for p, sum_of_p in zip(net.parameters(), total, strict=True):
            p.copy_(sum_of_p / samples)


def main() -> None:
    """Train, and report."""
    job, clock = load(), Clock()
    net = job.network()
    for t in range(job.rounds):
        train_round(job, net, t)
        clock.tick()
    clock.report(f"torch {torch.__version__}", job.accuracy(net))


if __name__ == "__main__":
    main()
