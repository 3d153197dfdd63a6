"""FedProc: Prototypical Contrastive Federated Learning on Non-IID Data.

Mu, Shen, Cheng, Geng, Fu, Zhang, Zhang, FGCS 2023, https://arxiv.org/abs/2109.12273

The client's loss moves from a contrast with global prototypes g_c to cross-entropy while training goes on,

    L = lam_t l_con + (1 - lam_t) CE,    lam_t = max(0, 1 - t/T_p),
    l_con = -log( exp(<zn, gn_y>) / sum_c exp(<zn, gn_c>) ),    zn, gn of length 1.

Prototypes are class means of features, taken after local training and averaged by count. In round 0 there are none, and
the loss is plain cross-entropy. ``docs/fidelity.md`` describes the authors' code (``variant:
reference``, ``model.projection: 256``, ``model.normalize_features: true``).

Stacked on another method this is its version "with prototypes" (FedMR, Table 8).
"""

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Batch, ClientContext, Loss, State, Trained
from methods.core.rules import VariantRule, register
from methods.shared.precision import float32
from methods.shared.prototypes import Prototypes


def prototype_contrast(z: Tensor, y: Tensor, g: Tensor, known: Tensor) -> Tensor:
    """Mean of l_con over the samples z [B, h], y [B] whose class has a prototype in g [C, h]; ``known`` [C] says which.

    Classes without one are left out of the sum over c. 0 if no sample is left.
    """
    cosine = F.normalize(z, dim=1) @ F.normalize(g, dim=1).T
    there = known[y]
    cosine_y = cosine.gather(1, y[:, None])[:, 0]
    con = cosine.masked_fill(~known, float("-inf")).logsumexp(1) - cosine_y
    return (con * there).sum() / there.sum().clamp_min(1)


@register("client", "fedproc")
class FedProc(VariantRule, Prototypes):
    """Contrast with global prototypes that gives way to cross-entropy.

    ``T_p``: rounds until only cross-entropy is left (null: all of the run, or the 100 of the authors' code; 1
    is FedAvg).
    """

    reference = {"T_p": 100}

    T_p: int | None = Field(default=None, ge=1)

    def _lam(self, ctx: ClientContext) -> float:
        """lam_t of this round."""
        return max(0.0, 1 - ctx.round / (self.T_p or ctx.rounds))

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """lam_t l_con, and 1 - lam_t as the weight of cross-entropy; in float32 at least."""
        lam = self._lam(ctx)
        if not ctx.received or lam == 0:
            return Loss(0.0)
        with float32(batch.z) as z:
            con = prototype_contrast(z, batch.y, ctx.received["g"], ctx.received["known"])
            return Loss(lam * con, ce_weight=1 - lam)

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Class sums and counts of the trained model's features, as long as a later round reads them."""
        return super().finish(ctx, trained) if self._lam(ctx) else ({}, {})
