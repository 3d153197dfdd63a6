"""FedSAM: Generalized Federated Learning via Sharpness Aware Minimization.

Qu, Li, Duan, Liu, Tang, Lu, ICML 2022, https://arxiv.org/abs/2206.02618

Algorithm 1: every local step takes its gradient where the loss is highest near v, to first order,

    e = rho g / ||g||,    g = grad F_k(v),    v <- v - eta grad F_k(v + e),

both gradients on the same mini-batch. The server is FedAvg's. MoFedSAM, of the same paper, is this rule together with
``fedcm``. BatchNorm's running statistics come from the first pass, at v: our choice, as the engine evaluates v.
"""

from pydantic import Field
from torch import Tensor

from methods.core.contexts import ClientContext
from methods.core.rules import ClientRule, register


@register("client", "fedsam")
class FedSAM(ClientRule):
    """Gradients at the worst point within a small distance, for flat minima.

    ``rho``: that distance (0 is FedAvg).
    """

    rho: float = Field(ge=0, allow_inf_nan=False)

    def ascend(self, ctx: ClientContext, w: Tensor, g: Tensor) -> Tensor | None:
        """e = rho g / ||g|| [d]; 0 where g is 0."""
        return g * (self.rho / g.norm().clamp_min(1e-12)) if self.rho else None
