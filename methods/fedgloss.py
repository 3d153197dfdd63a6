"""FedGloSS: Beyond Local Sharpness: Communication-Efficient Global Sharpness-aware Minimization for FL.

Caldarola, Cagnasso, Caputo, Ciccone, CVPR 2025, https://arxiv.org/abs/2412.03752

Algorithm 1 (its lines in brackets): the server takes SAM's two steps. It climbs along the pseudo-gradient Delta of the
last round, so that clients start at w~, and descends from w,

    w~ = w + rho Delta / ||Delta||                                             [4, 5]
    v <- v - eta (grad F_k(v + rho_l g/||g||) - sigma_k + (v - w~)/beta)       [12 to 15]
    sigma_k <- sigma_k - (w_k - w~)/beta                                       [19]
    sigma <- sigma - 1/(beta K) sum over S of (w_k - w~)                       [22]
    Delta <- sum over S of p_k (w~ - w_k)                                      [23]
    w <- w - Delta - beta sigma                                                [24]

Delta and ADMM's dual variables sigma_k and sigma start at 0. The local climb is ``fedsam`` with rho = rho_l. With
D_k = w_k - w~, Delta = -Dbar. w is evaluated. With rho = rho_l = 0 this is FedDyn with alpha = 1/beta.
``docs/fidelity.md`` describes the authors' code (``variant: reference``).
"""

import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import ClientContext, Federation, RoundView, State, Trained
from methods.core.rules import ClientRule, Post, ServerOptimizer, VariantRule, register


@register("client", "fedgloss")
class FedGloSS(ClientRule):
    """ADMM at the client: the smaller beta is, the closer clients stay to the model sent."""

    equal_layouts = True
    trains_all = True
    needs = {"post": "fedgloss"}

    beta: float = Field(gt=0, allow_inf_nan=False)

    def begin(self, ctx: ClientContext) -> State:
        """-sigma_k - w~/beta, once for all steps."""
        pull = ctx.w * (-1 / self.beta)
        return {"constant": pull - ctx.state["sigma_k"] if ctx.state else pull}

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """g <- g - sigma_k + (v - w~)/beta."""
        g.add_(w, alpha=1 / self.beta).add_(ctx.local["constant"])

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """sigma_k <- sigma_k - (w_k - w~)/beta."""
        step = trained.update * (-1 / self.beta)
        return {"sigma_k": ctx.state["sigma_k"] + step if ctx.state else step}, {}


@register("optimizer", "fedgloss")
class ServerSAM(ServerOptimizer):
    """Clients start rho uphill of w, which takes the step (rho = 0 is FedAvg)."""

    rho: float = Field(ge=0, allow_inf_nan=False)

    def setup(self, federation: Federation) -> State:
        """Delta = 0."""
        return {"Delta": torch.zeros_like(federation.w)}

    def broadcast(self, w: Tensor, state: State) -> Tensor:
        """w~ [d]."""
        Delta = state["Delta"]
        return w + Delta * (self.rho / Delta.norm().clamp_min(1e-12)) if self.rho else w

    def step(self, w: Tensor, dbar: Tensor, state: State) -> tuple[Tensor, State]:
        """(w - Delta [d], {"Delta"})."""
        return w + dbar, {"Delta": -dbar}


@register("post", "fedgloss")
class ServerDual(VariantRule, Post):
    """w <- w - beta sigma; over_m: sigma takes the mean of a round's updates instead of their sum."""

    needs = {"weights": "uniform", "direction": "mean", "optimizer": "fedgloss"}
    reference = {"over_m": True}

    over_m: bool = False

    def setup(self, federation: Federation) -> State:
        """beta sigma = 0."""
        return {"beta_sigma": torch.zeros_like(federation.w)}

    def apply(self, w: Tensor, dbar: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(w - beta sigma [d], {"beta_sigma"}); the sum of the m updates is m Dbar."""
        m = 1 if self.over_m else len(view.clients)
        beta_sigma = state["beta_sigma"] - (m / view.num_clients) * dbar
        return w - beta_sigma, {"beta_sigma": beta_sigma}
