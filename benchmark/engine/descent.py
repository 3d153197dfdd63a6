"""Optimizers of local steps, on the flat vector of a network. All state is zero at the start of a phase.

SGD is here because methods are derived for it, and because its bits are those of all runs. Adam and AdamW are torch's,
with its defaults: betas 0.9 and 0.999, eps 1e-8.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from benchmark.config.schema import TrainConfig


class Descent(Protocol):
    """Takes steps. ``state``: its tensors, which are zero at the start."""

    state: list[Tensor]

    def step(self, w: Tensor, g: Tensor, rate: float, mask: Tensor | None) -> None:
        """Move ``w`` [d] by the gradient ``g`` [d], both in place; ``mask`` [d] is 0 where nothing moves, else 1."""


@dataclass
class Sgd:
    """With weight decay and heavy-ball momentum."""

    momentum: float
    weight_decay: float
    state: list[Tensor]

    def step(self, w: Tensor, g: Tensor, rate: float, mask: Tensor | None) -> None:
        if self.weight_decay:
            g.add_(w, alpha=self.weight_decay)
            if mask is not None:
                g.mul_(mask)  # Weight decay must not move a frozen group either.
        if self.state:
            g = self.state[0].mul_(self.momentum).add_(g)
        w.add_(g, alpha=-rate)


@dataclass
class Adam:
    """Adam (Kingma and Ba, ICLR 2015), or AdamW (Loshchilov and Hutter, ICLR 2019) if ``decoupled``."""

    weight_decay: float
    decoupled: bool
    state: list[Tensor]

    def step(self, w: Tensor, g: Tensor, rate: float, mask: Tensor | None) -> None:
        before = w.clone()
        first, second, count = self.state
        (adamw if self.decoupled else adam)(
            [w], [g], [first], [second], [], [count], capturable=w.is_cuda, amsgrad=False, maximize=False,
            beta1=0.9, beta2=0.999, eps=1e-8, lr=rate, weight_decay=self.weight_decay,
        )  # fmt: skip
        if mask is not None:
            w.copy_(torch.where(mask == 0, before, w))  # AdamW's weight decay moves a frozen group too


def descent(spec: TrainConfig, w: Tensor) -> Descent:
    """The optimizer of a phase that moves ``w`` [d]."""
    if spec.optimizer == "sgd":
        return Sgd(spec.momentum, spec.weight_decay, [torch.zeros_like(w)] if spec.momentum else [])
    count = torch.zeros((), dtype=torch.float32, device=w.device)  # as in torch.optim
    state = [torch.zeros_like(w), torch.zeros_like(w), count]
    return Adam(spec.weight_decay, spec.optimizer == "adamw", state)
