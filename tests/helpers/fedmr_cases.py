"""What tests of FedMR share: its losses as loops straight from the text, and four clients."""

from typing import Any

import numpy as np
import torch
from federations import federation, mlp, problem_of, with_rules
from torch import Tensor

from benchmark.engine.federation import FederatedRun


def looped_intra(z: Tensor, y: Tensor, eps: float) -> Tensor:
    """Eq. 3, class by class, with M_c written out."""
    terms = []
    for c in y.unique():
        own = z[y == c]
        n = len(own)
        if n < 2:
            continue
        zh = (own - own.mean(0)) / torch.sqrt(((own - own.mean(0)) ** 2).sum(0) / n + eps)
        m = sum(torch.outer(row, row) for row in zh) / (n - 1)
        terms.append((m**2).sum())
    return torch.stack(terms).mean() if terms else 0.0 * z.sum()


def looped_inter(z: Tensor, y: Tensor, g: Tensor, among: set[int]) -> Tensor:
    """Eq. 4, sample by sample."""
    total = 0.0 * z.sum()
    for ci in {int(c) for c in y} & among:
        own = z[y == ci]
        for cj in among - {ci}:
            for row in own:
                gap = torch.dist(row, g[ci]) - torch.dist(row, g[cj])
                total = total + gap.clamp(min=0) / len(own)
    p = len(among)
    return total / (p * (p - 1)) if p > 1 else total


def clients(seed: int = 0) -> Any:
    """Four clients of 12, 9, 16 and 7 samples, six inputs; class 2 is at client 3 alone, client 1 has one class."""
    rng = np.random.default_rng(seed)
    labels = [[0, 1] * 6, [1] * 9, [0, 1, 0, 0] * 4, [2, 0, 2, 2, 0, 2, 2]]
    return problem_of([rng.normal(size=(len(y), 6)) for y in labels], [np.array(y) for y in labels], 3)


def start(problem: Any, parameters: dict[str, Any], *rules: Any, **options: Any) -> FederatedRun:
    method = with_rules(*rules, config={"client": {"fedmr": parameters}})
    torch.manual_seed(5)
    net = options.pop("net", mlp)()
    return federation(problem, method, net, **({"lr": 0.1, "momentum": 0.9, "epochs": 1} | options))
