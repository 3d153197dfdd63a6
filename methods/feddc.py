"""FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction.

Gao, Fu, Li, Chen, Xu, Xu, CVPR 2022, https://arxiv.org/abs/2203.11751

Algorithm 1: client k keeps its drift h_k and trains with a penalty (alpha/2) ||v + h_k - w||^2 and SCAFFOLD's
correction c - c_k; then h_k <- h_k + (w_k - w), c_k' = c_k - c + (w - w_k)/(a_k eta). The server sets w <- mean_S w_k +
the mean of all drifts (``drift``) and c <- c + (1/K) sum over S of (c_k' - c_k). On a_k see ``scaffold``.

``variant: reference`` is the authors' code: with s_k = n_k/n_bar a client's alpha and c are divided by s_k and what it
uploads is multiplied by it (``scaled``), and every client divides by the number of steps that one of mean size takes
(``steps: mean``). It also clips gradients to norm 10 (``train.clip: 10``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import ClientContext, Federation, Reducer, RoundView, State, Trained
from methods.core.registry import register
from methods.core.rules import ClientRule, Method
from methods.core.variant import VariantRule
from methods.scaffold import new_control, refuse_phases
from methods.shared.drift import require_drift


@register("client", "feddc")
class FedDC(VariantRule, ClientRule):
    """Local drift, decoupled and corrected.

    ``alpha``: weight of the penalty; ``control_scale`` as in scaffold; ``scaled`` and ``steps`` as above.
    """

    equal_layouts: ClassVar[bool] = True
    reducers: ClassVar[Mapping[str, Reducer]] = {"dc": "sum"}
    reference: ClassVar[Mapping[str, Any]] = {"scaled": True, "steps": "mean"}

    alpha: float = Field(gt=0, allow_inf_nan=False)
    control_scale: Literal["a_k", "tau_k"] = "a_k"
    scaled: bool = False
    steps: Literal["own", "mean"] = "own"

    def check(self, method: Method) -> None:
        """Needs its server side; covers the whole model."""
        require_drift(self, method)
        refuse_phases(self, method)

    def setup(self, federation: Federation) -> State:
        """c = 0; the mean n_k and the steps of a client of that size, where they are needed."""
        state: State = {"c": torch.zeros_like(federation.w)}
        mean = float(federation.sizes.mean())
        if self.scaled:
            state["mean_size"] = mean
        if self.steps == "mean":
            state["mean_steps"] = federation.steps(round(mean))
        return state

    def send(self, server: State, client: int, view: RoundView) -> State:
        """c, and the mean size and number of steps where they are needed."""
        return server

    def begin(self, ctx: ClientContext) -> State:
        """s_k, alpha and c of this client, c - c_k, and what is added to every gradient apart from alpha v."""
        share = max(ctx.n, 1) / ctx.received["mean_size"] if self.scaled else 1.0
        alpha, c = self.alpha / share, ctx.received["c"] / share
        difference = c - ctx.state["c"] if ctx.state else c
        away = ctx.state["h"] - ctx.w if ctx.state else -ctx.w
        return {
            "share": share,
            "alpha": alpha,
            "difference": difference,
            "constant": difference + alpha * away,
        }

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """g <- g + alpha (v + h_k - w) + c - c_k."""
        g.add_(w, alpha=ctx.local["alpha"]).add_(ctx.local["constant"])

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """h_k <- h_k + D_k and c_k'; uploads s_k (c_k' - c_k)."""
        old = ctx.state or {"h": torch.zeros_like(ctx.w), "c": torch.zeros_like(ctx.w)}
        scale = trained.step_norm if self.control_scale == "a_k" else trained.steps
        if self.steps == "mean":
            scale = ctx.received["mean_steps"]
        new = new_control(old["c"], ctx.local["difference"], scale, trained, ctx.lr)
        return {"h": old["h"] + trained.update, "c": new}, {"dc": ctx.local["share"] * (new - old["c"])}

    def receive(self, server: State, view: RoundView) -> State:
        """c <- c + (1/K) sum over S of s_k (c_k' - c_k)."""
        return server | {"c": server["c"] + view.payload["dc"] / view.num_clients}
