"""Balanced sampling: FedMedICL: Towards Holistic Evaluation of Distribution Shifts in Federated Medical Imaging.

Alhamoud, Ghunaim, Alfarra, Hartvigsen, Torr, Ghanem, Bibi, Ghassemi, MICCAI 2024, https://arxiv.org/abs/2407.08822

FedAvg whose clients balance their batches over the classes that they have (F-CB): every epoch draws n_k samples with
replacement, a sample of class c with probability in proportion to 1 / n_c, with n_c the client's samples of class c. On
average FedMedICL finds no advanced method that does better.
"""

import numpy as np

from methods.core.contexts import ClientContext
from methods.core.rules import ClientRule, register


@register("client", "balanced_sampling")
class BalancedSampling(ClientRule):
    """Batches balanced over the client's own classes."""

    def sample_weights(self, ctx: ClientContext) -> np.ndarray | None:
        """1 / n_c of each sample's class [n_k]; None, so plain epochs, for a single class."""
        y = ctx.data.y.cpu().numpy()
        return 1 / ctx.label_counts[y] if (ctx.label_counts > 0).sum() > 1 else None
