"""The server's side of FedDyn and FedDC: the mean of the participants, moved by all that clients have ever drifted.

FedDyn keeps hs <- hs - (alpha/K) sum over S of D_k and sets w <- mean_S w_k - hs/alpha; FedDC keeps the clients' drifts
h_k <- h_k + D_k and sets w <- mean_S w_k + (1/K) sum over all k of h_k. With l = -hs/alpha = (1/K) sum_k h_k both are

    l <- l + (1/K) sum over S of D_k,    w <- mean_S w_k + l.
"""

from __future__ import annotations

import torch
from torch import Tensor

from methods.core.contexts import Federation, RoundView, State
from methods.core.registry import register
from methods.core.rules import ClientRule, Method, Post


@register("post", "drift")
class Drift(Post):
    """w <- mean of the participants + 1/K of the sum of all updates so far."""

    def check(self, method: Method) -> None:
        """The formula is written for the plain mean and no other step at the server."""
        wanted = {"weights": "uniform", "direction": "mean", "optimizer": "add"}
        for slot, name in wanted.items():
            found = getattr(method, slot).key
            if found != name:
                raise method.error(
                    f"post drift corrects the plain mean of the participants, but method.server.{slot}.name is "
                    f"{found!r}; set it to {name}, or drop the post rule and the client rule that needs it"
                )

    def setup(self, federation: Federation) -> State:
        """l = 0."""
        return {"l": torch.zeros_like(federation.w)}

    def apply(
        self, w_old: Tensor, w: Tensor, dbar: Tensor, view: RoundView, state: State
    ) -> tuple[Tensor, State]:
        """(mean_S w_k + l [d], {"l"}); ``dbar`` is the mean of the m updates, so their sum is m Dbar."""
        drift = state["l"] + (len(view.clients) / view.num_clients) * dbar
        return w + drift, {"l": drift}


def require_drift(rule: ClientRule, method: Method) -> None:
    """MethodError unless the server runs ``post: drift``."""
    if method.post.key != "drift":
        raise method.error(
            f"{rule.key} needs its server side, but method.server.post.name is {method.post.key!r}; set it to drift"
        )
