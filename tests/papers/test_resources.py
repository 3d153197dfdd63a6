"""FedMR's Fig. 4a: what a client holds, by hand for rules of known state, and what is timed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import federation, mlp, problem_of, with_rules
from finished_runs import FAKE
from torch import Tensor

from benchmark.config.compose import compose, resolve
from benchmark.papers.registry import ResourcesOptions
from benchmark.papers.resources import Trainee, resources
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data
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


def test_the_first_client_trains_alone_on_its_own_samples() -> None:
    config = resolve(compose("quick", FAKE, {"method": "fedmr"}))
    one = Trainee.of(config)
    whole = build_run(config, load_data(config))
    assert one.run.num_clients == 1
    np.testing.assert_array_equal(one.run.problem.clients, whole.problem.clients[:1])
    assert one.state.round == 1
    assert one.seconds() > 0
    assert one.state.round == 1


def test_table(tmp_path: Path) -> None:
    data = resources(ResourcesOptions(results=tmp_path, columns="fmnist/p10c3", repeats=1)).data
    fedavg = data.set_index("method").loc["FedAvg"]
    assert list(fedavg.iloc[:7]) == ["fmnist/p10c3", 4810, 0, 0, 0, 0, 4810]
    assert "Lite-50" in set(data["method"]) and set(data["column"]) == {"fmnist/p10c3"}
