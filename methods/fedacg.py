"""FedACG: Communication-Efficient Federated Learning with Accelerated Client Gradient.

Kim, Kim, Han, CVPR 2024, https://arxiv.org/abs/2201.03172

Algorithm 1: the server sends the model that its momentum is about to reach, and clients stay close to it,

    sent: theta + lambda m,    client: F_k(v) + (beta/2) ||v - (theta + lambda m)||^2,
    m <- lambda m + mean over S of D_k,    theta <- theta + m,

with D_k the way from the model sent. The client's half is ``fedprox`` with mu = beta; theta is what is evaluated.
"""

import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Federation, State
from methods.core.rules import ServerOptimizer, register


@register("optimizer", "lookahead")
class Lookahead(ServerOptimizer):
    """Server momentum whose next step clients start from.

    ``lam``: momentum lambda (0 is FedAvg).
    """

    lam: float = Field(ge=0, lt=1)

    def setup(self, federation: Federation) -> State:
        """m = 0."""
        return {"m": torch.zeros_like(federation.w)}

    def broadcast(self, w: Tensor, state: State) -> Tensor:
        """theta + lambda m [d]."""
        return w + self.lam * state["m"] if self.lam else w

    def step(self, w: Tensor, dbar: Tensor, state: State) -> tuple[Tensor, State]:
        """m <- lambda m + Dbar; theta <- theta + m."""
        m = self.lam * state["m"] + dbar
        return w + m, {"m": m}
