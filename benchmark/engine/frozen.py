"""Models in evaluation mode and without gradients, which rules and predictions ask for."""

import torch
from torch import Tensor

from benchmark.engine.records import Cost
from benchmark.models.flat import FlatModel
from methods.core.contexts import FrozenModel, Head


def frozen_model(
    model: FlatModel, w: Tensor, buffers: Tensor, head: Head | None = None, cost: Cost | None = None
) -> FrozenModel:
    """A model with given values, which it loads into the network of ``model`` when it is called.

    ``head`` replaces the classifier of ``w``; samples passed forward are added to ``cost``.
    """
    classifier = head or Head(None, w[model.body_size :])

    @torch.no_grad()
    def features(x: Tensor) -> Tensor:
        model.load_body(w, buffers)
        if cost is not None:
            cost.forward += len(x)
        model.net.eval()
        return model.net.features(x)

    @torch.no_grad()
    def classify(z: Tensor) -> Tensor:
        model.load_head(classifier)
        model.net.eval()
        return model.net.classify(z)

    return FrozenModel(features, classify)


class FrozenPool:
    """Auxiliary networks beside the one that trains: made when first asked for, and reused for the next client.

    ``used`` is how many of them the present client uses.
    """

    def __init__(self, model: FlatModel) -> None:
        self.cost = Cost()
        self.used = 0
        self._model = model
        self._spare: list[FlatModel] = []

    def forget(self) -> None:
        """Free the auxiliary networks for the next client. The training network is about to get new values."""
        for model in (self._model, *self._spare):
            model.forget()
        self.used = 0

    def get(self, w: Tensor, buffers: Tensor) -> FrozenModel:
        """A frozen model with the given values, valid until the client's round ends."""
        model = self._model
        if model.head_key is None and w is model.w and buffers is model.buffers:
            # The network that has just trained already has these values: no second network is needed.
            model.loaded_body, model.loaded_head = (w, buffers), Head(None, w[model.body_size :])
            return frozen_model(model, w, buffers, model.loaded_head, self.cost)
        if self.used == len(self._spare):
            self._spare.append(model.twin())
        self.used += 1
        return frozen_model(self._spare[self.used - 1], w, buffers, None, self.cost)

    @torch.no_grad()
    def gradients(self, w: Tensor, buffers: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Gradient of each sample's cross-entropy [B, d] at the given values, in evaluation mode."""
        self.cost.trained += len(x)
        return self._model.gradients(w, buffers, x, y)
