"""One network with the values of several clients: K vectors of parameters, stepped together."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from benchmark.models.base import Net
from benchmark.models.flat import FlatModel, collect


class _Scores(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.net.features(x)
        return z, self.net.classify(z)


class StackedModel:
    """The network of ``model`` for K clients, under vmap. It has the part of `FlatModel` that a local step needs."""

    def __init__(self, model: FlatModel, w: Tensor, g: Tensor, buffers: Tensor) -> None:
        """Training changes ``w`` [K, d], ``g`` [K, d] and ``buffers`` [K, b] in place."""
        self.w, self.g, self.layout, self.amp = w, g, model.layout, model.amp
        entries, buffer_entries = model.layout.entries, model.buffer_layout.entries
        self._parameters = [vmap(e.view)(w).detach().requires_grad_() for e in entries]
        self._gradients = list(zip(self._parameters, [vmap(e.view)(g) for e in entries], strict=True))
        # Under vmap BatchNorm updates statistics only if they are contiguous, so it gets copies.
        self._buffers = [vmap(e.view)(buffers) for e in buffer_entries]
        self._statistics = [buffer.clone() for buffer in self._buffers]
        names = [f"net.{e.name}" for e in (*entries, *buffer_entries)]
        self._values = dict(zip(names, [*self._parameters, *self._statistics], strict=True))
        scores = _Scores(model.net)

        def forward(values: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            z, logits = functional_call(scores, values, (x,))
            return z, logits, model.criterion(logits, y)

        self._forward = vmap(forward, randomness="different")

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features [K, B, h], logits [K, B, C] and mean cross-entropies [K] of x [K, B, ...] with labels y [K, B]."""
        if not self._buffers:
            return self._forward(self._values, x, y)
        torch._foreach_copy_(self._statistics, self._buffers)
        result = self._forward(self._values, x, y)
        torch._foreach_copy_(self._buffers, self._statistics)
        return result

    def forget_gradients(self) -> None:
        """Let the next backward pass make new gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def collect_gradients(self) -> None:
        """Copy the gradients of the last backward pass to ``g``; zeros for those unused."""
        collect(self._gradients, self.g)
