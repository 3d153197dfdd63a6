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
from methods.core.vectors import LayoutError


class Updates:
    """The updates D_k of a round: their weighted sum ``total`` [d], or all of them, ``matrix`` [m, d]."""

    def __init__(self, like: Tensor, m: int, keep: bool) -> None:
        """``like`` is the global model [d]. With ``keep`` all m updates are stored."""
        self.matrix = like.new_empty(m, len(like)) if keep else None
        self.total = like.new_zeros(0 if keep else len(like))
        self._size = len(like)
        self._count = 0

    def add(self, update: Tensor, p: float | None) -> None:
        """Take one update [d]. ``p`` is its weight if it is known before training ends."""
        # torch would repeat a single number d times.
        if update.shape != (self._size,):
            raise LayoutError(
                f"update number {self._count} of the round has the shape {list(update.shape)}, the model has "
                f"{self._size} parameters. Send the part that differs as a payload, and set its place in the update to "
                "zero."
            )
        if self.matrix is not None:
            self.matrix[self._count].copy_(update)
        elif p is not None:
            self.total.add_(update, alpha=p)
        self._count += 1


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
            if reducer == "sum":
                self._add_to_sum(key, value)
            elif reducer == "mean" and p is not None:
                self._add_to_sum(key, value * p)
            else:
                self._kept.setdefault(key, {})[client] = value.clone()

    def _add_to_sum(self, key: tuple[str, str], value: Tensor) -> None:
        if key in self._sums:
            self._sums[key].add_(value)
        else:
            self._sums[key] = value.clone()

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
    """All that the clients of a round send."""

    def __init__(self, state: FederationState, method: Method, m: int, counters: Tensor) -> None:
        self.updates = Updates(state.w, m, keep=method.keeps_updates(state.round))
        self.payloads = Payloads()
        self.buffers = Buffers(state.buffers, counters)

    def add(self, client: int, result: ClientResult, p: float | None) -> None:
        """Take what one client sends."""
        for rule, payload in result.payloads:
            self.payloads.add(rule, client, payload, p)
        self.updates.add(result.update, p)
        self.buffers.add(result.buffers, p)
