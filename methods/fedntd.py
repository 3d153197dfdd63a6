"""FedNTD: Preservation of the Global Knowledge by Not-True Distillation in Federated Learning.

Lee, Jeong, Shin, Bae, Yun, NeurIPS 2022, https://arxiv.org/abs/2106.03097

L = CE + beta L_NTD. The local model learns the true class y from its labels, and keeps what the global model says about
all other classes. With logits f of the local and f_glob of the global model w, and the true class left out,

    q_c = exp(f_c / tau) / sum over j != y of exp(f_j / tau)    for c != y,    q_glob the same of f_glob,
    L_NTD = mean over the mini-batch of sum over c != y of q_glob_c log(q_glob_c / q_c).

The authors' code multiplies L_NTD by tau^2 (``variant: reference``), as distillation often does; at tau = 1, their
value, both are the same. The global model is in evaluation mode.
"""

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Batch, ClientContext, Loss, State
from methods.core.rules import ClientRule, VariantRule, register
from methods.shared.precision import float32
from methods.shared.teacher import NO_CLASS, teacher, teacher_logits


def not_true(logits: Tensor, y: Tensor, tau: float) -> Tensor:
    """log q [B, C] of logits [B, C] without the true classes y [B], whose q is 0."""
    return F.log_softmax(logits.scatter(1, y[:, None], NO_CLASS) / tau, dim=1)


@register("client", "fedntd")
class FedNTD(VariantRule, ClientRule):
    """Distillation of the global model's answers but for the true class.

    ``beta``: weight of the distillation (0 is FedAvg); ``tau``: temperature.
    """

    beta: float = Field(ge=0, allow_inf_nan=False)
    tau: float = Field(gt=0, allow_inf_nan=False)

    def begin(self, ctx: ClientContext) -> State:
        """The global model, or its logits of all samples."""
        return teacher(ctx) if self.beta else {}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """beta L_NTD, in float32 at least."""
        if self.beta == 0:
            return Loss(0.0)
        f_glob = teacher_logits(ctx, batch)
        with float32(batch.logits) as f:
            log_q, log_q_glob = (not_true(logits, batch.y, self.tau) for logits in (f, f_glob.to(f)))
            scale = self.beta * (self.tau**2 if self.variant == "reference" else 1)
            return Loss(scale * F.kl_div(log_q, log_q_glob, reduction="batchmean", log_target=True))
