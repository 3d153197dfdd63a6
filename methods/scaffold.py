"""SCAFFOLD: Stochastic Controlled Averaging for Federated Learning.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, ICML 2020, https://arxiv.org/abs/1910.06378

Algorithm 1 with option II: control variates c_k (client) and c (server) guess the local and the mean gradient, and
every local step takes g + c - c_k, so that clients do not drift apart,

    c_k' = c_k - c + (w - w_k) / (a_k eta),    c <- c + (1/K) sum over S of (c_k' - c_k),    c = c_k = 0 at first.

The server takes the plain mean of the participants (``weights: uniform``); its rate eta_s is that of the server
optimizer (``momentum`` with beta 0). The paper derives option II for plain SGD, where a_k = tau_k steps; under client
momentum the same argument gives the total weight a_k of the gradients (FedNova's), and with tau_k quadratic clients
diverge at momentum 0.9. None of the four papers has it in a table.
"""

from typing import Literal

import torch
from torch import Tensor

from methods.core.contexts import ClientContext, Federation, RoundView, State, Trained
from methods.core.rules import ClientRule, register


@register("client", "scaffold")
class Scaffold(ClientRule):
    """Control variates against client drift.

    ``control_scale``: what (w - w_k)/eta is divided by, a_k or the number of steps tau_k; the same without momentum.
    """

    for_sgd = True
    equal_layouts = True
    trains_all = True
    reducers = {"dc": "sum"}

    control_scale: Literal["a_k", "tau_k"] = "a_k"

    def setup(self, federation: Federation) -> State:
        """c = 0."""
        return {"c": torch.zeros_like(federation.w)}

    def send(self, server: State, client: int, view: RoundView) -> State:
        """c."""
        return server

    def begin(self, ctx: ClientContext) -> State:
        """c - c_k, once for all steps."""
        c = ctx.received["c"]
        return {"difference": c - ctx.state["c"] if ctx.state else c}

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """g <- g + c - c_k."""
        g.add_(ctx.local["difference"])

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Option II; uploads c_k' - c_k. A client that took no step, or steps of length 0, keeps c_k."""
        old = ctx.state.get("c", torch.zeros_like(ctx.w))
        new = old
        if trained.steps and ctx.lr:
            new = -ctx.local["difference"] - trained.update / (self._scale(ctx, trained) * ctx.lr)
        return {"c": new}, {"dc": new - old}

    def _scale(self, ctx: ClientContext, trained: Trained) -> float:
        """What (w - w_k)/eta is divided by."""
        return trained.step_norm if self.control_scale == "a_k" else trained.steps

    def receive(self, server: State, view: RoundView) -> State:
        """c <- c + (1/K) sum over S of (c_k' - c_k)."""
        return server | {"c": server["c"] + view.payload["dc"] / view.num_clients}
