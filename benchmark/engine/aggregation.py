"""Collects what clients upload in a round: updates, payloads, BatchNorm buffers.

Updates are added one by one wherever the rules allow it, so that memory does not grow with the number of clients.
"""

import numpy as np
import torch
from torch import Tensor

from benchmark.engine.clients import ClientResult
from benchmark.engine.state import FederationState
from methods.core.contexts import RoundView, State
from methods.core.errors import MethodError
from methods.core.rules import ClientRule, Method


class Payloads:
    """The named tensors that client rules upload, each combined over clients by the rule's reducer."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], Tensor] = {}
        self._kept: dict[tuple[str, str], dict[int, Tensor]] = {}

    def add(self, rule: ClientRule, client: int, payload: State, p: float | None) -> None:
        """Take the payload of one client. Raises `MethodError` for a name without a reducer."""
        for name, value in payload.items():
            key, reducer = (rule.key, name), rule.reducers.get(name)
            if reducer is None:
                raise MethodError(
                    f"client rule {rule.key!r} uploads {name!r} but names no reducer for it in `reducers`"
                )
            if reducer == "keep" or (reducer == "mean" and p is None):
                self._kept.setdefault(key, {})[client] = value.clone()
                continue
            weighted = value * p if reducer == "mean" else value
            if key in self._sums:
                self._sums[key].add_(weighted)
            else:
                self._sums[key] = weighted.clone()

    def reduced(self, rule: ClientRule, view: RoundView) -> State:
        """The payload of one rule after reduction: tensors, or {client: tensor} for ``keep``."""
        out: State = {name: value for (key, name), value in self._sums.items() if key == rule.key}
        # The weights of a mean sum to 1 even if the server's do not (FedNova).
        total = float(view.weights.sum()) or 1.0
        p = dict(zip(view.clients, (view.weights / total).tolist(), strict=True))
        for (key, name), values in self._kept.items():
            if key == rule.key and rule.reducers[name] == "keep":
                out[name] = values
            elif key == rule.key:
                out[name] = torch.stack([p[k] * value for k, value in values.items()]).sum(0)
        return out


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

    def __init__(self, state: FederationState, method: Method, m: int, counters: Tensor) -> None:
        keeps = method.keeps_updates(state.round)
        self.matrix = state.w.new_empty(m, len(state.w)) if keeps else None
        self.total = state.w.new_zeros(0 if keeps else len(state.w))
        self.payloads = Payloads()
        self.buffers = Buffers(state.buffers, counters)
        self._count = 0

    def add(self, client: int, result: ClientResult, p: float | None) -> None:
        """Take what one client sends. ``p`` is its weight if it is known before training ends."""
        for rule, payload in result.payloads:
            self.payloads.add(rule, client, payload, p)
        self.buffers.add(result.buffers, p)
        if self.matrix is not None:
            self.matrix[self._count].copy_(result.update)
        elif p is not None:
            self.total.add_(result.update, alpha=p)
        self._count += 1
