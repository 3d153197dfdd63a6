"""FedLC: Federated Learning with Label Distribution Skew via Logits Calibration.

Zhang, Li, Li, Xu, Wu, Ding, Wu, ICML 2022, https://arxiv.org/abs/2209.00189

Rare classes of a client get a larger margin. With n_c its samples of class c, cross-entropy takes calibrated logits,

    L = -log( exp(f_y - tau n_y^(-1/4)) / sum over c of exp(f_c - tau n_c^(-1/4)) ).

A class without samples has n_c^(-1/4) = infinity and leaves the sum: no step lowers its logit, and a client with one
class has L = 0. Other public code counts a small number of samples for it (``floor``). Predictions take the plain
logits.
"""

import torch
import torch.nn.functional as F
from pydantic import Field

from methods.core.contexts import Batch, ClientContext, Loss, State
from methods.core.rules import ClientRule, register


@register("client", "fedlc")
class FedLC(ClientRule):
    """Logits calibrated by the client's samples of each class.

    ``tau``: size of the margins (0 is FedAvg); ``floor``: the least n_c.
    """

    tau: float = Field(ge=0, allow_inf_nan=False)
    floor: float = Field(0.0, ge=0, allow_inf_nan=False)

    def begin(self, ctx: ClientContext) -> State:
        """tau n_c^(-1/4) [C]."""
        n = torch.from_numpy(ctx.label_counts).to(ctx.w, non_blocking=True)
        return {"margin": self.tau * n.clamp_min(self.floor).pow(-0.25)} if self.tau else {}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """Calibrated cross-entropy in place of the plain one."""
        if self.tau == 0:
            return Loss(0.0)
        return Loss(F.cross_entropy(batch.logits - ctx.local["margin"], batch.y), ce_weight=0.0)
