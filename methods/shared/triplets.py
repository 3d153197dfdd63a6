"""What FedDiverse's selections share: triplets of count matrices, and the losses and draws of its set-up.

Nemeth et al., Diversity-Driven Learning (FedDiverse), 2025, https://arxiv.org/abs/2504.11216
"""

from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from scipy.special import entr
from torch import Tensor

from methods.core.contexts import Batch, ClientContext, ClientPool, ClientProbe, Loss
from methods.core.rules import ClientRule, MethodError, Selection

CI, AI, SC = 0, 1, 2
"""Places in a triplet: class imbalance, attribute imbalance, spurious correlation."""


def dht(counts: np.ndarray) -> np.ndarray:
    """Data heterogeneity triplets [..., 3] of count matrices [..., Y, A] (Eq. 2-4), natural logarithms.

    CI = 1 - H(Y)/log|Y|, AI = 1 - H(A)/log|A|, SC = 2 I(Y;A)/(H(Y) + H(A)), 0 where both entropies are 0. |Y| and |A|
    are the dimensions, at least 2, also with empty rows or columns. A matrix without samples has the triplet 0.
    """
    counts = np.asarray(counts, dtype=np.float64)
    total = counts.sum(axis=(-2, -1), keepdims=True)
    joint = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    h_y = entr(joint.sum(-1)).sum(-1)
    h_a = entr(joint.sum(-2)).sum(-1)
    shared = h_y + h_a - entr(joint).sum((-2, -1))
    both = h_y + h_a
    columns = (
        1 - h_y / np.log(counts.shape[-2]),
        1 - h_a / np.log(counts.shape[-1]),
        np.divide(2 * shared, both, out=np.zeros_like(both), where=both > 0),
    )
    # Rounding leaves -1e-16 where the value is 0, which would be no probability.
    triplets = np.clip(np.stack(columns, -1), 0.0, 1.0)
    return np.where(total[..., 0] > 0, triplets, 0.0)


def interaction_matrix(probe: ClientProbe) -> np.ndarray:
    """The client's true N^k [C, A]; only a client that knows its attributes can tell."""
    attributes = probe.data.attributes
    assert attributes is not None  # require_attributes has been asked
    size = probe.num_classes * probe.num_attributes
    groups = torch.bincount(probe.data.y * probe.num_attributes + attributes, minlength=size)
    return groups.cpu().numpy().reshape(probe.num_classes, probe.num_attributes)


def require_attributes(clients: ClientPool, who: str) -> None:
    """`MethodError` unless every sample has one of at least two attributes, which ``who`` reads."""
    counts = clients.group_counts
    if counts is None or counts.shape[2] < 2:
        found = "none" if counts is None else "a single one"
        raise MethodError(
            f"selection: {who} reads the attribute of every sample; this data set has {found}. Choose a data set with "
            "attributes (dataset=cmnist), or selection=feddiverse, which estimates them."
        )


class Gce(ClientRule):
    """Generalised cross-entropy in place of cross-entropy (Eq. 11): samples that are easy already pull harder.

    ``q``: 1 is the mean absolute error; q -> 0 is cross-entropy.
    """

    key: ClassVar[str] = "gce"
    q: float = Field(gt=0, le=1)

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """L = mean of (1 - p_y^q)/q."""
        return Loss(gce(batch.logits, batch.y, self.q), ce_weight=0.0)


def gce(logits: Tensor, y: Tensor, q: float) -> Tensor:
    """Mean over the batch of (1 - p_y^q)/q, p = softmax of logits [B, C]."""
    log_p = logits.log_softmax(1).gather(1, y[:, None])
    return -torch.expm1(q * log_p).mean() / q  # 1 - p^q would cancel for small q


class Balanced(ClientRule):
    """Draws samples with replacement, so that all labels that are there come equally often (code; paper silent)."""

    key: ClassVar[str] = "balanced"

    def sample_weights(self, ctx: ClientContext) -> np.ndarray:
        """1 / (number of samples with the same label) [n_k]."""
        y = ctx.data.y.cpu().numpy()
        return 1 / np.bincount(y)[y]


class PreTrained(Selection):
    """The first T0 rounds are FedAvg with all clients (Appendix C; Algorithm 1 draws kappa of them)."""

    trains_head: ClassVar[bool] = True

    T0: int = Field(ge=1)

    def pretraining(self, round: int) -> bool:
        """Rounds 0 to T0 - 1 are plain FedAvg."""
        return round < self.T0
