"""FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction.

Gao, Fu, Li, Chen, Xu, Xu, CVPR 2022, https://arxiv.org/abs/2203.11751

As in the authors' code (the paper was not at hand, see ``docs/fidelity.md``), client k keeps its drift h_k and trains
with a penalty (alpha/2) ||v + h_k - w||^2 and SCAFFOLD's correction c - c_k; then h_k <- h_k + (w_k - w) and c_k' =
c_k - c + (w - w_k)/(a_k eta). The server sets w <- mean_S w_k + the mean of all drifts (``drift``) and c <- c + (1/K)
sum over S of (c_k' - c_k). On a_k see ``scaffold``.

``variant: reference`` is all of that code: with s_k = n_k/n_bar a client's alpha and c are divided by s_k and what it
uploads is multiplied by it (``scaled``), and every client divides by the number of steps that one of mean size takes.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import ClientContext, Federation, State, Trained
from methods.core.rules import VariantRule, register
from methods.scaffold import Scaffold


@register("client", "feddc")
class FedDC(VariantRule, Scaffold):
    """Local drift, decoupled and corrected.

    ``alpha``: weight of the penalty; ``control_scale`` as in scaffold; ``scaled`` and ``steps`` as above.
    """

    needs = {"post": "drift"}
    reference = {"scaled": True, "steps": "mean"}

    alpha: float = Field(gt=0, allow_inf_nan=False)
    scaled: bool = False
    steps: Literal["own", "mean"] = "own"

    def setup(self, federation: Federation) -> State:
        """c = 0; the mean n_k and the steps of a client of that size, where they are needed."""
        state = super().setup(federation)
        mean = float(federation.sizes.mean())
        if self.scaled:
            state["mean_size"] = mean
        if self.steps == "mean":
            state["mean_steps"] = federation.steps(round(mean))
        return state

    def begin(self, ctx: ClientContext) -> State:
        """s_k, alpha and c of this client, c - c_k, and what is added to every gradient apart from alpha v."""
        share = max(len(ctx.data.y), 1) / ctx.received["mean_size"] if self.scaled else 1.0
        alpha, c = self.alpha / share, ctx.received["c"] / share
        difference = c - ctx.state["c"] if ctx.state else c
        away = ctx.state["h"] - ctx.w if ctx.state else -ctx.w
        constant = difference + alpha * away
        return {"share": share, "alpha": alpha, "difference": difference, "constant": constant}

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """g <- g + alpha (v + h_k - w) + c - c_k."""
        g.add_(w, alpha=ctx.local["alpha"]).add_(ctx.local["constant"])

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """h_k <- h_k + D_k and c_k'; uploads s_k (c_k' - c_k)."""
        state, payload = super().finish(ctx, trained)
        h = ctx.state.get("h", torch.zeros_like(ctx.w)) + trained.update
        return state | {"h": h}, {"dc": ctx.local["share"] * payload["dc"]}

    def _scale(self, ctx: ClientContext, trained: Trained) -> float:
        """The client's own a_k (or tau_k), or the steps of a client of mean size."""
        return ctx.received["mean_steps"] if self.steps == "mean" else super()._scale(ctx, trained)
