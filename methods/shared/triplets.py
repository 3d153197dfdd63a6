"""What FedDiverse's selections share: the counts of a client, and the losses and draws of its set-up.

Nemeth et al., Diversity-Driven Learning (FedDiverse), 2025, https://arxiv.org/abs/2504.11216
"""

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from benchmark.heterogeneity import group_counts
from methods.core.contexts import Batch, ClientContext, ClientPool, ClientProbe, Loss
from methods.core.rules import ClientRule, MethodError, Selection

CI, AI, SC = 0, 1, 2
"""Places in a triplet: class imbalance, attribute imbalance, spurious correlation."""


def interaction_matrix(probe: ClientProbe) -> np.ndarray:
    """The client's true N^k [C, A]; only a client that knows its attributes can tell."""
    assert probe.data.attributes is not None  # require_attributes has been asked
    y, attributes = probe.data.y.cpu().numpy(), probe.data.attributes.cpu().numpy()
    return group_counts([np.arange(len(y))], y, attributes, probe.num_classes, probe.num_attributes)[0]


def require_attributes(clients: ClientPool, who: str) -> None:
    """`MethodError` unless every sample has one of at least two attributes, which ``who`` reads."""
    counts = clients.group_counts
    if counts is None or counts.shape[2] < 2:
        number = "none" if counts is None else "a single one"
        raise MethodError(
            f"selection: {who} reads the attribute of every sample; this data set has {number}. Choose a data set with "
            "attributes (dataset=cmnist), or selection=feddiverse, which estimates them."
        )


class Gce(ClientRule):
    """Generalised cross-entropy in place of cross-entropy (Eq. 11): samples that are easy already pull harder.

    ``q``: 1 is the mean absolute error; q -> 0 is cross-entropy.
    """

    key = "gce"
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

    key = "balanced"

    def sample_weights(self, ctx: ClientContext) -> np.ndarray:
        """1 / (number of samples with the same label) [n_k]."""
        y = ctx.data.y.cpu().numpy()
        return 1 / np.bincount(y)[y]


class PreTrained(Selection):
    """The first T0 rounds are FedAvg with all clients (Appendix C; Algorithm 1 draws kappa of them)."""

    trains_head = True

    T0: int = Field(ge=1)

    def pretraining(self, round: int) -> bool:
        """Rounds 0 to T0 - 1 are plain FedAvg."""
        return round < self.T0
