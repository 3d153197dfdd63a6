"""Logit squeezing, from: Adversarial Logit Pairing.

Kannan, Kurakin, Goodfellow, 2018, https://arxiv.org/abs/1803.06373
"""

from pydantic import Field

from methods.core.contexts import Batch, ClientContext, Loss
from methods.core.rules import ClientRule, register


@register("client", "logit_squeezing")
class LogitSqueezing(ClientRule):
    """Penalty on large logits.

    ``lam``: weight of the penalty (lam = 0 is FedAvg).
    """

    lam: float = Field(ge=0)

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """L = CE + lam * mean over the batch of ||f||^2."""
        return Loss(self.lam * batch.logits.square().sum(dim=1).mean())
