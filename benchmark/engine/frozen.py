"""Models in evaluation mode and without gradients, which rules and predictions ask for."""

import torch
from torch import Tensor

from benchmark.engine.records import Cost
from benchmark.models.flat import FlatModel
from methods.core.contexts import Head


class FrozenView:
    """A model with given values, in evaluation mode and without gradients. It loads itself into a shared network."""

    def __init__(
        self, model: FlatModel, w: Tensor, buffers: Tensor, head: Head | None = None, cost: Cost | None = None
    ) -> None:
        """``head`` replaces the classifier of ``w``; samples passed forward are added to ``cost``."""
        self._model, self._w, self._buffers = model, w, buffers
        self.head = head or Head(None, w[model.body_size :])
        self._cost = cost or Cost()

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """Features [B, h] of inputs [B, c, H, W]."""
        self._model.load_body(self._w, self._buffers)
        self._cost.forward += len(x)
        self._model.net.eval()
        return self._model.net.features(x)

    @torch.no_grad()
    def classify(self, z: Tensor) -> Tensor:
        """Logits [B, C] of features [B, h]."""
        self._model.load_head(self.head)
        self._model.net.eval()
        return self._model.net.classify(z)

    def logits(self, x: Tensor) -> Tensor:
        """Logits [B, C] of inputs [B, c, H, W]."""
        return self.classify(self.features(x))


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

    def get(self, w: Tensor, buffers: Tensor) -> FrozenView:
        """A frozen model with the given values, valid until the client's round ends."""
        model = self._model
        if model.head_key is None and w is model.w and buffers is model.buffers:
            # The network that has just trained already has these values: no second network is needed.
            view = FrozenView(model, w, buffers, None, self.cost)
            model.loaded_body, model.loaded_head = (w, buffers), view.head
            return view
        if self.used == len(self._spare):
            self._spare.append(model.twin())
        self.used += 1
        return FrozenView(self._spare[self.used - 1], w, buffers, None, self.cost)

    @torch.no_grad()
    def gradients(self, w: Tensor, buffers: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Gradient of each sample's cross-entropy [B, d] at the given values, in evaluation mode."""
        self.cost.trained += len(x)
        return self._model.gradients(w, buffers, x, y)
