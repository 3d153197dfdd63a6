"""Round robin: equal turns. The rule of the FedDiverse paper's section 5.3 baseline.

Nemeth et al., FedDiverse, 2025, https://arxiv.org/abs/2504.11216
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from methods.registry import register
from methods.rules import Clients, Selection, State


@register("selection", "round_robin")
class RoundRobin(Selection):
    """The clients that had the fewest turns, ties at random; no two clients ever differ by more than one turn."""

    def setup(self, clients: Clients) -> State:
        """R_k = 0."""
        return {"turns": np.zeros(clients.num_clients, dtype=np.int64).tolist()}

    def choose(
        self, round: int, kappa: int, clients: Clients, state: State, rng: np.random.Generator
    ) -> tuple[Sequence[int], State]:
        """The kappa smallest R_k; R_k += 1 for those."""
        turns = np.array(state["turns"])
        shuffled = rng.permutation(clients.num_clients)
        chosen = shuffled[np.argsort(turns[shuffled], kind="stable")[:kappa]]
        turns[chosen] += 1
        return chosen.tolist(), {"turns": turns.tolist()}
