"""FedCM: Federated Learning with Client-level Momentum.

Xu, Wang, Wang, Yao, 2021, https://arxiv.org/abs/2106.10874

Clients mix every gradient with the direction in which the federation moved in the round before,

    v = alpha g + (1 - alpha) Delta_t,    Delta_{t+1} = -(1/(eta K)) mean over S of D_k,    Delta_0 = 0,

K local steps at rate eta. The server takes the plain mean (``weights: uniform``); its rate is that of the server
optimizer. Delta is sent down and costs no upload, as the server makes it from the updates. Under client momentum, and
where clients differ in their number of steps, K is the mean of the a_k, the total weight of a client's gradients in its
update (``Trained.step_norm``): our reading, the same for plain SGD with K steps for all.
"""

import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import ClientContext, Federation, RoundView, State
from methods.core.rules import ClientRule, register


@register("client", "fedcm")
class FedCM(ClientRule):
    """Momentum of the whole federation in every local step.

    ``alpha``: weight of the client's own gradient (1 is FedAvg).
    """

    for_sgd = True
    equal_layouts = True

    alpha: float = Field(gt=0, le=1)

    def setup(self, federation: Federation) -> State:
        """Delta_0 = 0."""
        return {"delta": torch.zeros_like(federation.w)} if self.alpha < 1 else {}

    def send(self, server: State, client: int, view: RoundView) -> State:
        """Delta_t."""
        return server

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """g <- alpha g + (1 - alpha) Delta_t."""
        if self.alpha < 1:
            g.mul_(self.alpha).add_(ctx.received["delta"], alpha=1 - self.alpha)

    def receive(self, server: State, view: RoundView) -> State:
        """Delta_{t+1}; as before if nobody took a step or the rate is 0."""
        way = view.lr * float(view.step_norms.mean())
        if self.alpha == 1 or way == 0 or view.update is None:
            return server
        return {"delta": view.update / -way}
