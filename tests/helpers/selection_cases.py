"""What tests of selections share: usual parameters, and clients whose answers are known."""

from collections.abc import Callable, Sequence

import numpy as np

from benchmark.engine import randomness

PNS = {"name": "fedpns", "alpha": 2.0, "beta": 0.7}
HCS = {"name": "hcsfed", "r": 0.1, "Hc": 2}
HICS = {"name": "hicsfl", "T": 0.1, "lam": 10.0, "gamma0": 4.0, "M": None}
MOMENTUM = {"optimizer": {"name": "momentum", "beta": 0.95, "lr": 0.1}}


class Fake:
    """Clients of given sizes whose answers are known; writes down who was asked."""

    def __init__(self, sizes: Sequence[float], answers: Sequence[float] = ()) -> None:
        self.num_clients, self.sizes = len(sizes), np.array(sizes, dtype=np.float64)
        self.group_counts = None
        self.answers, self.asked = np.array(answers), []  # type: ignore[var-annotated]

    def ask(self, ids: Sequence[int], question: Callable) -> np.ndarray:
        self.asked.append(tuple(ids))
        return self.answers[list(ids), None]


def rng(*ids: int) -> np.random.Generator:
    return randomness.generator(0, "participation", *ids)
