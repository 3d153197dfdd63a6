"""FedLESAM: Locally Estimated Global Perturbations are Better than Local Perturbations for Federated SAM.

Fan, Hu, Yao, Niu, Zhang, Sugiyama, Wang, ICML 2024, https://arxiv.org/abs/2405.18890

FedSAM's clients climb their own losses. Here each climbs the global loss, whose gradient it estimates by the way that
the global model has gone since the client last received it, from w_old to w,

    e = rho (w_old - w) / ||w_old - w||,    v <- v - eta grad F_k(v + e),

the same e in all steps of a round, each of which takes one gradient; e = 0 in a client's first round.
``docs/fidelity.md`` describes the authors' code (``variant: reference``). As written, it divides by the
sum of the norms of the tensors; as run, by an accident that is not copied, it moves each tensor by one constant.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import ClientContext, RoundView, State, Trained
from methods.core.rules import ClientRule, VariantRule, register


@register("client", "fedlesam")
class FedLESAM(VariantRule, ClientRule):
    """Gradients at a point that is worse for the global loss, for flat minima of it.

    ``rho``: the distance to this point (0 is FedAvg); ``since``: w_old is the model of the client's last round, or that
    of the last round of all; ``norm``: that of the whole vector, or the sum of the norms of its tensors.
    """

    equal_layouts = True
    blind_ascent = True
    reference = {"since": "last_round", "norm": "tensors"}

    rho: float = Field(ge=0, allow_inf_nan=False)
    since: Literal["last_received", "last_round"] = "last_received"
    norm: Literal["whole", "tensors"] = "whole"

    def send(self, server: State, client: int, view: RoundView) -> State:
        """w - w_old, where the server knows it."""
        return server

    def begin(self, ctx: ClientContext) -> State:
        """e, once for all steps."""
        if self.rho == 0:
            return {}
        way = ctx.w - ctx.state["w_old"] if ctx.state else ctx.received.get("way", torch.zeros_like(ctx.w))
        lengths = [way.norm()]
        if self.norm == "tensors":
            lengths = [way[entry.start : entry.stop].norm() for entry in ctx.layout.entries]
        return {"e": way * (-self.rho / sum(lengths).clamp_min(1e-12))}

    def ascend(self, ctx: ClientContext, w: Tensor, g: Tensor) -> Tensor | None:
        """e [d]."""
        return ctx.local.get("e")

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Keep w as w_old."""
        return ({"w_old": ctx.w} if self.rho and self.since == "last_received" else {}), {}

    def receive(self, server: State, view: RoundView) -> State:
        """Keep the way that the global model has gone in this round."""
        return {"way": view.update} if self.rho and self.since == "last_round" else {}
