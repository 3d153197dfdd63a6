"""FedDyn: Federated Learning Based on Dynamic Regularization.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama, ICLR 2021, https://arxiv.org/abs/2111.04263

Algorithm 1: client k minimises f_k(v) - ⟨g_k, v⟩ + (alpha/2) ||v - w||^2 and then sets g_k <- g_k - alpha (w_k - w), so
that at rest g_k is its gradient and local and global optima agree. The server, ``drift``, keeps hs <- hs - (alpha/K)
sum over S of D_k and sets w <- mean_S w_k - hs/alpha. FedDC keeps the clients' drifts h_k <- h_k + D_k and sets w <-
mean_S w_k + (1/K) sum over all k of h_k. With l = -hs/alpha = (1/K) sum_k h_k both are

    l <- l + (1/K) sum over S of D_k,    w <- mean_S w_k + l.

``variant: reference`` is the authors' code: alpha_k = alpha n_bar/n_k instead of one alpha for all (see
``docs/fidelity.md``). The mean of the clients' last models is ``client: last_models``.
"""

import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import ClientContext, Federation, RoundView, State, Trained
from methods.core.rules import ClientRule, Post, VariantRule, register


@register("client", "feddyn")
class FedDyn(VariantRule, ClientRule):
    """Dynamic regulariser.

    ``alpha``: its weight; ``adaptive``: each client's is alpha n_bar/n_k, n_bar the mean n_k.
    """

    for_sgd = True
    equal_layouts = True
    trains_all = True
    needs = {"post": "drift"}
    reference = {"adaptive": True}

    alpha: float = Field(gt=0, allow_inf_nan=False)
    adaptive: bool = False

    def setup(self, federation: Federation) -> State:
        """The mean n_k, where it is needed."""
        return {"mean_size": float(federation.sizes.mean())} if self.adaptive else {}

    def send(self, server: State, client: int, view: RoundView) -> State:
        """The mean n_k, where it is needed."""
        return server

    def begin(self, ctx: ClientContext) -> State:
        """alpha of this client, and what the regulariser adds to every gradient apart from alpha v."""
        alpha = (
            self.alpha * ctx.received["mean_size"] / max(len(ctx.data.y), 1) if self.adaptive else self.alpha
        )
        pull = -alpha * ctx.w
        return {"alpha": alpha, "constant": pull - ctx.state["g"] if ctx.state else pull}

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """g <- g - g_k + alpha (v - w)."""
        g.add_(w, alpha=ctx.local["alpha"]).add_(ctx.local["constant"])

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """g_k <- g_k - alpha (w_k - w)."""
        step = -ctx.local["alpha"] * trained.update
        return {"g": ctx.state["g"] + step if ctx.state else step}, {}


@register("post", "drift")
class Drift(Post):
    """w <- mean of the participants + 1/K of the sum of all updates so far."""

    needs = {"weights": "uniform", "direction": "mean", "optimizer": "add"}

    def setup(self, federation: Federation) -> State:
        """l = 0."""
        return {"l": torch.zeros_like(federation.w)}

    def apply(self, w: Tensor, dbar: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(mean_S w_k + l [d], {"l"}); ``dbar`` is the mean of the m updates, so their sum is m Dbar."""
        drift = state["l"] + (len(view.clients) / view.num_clients) * dbar
        return w + drift, {"l": drift}
