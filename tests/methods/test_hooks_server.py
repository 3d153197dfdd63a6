"""Weights, selections, probes and rounds of pre-training, by throw-away rules with effects by hand."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from federations import (
    asked,
    federation,
    near,
    ones,
    problem_of,
    reported,
    two_parameters,
    with_rules,
)
from numpy.random import Generator
from torch import Tensor, nn

from benchmark.engine.records import Cost, Record
from benchmark.models.networks import Net
from methods.core.contexts import (
    Choice,
    ClientContext,
    ClientPool,
    Federation,
    Phase,
    RoundView,
    State,
    Trained,
)
from methods.core.rules import ClientRule, Selection
from methods.shared.triplets import Gce


def test_probe_of_one_step_by_hand() -> None:
    """z = x, logits (0, x), class 1 at x = 0: p = 1/2, GCE derivative by p is -p^(q-1), by x it is -p^q (1 - p).

    So one step at rate .1 changes (theta, v_0, v_1) = (1, 0, 1) by theta: x-derivative times 0, v: z = 0 --
    nothing; at x = 1, p = sigmoid(1), d = -p^.3 (1 - p) for logit 1 and +p^.3 (1 - p) for logit 0."""
    problem = problem_of([np.array([[0.0]]), np.array([[1.0]])], [np.array([1])] * 2, 2)
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1).double()
    model = federation(problem, {}, net, lr=0.1, w0=np.array([1.0, 0, 1]))
    found, cost = asked(model, lambda probe: probe.train([Gce(q=0.3)], Phase(steps=1), "gce").numpy())
    assert cost == Cost(scalars_up=6, trained=2)
    p = 1 / (1 + np.exp(-1))
    d = p**0.3 * (1 - p)
    near(found, [[1, 0, 1], [1 + 0.1 * d, -0.1 * d, 1 + 0.1 * d]], 1e-14)


class Later(Selection):
    """Everybody, and plain FedAvg in round 0; then client 1."""

    def pretraining(self, round: int) -> bool:
        return round == 0

    def measures(self, state: State) -> Mapping[str, float]:
        return {"rounds": state.get("rounds", 0)}

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        ids = list(range(clients.num_clients)) if round == 0 else [1]
        return ids, {"rounds": state.get("rounds", 0) + 1}


class Counter(ClientRule):
    """Counts its rounds at client and server, sends two numbers down and three up, and pulls the first parameter."""

    reducers = {"three": "sum"}

    def setup(self, federation: Federation) -> State:
        return {"received": 0}

    def send(self, server: State, client: int, view: RoundView) -> State:
        return {"two": torch.zeros(2)}

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g[0] += 1.0

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        return {"rounds": ctx.state.get("rounds", 0) + 1}, {"three": torch.ones(3)}

    def receive(self, server: State, view: RoundView) -> State:
        return {"received": server["received"] + 1}


def test_plain_rounds() -> None:
    """In a round of pre-training the method's rules rest: no correction, no momentum, no message; states stay.

    Records have a participation where not everybody took part, and costs where there were any; rounds count from 1.
    """
    config = {"server": {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}}
    method = with_rules(Counter(), selection=Later(), config=config)
    model = federation(ones(1, 3), method, two_parameters(), lr=0.1, w0=np.array([2.0, 3.0]), rounds=3)
    states, reports = reported(model)
    assert states[1].w.tolist() == [2, 3]
    assert states[1].optimizer["v"].tolist() == [0, 0]
    assert states[1].rules["Counter"] == {"received": 0}
    assert states[1].clients == {}
    # Then D = (-0.1, 0) each round: v = -0.1, and -0.15 with momentum.
    assert states[2].w.tolist() == pytest.approx([1.9, 3], abs=1e-15)
    assert states[3].w.tolist() == pytest.approx([1.75, 3], abs=1e-15)
    assert states[3].rules["Counter"] == {"received": 2}
    assert states[3].clients == {1: {"rules": {"Counter": {"rounds": 2}}}}
    assert [report.cost for report in reports] == [Cost(), Cost(3, 2), Cost(3, 2)]
    assert reports[0].records(range(2)) == [Record(1, "train", "all", "loss", 0.0)]
    assert reports[1].records(range(2)) == [
        Record(2, "train", "all", "loss", 0.0),
        Record(2, "cost", "all", "scalars_up", 3.0),
        Record(2, "cost", "all", "scalars_down", 2.0),
        Record(2, "participation", "client=1", "weight", 1.0),
    ]
    assert model.evaluate(states[1]) == [Record(1, "selection", "all", "rounds", 1.0)]
