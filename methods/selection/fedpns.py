"""FedPNS: Node Selection Toward Faster Convergence for Federated Learning on Non-IID Data.

Wu, Wang, IEEE Transactions on Network Science and Engineering 9(5), 2022, https://arxiv.org/abs/2105.07066

Clients whose updates lower the agreement of the round are flagged, and flagged clients are drawn less often. Agreement
of a set A of updates: En(A) = sum_{k in A} ⟨D_k, mean_A D⟩ = (1/|A|) sum_{i,j in A} ⟨D_i, D_j⟩, so one Gram matrix of
the round is enough for all of its subsets. Probabilities start at 1/K and stay a distribution.

The default is the form of FedDiverse, whose table this serves. ``docs/fidelity.md`` describes the
authors' code (``variant: reference``), without its condition on a test set at the server.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.random import Generator
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Choice, ClientPool, State
from methods.core.rules import Selection, VariantRule, register
from methods.core.vectors import gram
from methods.shared.draw import without_replacement


@register("selection", "fedpns")
class FedPNS(VariantRule, Selection):
    """Clients that were flagged for slowing down a round are chosen less often.

    ``alpha``, ``beta``: a flagged client loses min((f/s + beta)^alpha, ``cap``) of its probability, where it was
    flagged in f of its s rounds; ``min_keep``: how many updates are never flagged. ``weights`` of the round's mean:
    the method's own | probability, the pr_k after the round's flags (line "FedPNS" of FedDiverse's code) | drop, the
    method's own without the flagged updates.
    """

    reference = {"cap": 1.0, "min_keep": 8, "weights": "drop"}

    alpha: float = Field(gt=0)
    beta: float = Field(ge=0)
    cap: float = Field(default=0.99, gt=0, le=1)
    min_keep: int = Field(default=1, ge=1)
    weights: Literal["method", "probability", "drop"] = "method"

    def watches(self, round: int) -> bool:
        """The updates of all rounds."""
        return True

    def setup(self, clients: ClientPool) -> State:
        """pr_k = 1/K, s_k = f_k = 0."""
        K = clients.num_clients
        return {"pr": [1 / K] * K, "s": [0] * K, "f": [0] * K}

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        """Kappa clients by pr, without replacement; filled uniformly where fewer than kappa pr are positive."""
        return without_replacement(rng, np.array(state["pr"]), kappa).tolist(), state

    def observe(self, ids: Sequence[int], updates: Tensor, state: State) -> State:
        """Flag, then move probability from the flagged clients to all others."""
        participants = np.array(ids)
        flagged = participants[self._flagged(updates)]
        s, f, pr = np.array(state["s"]), np.array(state["f"]), np.array(state["pr"])
        s[participants] += 1
        f[flagged] += 1
        cut = pr[flagged] * np.minimum((f[flagged] / s[flagged] + self.beta) ** self.alpha, self.cap)
        pr[flagged] -= cut
        others = np.ones(len(pr), dtype=bool)
        others[flagged] = False
        pr[others] += cut.sum() / others.sum()
        return {"pr": pr.tolist(), "s": s.tolist(), "f": f.tolist()}

    def _flagged(self, updates: Tensor) -> list[int]:
        """Rows of ``updates`` [m, d] that are flagged; at least one is not."""
        return flag(gram(updates).numpy(), self.min_keep)

    @property
    def reweighs(self) -> bool:
        """Whether the weights of the round's mean depend on flags."""
        return self.weights != "method"

    def reweigh(self, ids: Sequence[int], updates: Tensor, p: np.ndarray, state: State) -> np.ndarray:
        """The probabilities after this round's flags, or 0 for flagged updates; the sum stays that of ``p``."""
        kept = np.array(p, dtype=np.float64)
        if self.weights == "probability":
            kept = np.array(self.observe(ids, updates, state)["pr"])[list(ids)]
        else:
            kept[self._flagged(updates)] = 0
        return kept * (p.sum() / kept.sum()) if kept.sum() else p

    def measures(self, state: State) -> dict[str, float]:
        """How many flags there were so far."""
        return {"flags": sum(state["f"])}


def agreement(products: np.ndarray) -> tuple[float, np.ndarray]:
    """(En(A), En(A without i) for each i [m]) from the inner products <D_i, D_j> [m, m] of A, m > 1."""
    m, total = len(products), products.sum()
    without = total - 2 * products.sum(axis=1) + products.diagonal()
    return total / m, without / (m - 1)


def flag(products: np.ndarray, min_keep: int) -> list[int]:
    """The updates to flag, first to last, from their inner products <D_i, D_j> [m, m].

    While more than ``min_keep`` are left: j = argmax_i En(A without i); stop unless En(A without j) > En(A).
    """
    left = np.arange(len(products))
    flagged: list[int] = []
    while len(left) > min_keep:
        whole, without = agreement(products[np.ix_(left, left)])
        j = int(without.argmax())
        if without[j] <= whole:
            break
        flagged.append(int(left[j]))
        left = np.delete(left, j)
    return flagged
