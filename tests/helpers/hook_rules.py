"""Rules that tests of the engine's hooks share."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from federations import federation, ones, two_parameters, with_rules
from torch import Tensor

from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import Problem
from methods.core.contexts import ClientContext, Federation, RoundView, State, Trained
from methods.core.rules import ClientPool, ClientRule, Selection

START = np.array([2.0, 3.0])
"""(theta, phi) of ``two_parameters``: z = theta x, logits = phi z."""


def two(*rules: ClientRule, problem: Problem | None = None, **options: Any) -> FederatedRun:
    """One round at rate 0.1 of the two-parameter model from ``START``; by default one client with x = 1."""
    slots = {
        k: options.pop(k) for k in ("selection", "prediction", "weights", "direction", "post") if k in options
    }
    options = {"lr": 0.1, "rounds": 1, "w0": START} | options
    return federation(problem or ones(1), with_rules(*rules, **slots), two_parameters(), **options)


class Move(ClientRule):
    """Adds gradient -1/lr to all parameters, so that every step adds 1 to each."""

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.sub_(1 / ctx.lr)


class Asking(Selection):
    """Chooses what ``pick`` returns, which may ask the clients."""

    def pick(self, round: int, clients: ClientPool, state: State) -> Sequence[int]:
        raise NotImplementedError

    def choose(
        self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
    ) -> tuple[Sequence[int], State]:
        return self.pick(round, clients, state), state


class Upload(ClientRule):
    """Uploads (k + 1) x [1, 10] under each reducer; the server keeps what it received, and sends its sum down."""

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
