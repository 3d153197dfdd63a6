"""FedAvg: Communication-Efficient Learning of Deep Networks from Decentralized Data.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, AISTATS 2017, https://arxiv.org/abs/1602.05629

Algorithm 1: every participant runs E epochs of SGD from the global model w; the server takes the weighted mean,
w <- sum_k p_k w_k. Written here on updates D_k = w_k - w, which is the same because the p_k sum to 1. These are the
neutral parts of every other method.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from methods.core.contexts import Predictor, RoundView, ServerView, State
from methods.core.rules import Aggregator, Post, Prediction, ServerOptimizer, Weights, register


@register("weights", "size")
class SizeWeights(Weights):
    """p_k = n_k / n_S: clients count by their number of samples."""

    def weights(self, view: RoundView) -> np.ndarray:
        """p_k [m]."""
        return view.sizes / view.sizes.sum()


@register("weights", "uniform")
class UniformWeights(Weights):
    """p_k = 1/m: all participants count the same."""

    def weights(self, view: RoundView) -> np.ndarray:
        """p_k [m]."""
        return np.full(len(view.clients), 1 / len(view.clients))


@register("direction", "mean")
class MeanDirection(Aggregator):
    """Dbar = sum_k p_k D_k."""

    streams = True

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(Dbar [d], state) from updates [m, d]; the streaming sum gives the same bits."""
        dbar = torch.zeros_like(updates[0])
        for update, weight in zip(updates, p.tolist(), strict=True):
            dbar.add_(update, alpha=weight)
        return dbar, state


@register("optimizer", "add")
class Add(ServerOptimizer):
    """w <- w + Dbar."""

    def step(self, w: Tensor, dbar: Tensor, state: State) -> tuple[Tensor, State]:
        """(new w [d], state)."""
        return w + dbar, state


@register("post", "none")
class NoPost(Post):
    """Nothing after the optimizer's step."""


@register("prediction", "global")
class GlobalPrediction(Prediction):
    """The global model answers."""

    def predictors(self, view: ServerView) -> Iterator[Predictor]:
        """One predictor: logits of w."""
        yield view.model().logits
