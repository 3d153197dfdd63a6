"""Rules that tests of the engine's hooks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from federations import (
    federation,
    ones,
    problem_of,
    two_parameters,
    with_rules,
)
from torch import Tensor

from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import Problem
from methods.core.contexts import (
    Batch,
    ClientContext,
    Federation,
    Loss,
    RoundView,
    State,
    Trained,
)
from methods.core.rules import (
    ClientRule,
)

START = np.array([2.0, 3.0])
"""(theta, phi) of ``two_parameters``: z = theta x, logits = phi z."""


def two(*rules: ClientRule, problem: Problem | None = None, **options: Any) -> FederatedRun:
    """One round at rate 0.1 of the two-parameter model from ``START``; by default one client with x = 1."""
    slots = {
        k: options.pop(k) for k in ("selection", "prediction", "weights", "direction", "post") if k in options
    }
    options = {"lr": 0.1, "rounds": 1, "w0": START} | options
    return federation(problem or ones(1), with_rules(*rules, **slots), two_parameters(), **options)


def line(*xs: Sequence[float]) -> Problem:
    """Clients whose inputs are these numbers; one class, so cross-entropy is 0."""
    return problem_of([np.array(x, dtype=float)[:, None] for x in xs], [np.zeros(len(x), int) for x in xs], 1)


class Move(ClientRule):
    """Adds gradient -1/lr to all parameters, so that every step adds 1 to each."""

    key: ClassVar[str] = "move"

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.sub_(1 / ctx.lr)


class Upload(ClientRule):
    """Uploads (k + 1) x [1, 10] under each reducer; the server keeps what it received, and sends its sum down."""

    key: ClassVar[str] = "upload"
    reducers: ClassVar[Mapping[str, Any]] = {"s": "sum", "m": "mean", "k": "keep"}

    def setup(self, federation: Federation) -> State:
        return {"rounds": 0, "s": torch.zeros(2, dtype=torch.float64), "clients": federation.num_clients}

    def send(self, server: State, client: int, view: RoundView) -> State:
        return {"s": server["s"], "for": client, "round": view.round}

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        value = (ctx.client + 1) * torch.tensor([1.0, 10.0], dtype=torch.float64)
        return {"received": ctx.received}, {"s": value, "m": value, "k": value}

    def receive(self, server: State, view: RoundView) -> State:
        return {"rounds": server["rounds"] + 1, **view.payload, "seen": (view.clients, view.weights.tolist())}


class Previous(ClientRule):
    """MOON's shape: features of the global and of the client's previous model; extra = mean z (z_global -
    z_previous)."""

    key: ClassVar[str] = "previous"

    def begin(self, ctx: ClientContext) -> State:
        last = ctx.state.get("last", {"w": ctx.w, "buffers": ctx.buffers})
        return {"global": ctx.frozen(ctx.w, ctx.buffers), "previous": ctx.frozen(last["w"], last["buffers"])}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        difference = ctx.local["global"].features(batch.x) - ctx.local["previous"].features(batch.x)
        assert not difference.requires_grad
        return Loss((batch.z * difference).mean())

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        return {"last": {"w": trained.w, "buffers": trained.buffers}}, {}
