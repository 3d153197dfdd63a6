"""Classifiers that never train: simplex equiangular tight frames (FedETF, FedGELA)."""

from collections.abc import Callable
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from benchmark.errors import wrong
from methods.core.rules import MethodError


class SimplexETF(nn.Module):
    """V = sqrt(C/(C-1)) U (I - 11'/C) [d, C]: columns of length 1, any two with cosine -1/(C-1).

    U [d, C] has orthonormal columns; drawn with ``rng``, or None: those of the identity. Raises `MethodError` if d < C.
    """

    def __init__(self, d: int, C: int, rng: np.random.Generator | None = None) -> None:
        super().__init__()
        if d < C:
            what = f"one with at least {C} features for {C} classes; this one has {d}"
            raise MethodError(wrong("model", "a network with too few features", what))
        U = np.eye(d, C) if rng is None else np.linalg.qr(rng.standard_normal((d, C)))[0]
        V = np.sqrt(C / max(C - 1, 1)) * U @ (np.eye(C) - 1 / C)
        # A buffer would be averaged over clients, as BatchNorm's statistics are.
        self._V = torch.from_numpy(V)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Let ``to`` and ``double`` change V too."""
        self._V = fn(self._V)
        return super()._apply(fn, recurse)

    def forward(self, mu: Tensor) -> Tensor:
        """V' mu_b of each row of mu [B, d]: [B, C]."""
        return mu @ self._V
