"""Round robin: Equal turns, the baseline of FedDiverse's section 5.3.

Nemeth et al., FedDiverse, 2025, https://arxiv.org/abs/2504.11216

FedDiverse's code (``variant: reference``) marks all waiting clients as served when it draws some of them, so turns are
not equal.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from methods.core.contexts import Choice, ClientPool, State
from methods.core.rules import Selection, VariantRule, register
from methods.shared.draw import without_replacement


@register("selection", "round_robin")
class RoundRobin(VariantRule, Selection):
    """The clients that had the fewest turns, ties at random; no two clients ever differ by more than one turn."""

    def setup(self, clients: ClientPool) -> State:
        """R_k = 0; nobody is marked as served."""
        count = clients.num_clients
        return {"turns": [0] * count} if self.variant == "paper" else {"served": [False] * count}

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        """The kappa smallest R_k; R_k += 1 for those."""
        if self.variant == "reference":
            return self._as_in_the_code(kappa, state, rng)
        turns = np.array(state["turns"])
        shuffled = rng.permutation(clients.num_clients)
        ids = shuffled[np.argsort(turns[shuffled], kind="stable")[:kappa]]
        turns[ids] += 1
        return ids.tolist(), {"turns": turns.tolist()}

    @staticmethod
    def _as_in_the_code(kappa: int, state: State, rng: np.random.Generator) -> tuple[Sequence[int], State]:
        """A draw from all, or from those not marked, filled from the others where they are fewer than kappa."""
        served = np.array(state["served"])
        ids = without_replacement(rng, 1.0 - served, kappa)
        marked = np.zeros_like(served)
        marked[ids] = not served.any()
        return ids.tolist(), {"served": marked.tolist()}
