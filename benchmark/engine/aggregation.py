"""Collects what clients upload in a round: updates, payloads, BatchNorm buffers.

Updates are added one by one wherever the rules allow it, so that memory does not grow with the number of clients.
"""

import numpy as np
import torch
from torch import Tensor

from benchmark.engine.clients import ClientResult
from benchmark.engine.state import FederationState
from methods.core.contexts import State
from methods.core.method import Method
from methods.core.rules import ClientRule, MethodError


class Buffers:
    """The p_k-weighted mean of BatchNorm buffers over the clients of a round. Counters take the maximum."""

    def __init__(self, like: Tensor, counters: Tensor) -> None:
        """``like`` are the global buffers; ``counters`` marks the entries that count batches."""
        self._before, self._counters = like, counters
        self._sum = torch.zeros_like(like)
        self._largest = torch.zeros_like(like)
        self._kept: list[Tensor] = []

    def add(self, buffers: Tensor, p: float | None) -> None:
        """Take the buffers of one client; they are stored only if its weight is not known yet."""
        self._largest = torch.maximum(self._largest, buffers)
        if p is None:
            self._kept.append(buffers.clone())
        else:
            self._sum.add_(buffers, alpha=p)

    def mean(self, p: np.ndarray) -> Tensor:
        """The mean under weights p [m], divided by their sum; the buffers before the round if that sum is 0."""
        for buffers, weight in zip(self._kept, p.tolist(), strict=False):
            self._sum.add_(buffers, alpha=weight)
        total = float(p.sum())
        return torch.where(self._counters, self._largest, self._sum / total) if total else self._before


class Uploads:
    """All that the clients of a round send.

    The updates D_k are held as their weighted sum ``total`` [d], or all of them as ``matrix`` [m, d], if the method
    needs them or if the weights are known only after training.
    """

    def __init__(
        self, state: FederationState, method: Method, m: int, p: np.ndarray | None, counters: Tensor
    ) -> None:
        """``p`` are the weights [m] of the ``m`` clients, if they are known before training ends."""
        self._p = p
        keeps = method.keeps_updates(state.round)
        self.matrix = state.w.new_empty(m, len(state.w)) if keeps else None
        self.total = state.w.new_zeros(0 if keeps else len(state.w))
        self._payloads: dict[str, State] = {}
        self.buffers = Buffers(state.buffers, counters)
        self._count = 0

    def add(self, client: int, result: ClientResult) -> None:
        """Take what the next client sends. Raises `MethodError` for a payload without a reducer."""
        p = None if self._p is None else float(self._p[self._count])
        for rule, payload in result.payloads:
            self._add_payload(rule, client, payload)
        self.buffers.add(result.buffers, p)
        if self.matrix is not None:
            self.matrix[self._count].copy_(result.update)
        elif p is not None:
            self.total.add_(result.update, alpha=p)
        self._count += 1

    def _add_payload(self, rule: ClientRule, client: int, payload: State) -> None:
        uploads = self._payloads.setdefault(rule.key, {})
        for name, value in payload.items():
            reducer = rule.reducers.get(name)
            if reducer is None:
                raise MethodError(f"client rule {rule.key!r} uploads {name!r} but names no reducer for it")
            if reducer == "keep":
                uploads.setdefault(name, {})[client] = value.clone()
            elif name in uploads:
                uploads[name].add_(value)
            else:
                uploads[name] = value.clone()

    def payload(self, rule: ClientRule) -> State:
        """The uploads of one rule by name: a sum, or {client: tensor} for ``keep``."""
        return self._payloads.get(rule.key, {})
