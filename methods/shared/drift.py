"""The server's side of FedDyn and FedDC: the mean of the participants, moved by all that clients have ever drifted.

FedDyn keeps hs <- hs - (alpha/K) sum over S of D_k and sets w <- mean_S w_k - hs/alpha; FedDC keeps the clients' drifts
h_k <- h_k + D_k and sets w <- mean_S w_k + (1/K) sum over all k of h_k. With l = -hs/alpha = (1/K) sum_k h_k both are

    l <- l + (1/K) sum over S of D_k,    w <- mean_S w_k + l.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from methods.core.contexts import Federation, RoundView, State
from methods.core.registry import register
from methods.core.rules import Post


@register("post", "drift")
class Drift(Post):
    """w <- mean of the participants + 1/K of the sum of all updates so far."""

    needs: ClassVar[Mapping[str, str]] = {"weights": "uniform", "direction": "mean", "optimizer": "add"}

    def setup(self, federation: Federation) -> State:
        """l = 0."""
        return {"l": torch.zeros_like(federation.w)}

    def apply(self, w: Tensor, dbar: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(mean_S w_k + l [d], {"l"}); ``dbar`` is the mean of the m updates, so their sum is m Dbar."""
        drift = state["l"] + (len(view.clients) / view.num_clients) * dbar
        return w + drift, {"l": drift}
