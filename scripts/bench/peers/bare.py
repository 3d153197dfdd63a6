"""FedAvg without a framework: two loops and a weighted mean."""

import torch
from job import ROUNDS, load

if __name__ == "__main__":
    job = load()
    net = job.network()
    for t in range(ROUNDS):
        start = [p.detach().clone() for p in net.parameters()]
        total, samples = [torch.zeros_like(p) for p in start], 0
        for position in range(t * job.cohort, (t + 1) * job.cohort):
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
    job.report(net)
