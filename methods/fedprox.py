"""FedProx: Federated Optimization in Heterogeneous Networks.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, MLSys 2020, https://arxiv.org/abs/1812.06127

Eq. 2: client k minimises h_k(v; w) = F_k(v) + (mu/2) ||v - w||^2. The server is FedAvg's, or any other.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor

from methods.core.contexts import ClientContext
from methods.core.rules import ClientRule, register


@register("client", "fedprox")
class FedProx(ClientRule):
    """Proximal term that keeps the local model near the global one.

    ``mu``: weight of the term (mu = 0 is FedAvg). ``prox_norm``: ``squared`` is Eq. 2 of FedProx;
    ``unsquared_per_tensor`` is what the public FedLD code trains with, mu times the sum over tensors of ||v_t - w_t||
    (the FedDiverse paper prints an unsquared norm too).
    """

    mu: float = Field(ge=0)
    prox_norm: Literal["squared", "unsquared_per_tensor"] = "squared"

    @property
    def proximal(self) -> float:
        """mu of Eq. 2."""
        return self.mu if self.prox_norm == "squared" else 0.0

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """g <- g + mu (v - w), the gradient of the proximal term of Eq. 2."""
        if self.mu == 0:
            return
        if self.prox_norm == "squared":
            g.add_(w - ctx.w, alpha=self.mu)
            return
        for entry in ctx.layout.entries:
            away = w[entry.start : entry.stop] - ctx.w[entry.start : entry.stop]
            # At v = w the norm has no gradient; 0 is the subgradient that leaves w where it is.
            norm = away.norm().clamp_min(1e-12)
            g[entry.start : entry.stop].add_(away / norm, alpha=self.mu)
