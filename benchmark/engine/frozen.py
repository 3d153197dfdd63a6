"""Models in evaluation mode and without gradients, which rules and predictions ask for."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmark.engine.records import Cost
from benchmark.models.flat import FlatModel
from methods.core.contexts import Head


class Loaded:
    """The values that a shared network has at present, so that a view does not copy what is already there.

    It holds the tensors and not their ids, because the id of a freed tensor may be given to the next one.
    """

    body: tuple[Tensor, Tensor] | None = None
    head: object | None = None


class FrozenView:
    """A model with given values, in evaluation mode and without gradients. It loads itself into a shared network."""

    def __init__(
        self,
        model: FlatModel,
        loaded: Loaded,
        w: Tensor,
        buffers: Tensor,
        head: Head | None = None,
        cost: Cost | None = None,
    ) -> None:
        """``loaded`` is what ``model`` has at present; samples passed forward are added to ``cost``."""
        self._model, self._loaded, self._cost = model, loaded, cost
        self._w, self._buffers, self._head = w, buffers, head

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """Features [B, h] of inputs [B, c, H, W]."""
        present = self._loaded.body
        if present is None or present[0] is not self._w or present[1] is not self._buffers:
            self._model.load_body(self._w, self._buffers)
            self._loaded.body = (self._w, self._buffers)
        if self._cost is not None:
            self._cost.forward += len(x)
        self._model.net.eval()
        return self._model.net.features(x)

    @torch.no_grad()
    def classify(self, z: Tensor) -> Tensor:
        """Logits [B, C] of features [B, h]."""
        if self._loaded.head is not self:
            self._model.use_head(self._head.key if self._head else None)
            body = self._model.body_size
            self._model.w[body:].copy_(self._head.vector if self._head else self._w[body:])
            self._loaded.head = self
        self._model.net.eval()
        return self._model.net.classify(z)

    def logits(self, x: Tensor) -> Tensor:
        """Logits [B, C] of inputs [B, c, H, W]."""
        return self.classify(self.features(x))


class FrozenPool:
    """Auxiliary networks beside the one that trains: made when first asked for, and reused for the next client."""

    def __init__(self, model: FlatModel) -> None:
        self.loaded = Loaded()
        self.cost = Cost()
        self.used = 0
        """How many auxiliary networks the present client uses."""
        self._model = model
        self._spare: list[FlatModel] = []
        self._differentiable: FlatModel | None = None

    def forget(self) -> None:
        """Free the auxiliary networks for the next client. The training network is about to get new values."""
        self.loaded.body = self.loaded.head = None
        self.used = 0

    def get(self, w: Tensor, buffers: Tensor, head: Head | None = None) -> FrozenView:
        """A frozen model with the given values, valid until the client's round ends."""
        model = self._model
        if head is None and model.head_key is None and w is model.w and buffers is model.buffers:
            # The network that has just trained already has these values: no second network is needed.
            view = FrozenView(model, Loaded(), w, buffers, None, self.cost)
            view._loaded.body, view._loaded.head = (w, buffers), view
            return view
        if self.used == len(self._spare):
            self._spare.append(model.twin())
        self.used += 1
        return FrozenView(self._spare[self.used - 1], Loaded(), w, buffers, head, self.cost)

    @torch.no_grad()
    def gradients(self, w: Tensor, buffers: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Gradient of each sample's cross-entropy [B, d] at the given values, in evaluation mode."""
        if self._differentiable is None:
            self._differentiable = self._model.twin()
        model = self._differentiable
        model.w.copy_(w)
        model.buffers.copy_(buffers)
        model.net.eval()
        self.cost.trained += len(x)
        return model.gradients(x, y)
