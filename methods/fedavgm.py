"""FedAvgM: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification.

Hsu, Qi, Brown, 2019, https://arxiv.org/abs/1909.06335

Server momentum on the mean update: v <- beta v + Dbar, w <- w + eta_s v, v_0 = 0. The FedSDC paper (Eq. 4-5) writes the
same with the opposite sign of Dbar; Flower's FedAvgM is the same too.
"""

import logging
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import Federation, State
from methods.core.rules import ServerOptimizer, register

log = logging.getLogger(__name__)


@register("optimizer", "momentum")
class ServerMomentum(ServerOptimizer):
    """Heavy-ball momentum at the server.

    ``beta``: momentum; ``lr``: server rate eta_s; ``momentum_form``: ``classic`` or ``nesterov``, w <- w + eta_s
    (Dbar + beta v), which Flower's FedAvgM baseline says the original used.
    """

    beta: float = Field(ge=0, lt=1)
    lr: float = Field(gt=0)
    momentum_form: Literal["classic", "nesterov"] = "classic"

    def model_post_init(self, context: Any, /) -> None:
        """Warn if the effective rate lr/(1 - beta) is large."""
        rate = self.lr / (1 - self.beta)
        if rate > 5:
            log.warning(
                "method.server.optimizer: lr/(1-beta) is %.3g; above 5 training will probably diverge", rate
            )

    def setup(self, federation: Federation) -> State:
        """v_0 = 0."""
        return {"v": torch.zeros_like(federation.w)}

    def step(self, w: Tensor, dbar: Tensor, state: State) -> tuple[Tensor, State]:
        """v <- beta v + Dbar; w <- w + eta_s v."""
        v = self.beta * state["v"] + dbar
        ahead = dbar + self.beta * v if self.momentum_form == "nesterov" else v
        return w + self.lr * ahead, {"v": v}
