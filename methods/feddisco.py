"""FedDisco: Federated Learning with Discrepancy-Aware Collaboration.

Ye, Xu, Wang, Xu, Chen, Wang, ICML 2023, https://arxiv.org/abs/2305.19229

Section 4: clients whose labels are far from the target distribution T count less,

    p_k = relu(n_k/n_S - a d_k + b) / sum,    d_k = KL(q_k || T) or ||q_k - T||_2,

with q_k the client's label distribution and T uniform. Where all terms are cut off, p_k = n_k/n_S (the authors' code
fails there). Their code divides the KL discrepancies by their sum over the participants: ``normalise: true``. Then
the terms of m participants have the sum 1 - a + m b, so that some remain for a <= 1.
"""

from typing import Literal

import numpy as np
from pydantic import Field
from scipy.special import rel_entr

from methods.core.contexts import RoundView
from methods.core.rules import Weights, register


def discrepancy(counts: np.ndarray, target: np.ndarray, measure: Literal["kl", "l2"]) -> np.ndarray:
    """d_k [m] between label counts [m, C], each brought to sum 1, and the target T [C]; 0 for a client without data."""
    totals = counts.sum(1, keepdims=True)
    q = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    if measure == "kl":
        return rel_entr(q, target).sum(1)
    return np.linalg.norm(np.where(totals > 0, q - target, 0.0), axis=1)


def disco_weights(share: np.ndarray, d: np.ndarray, a: float, b: float) -> np.ndarray:
    """p_k [m] from the shares n_k/n_S [m] and discrepancies d_k [m]."""
    p = np.maximum(share - a * d + b, 0.0)
    return p / p.sum() if p.sum() > 0 else share


@register("weights", "disco")
class Disco(Weights):
    """Weights by size, less the discrepancy of labels.

    ``a``: weight of the discrepancy; ``b``: what every client gets on top; ``measure``: kl | l2; ``normalise``: KL
    discrepancies are divided by their sum over the participants.
    """

    a: float = Field(ge=0, allow_inf_nan=False)
    b: float = Field(ge=0, allow_inf_nan=False)
    measure: Literal["kl", "l2"] = "kl"
    normalise: bool = False

    def weights(self, view: RoundView) -> np.ndarray:
        """p_k [m]."""
        share = view.sizes / view.sizes.sum()
        if self.a == 0 and self.b == 0:
            return share
        classes = view.label_counts.shape[1]
        d = discrepancy(view.label_counts, np.full(classes, 1 / classes), self.measure)
        if self.normalise and self.measure == "kl" and d.sum() > 0:
            d = d / d.sum()
        return disco_weights(share, d, self.a, self.b)
