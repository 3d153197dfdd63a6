"""FedVLS: Exploring Vacant Classes in Label-Skewed Federated Learning.

Guo, Ding, Liang, He, Wang, Tan, AAAI 2025, https://arxiv.org/abs/2401.02329

With f the logits, p(c) the client's share of class c and O its vacant classes (without samples), a client minimises

    L = L_cal + lambda L_dis + L_logit                                                                   (6)
    L_cal = -mean over the mini-batch of log( p(y) exp f[y] / sum over c of p(c) exp f[c] )              (2)
    L_dis = mean over the mini-batch of sum over o in O of q^g(o) log( q^g(o) / q(o) )                   (3)
    L_logit = sum over c of p(c) log( mean over the mini-batch of I(y != c) exp f[c] ).                  (4, 5)

q is the softmax of f over O alone, q^g that of the global model, in evaluation mode. Eq. 3 is printed with q / q^g,
which is the negative of the divergence that the text names. A class that all samples of a mini-batch have leaves
Eq. 5, where its logarithm is minus infinity. L_logit has no lower bound: it falls with all logits of the client's
classes, while L_cal and L_dis stay. The authors' code (``variant: reference``) weighs it by 0.005; ``docs/fidelity.md``
says what else is different there.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Batch, ClientContext, Loss, State
from methods.core.rules import ClientRule, VariantRule, register
from methods.shared.precision import float32
from methods.shared.teacher import NO_CLASS, teacher, teacher_logits

SMALL = 1e-9
"""What the authors' code adds to p(c) before it takes the logarithm."""


@register("client", "fedvls")
class FedVLS(VariantRule, ClientRule):
    """Distillation of the classes that a client misses, and small logits for wrong classes.

    ``lam``: weight of L_dis; ``suppression``: weight of L_logit; ``calibrated``: L_cal, else cross-entropy, which is
    FedAvg if both weights are 0; ``floor``: added to p(c) in Eq. 2; ``logit``: Eq. 4 as printed, or ``balanced``.
    """

    reference = {"suppression": 0.005, "floor": SMALL, "logit": "balanced"}

    lam: float = Field(ge=0, allow_inf_nan=False)
    suppression: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    calibrated: bool = True
    floor: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    logit: Literal["printed", "balanced"] = "printed"

    def begin(self, ctx: ClientContext) -> State:
        """p [C], and the global model or its logits."""
        n = torch.from_numpy(ctx.label_counts).to(ctx.w, non_blocking=True)
        return {"p": n / n.sum()} | (teacher(ctx) if self.lam else {})

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """Eq. 6 in place of cross-entropy, in float32 at least."""
        p, y = ctx.local["p"], batch.y
        extra: Tensor | float = 0.0
        with float32(batch.logits) as f:
            if self.calibrated:
                extra = F.cross_entropy(f + (p + self.floor).log(), y)
            if self.lam:
                extra = extra + self.lam * distillation(f, teacher_logits(ctx, batch).to(f), p)
            if self.suppression:
                extra = (
                    extra + self.suppression * (p * logit_by_class(f, y, p, self.logit == "balanced")).sum()
                )
        return Loss(extra, ce_weight=0.0 if self.calibrated else 1.0)


def distillation(f: Tensor, f_glob: Tensor, p: Tensor) -> Tensor:
    """L_dis of logits [B, C] of the local and the global model, and shares p [C]; 0 without vacant classes."""
    log_q, log_q_glob = (F.log_softmax(each.masked_fill(p > 0, NO_CLASS), dim=1) for each in (f, f_glob))
    return F.kl_div(log_q, log_q_glob, reduction="batchmean", log_target=True)


def logit_by_class(f: Tensor, y: Tensor, p: Tensor, balanced: bool) -> Tensor:
    """L_logit of each class [C] (Eq. 4) of logits [B, C] and labels [B]; 0 where all samples have the class.

    ``balanced``: exp f[c] is divided by C p(c), and a sample of class c counts 1 in place of 0.
    """
    own = y[:, None] == torch.arange(f.shape[1], device=f.device)
    if balanced:
        f = (f - (p + SMALL).log() - math.log(f.shape[1])).masked_fill(own, 0.0)
        return f.logsumexp(dim=0) - math.log(len(f))
    total = f.masked_fill(own, NO_CLASS).logsumexp(dim=0) - math.log(len(f))
    return total.where(~own.all(dim=0), 0.0)
