"""FedMR's Fig. 4a: what a client holds, by hand for rules of known state, and what is timed."""

from typing import Any

import numpy as np
import pytest
import torch
from federations import federation, mlp, problem_of, with_rules
from torch import Tensor

from benchmark.papers.resources import Trainee
from methods.core.contexts import ClientContext, Federation, RoundView, State, Trained
from methods.core.rules import ClientRule

D = 6 * 8 + 8 + 8 * 3 + 3
"""Parameters of ``mlp``; it has no buffers."""


class Everything(ClientRule):
    """Holds something of each kind."""

    key = "everything"

    def setup(self, federation: Federation) -> State:
        return {"seven": torch.zeros(7)}

    def send(self, server: State, client: int, view: RoundView) -> State:
        return {"seven": server["seven"], "word": True}

    def begin(self, ctx: ClientContext) -> State:
        """Two other networks; reading the received model before training needs no copy of it."""
        return {"one": ctx.frozen(ctx.w, ctx.buffers), "two": ctx.frozen(ctx.w, ctx.buffers)}

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """Reads the received model in every step."""
        g.add_(w - ctx.w, alpha=0.1)

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        return {"last": trained.w, "more": {"five": torch.zeros(5)}, "turns": 3}, {}


def trainee(*rules: ClientRule, config: dict[str, Any] | None = None) -> Trainee:
    rng = np.random.default_rng(0)
    problem = problem_of([rng.normal(size=(10, 6))], [np.arange(10) % 3], 3)
    run = federation(problem, with_rules(*rules, config=config), mlp(), rounds=3)
    return Trainee(run, run.run_round(run.initial_state())[0])


def test_held_by_hand() -> None:
    one = trainee(Everything())
    expected = {"model": D, "received_model": D, "other_models": 2 * D, "received": 7, "kept": D + 5}
    assert one.held() == expected
    assert one.held() == expected  # looking changes nothing
    assert one.state.round == 1
    assert "contexts" not in vars(one.run)


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ({}, (D, 0, 0, 0, 0)),
        ({"fedprox": {"mu": 0.1}}, (D, D, 0, 0, 0)),
        ({"fedmr": {"mu1": 0.01, "mu2": 0.1}}, (D, 0, 0, 27, 0)),
        ({"fedmr": {"mu1": 0.01, "mu2": 0}}, (D, 0, 0, 0, 0)),
    ],
)
def test_held_by_the_methods(client: dict[str, Any], expected: tuple[int, ...]) -> None:
    """FedProx reads the received model; FedMR holds C h prototypes and C flags; its intra-class loss alone nothing."""
    assert tuple(trainee(config={"client": client}).held().values()) == expected
