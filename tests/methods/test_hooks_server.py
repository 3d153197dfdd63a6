"""Weights, selections, probes and rounds of pre-training, by throw-away rules with effects by hand."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import (
    Recorder,
    federation,
    ones,
    problem_of,
    two_parameters,
    with_rules,
)
from torch import Tensor, nn

from benchmark.engine.records import Cost, Record
from benchmark.models.networks import Net
from methods.core.contexts import (
    ClientContext,
    Federation,
    Generators,
    Head,
    Phase,
    RoundView,
    State,
    Trained,
)
from methods.core.rules import ClientPool, ClientProbe, ClientRule, Selection
from methods.shared.triplets import Gce, interaction_matrix


class Asking(Selection):
    """Chooses what ``pick`` returns, which may ask the clients."""

    def pick(self, round: int, clients: ClientPool, state: State) -> Sequence[int]:
        raise NotImplementedError

    def choose(
        self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
    ) -> tuple[Sequence[int], State]:
        return self.pick(round, clients, state), state


def test_selection_sets_up() -> None:
    """FedDiverse with known matrices: each client's counts of class x attribute are asked for once, before round 0."""

    class Known(Asking):
        def setup(self, clients: ClientPool) -> State:
            ids = range(clients.num_clients)
            return {"counts": clients.ask(ids, lambda probe: interaction_matrix(probe).ravel()).tolist()}

        def pick(self, round: int, clients: ClientPool, state: State) -> Sequence[int]:
            return [int(np.argmax([row[round] for row in state["counts"]]))]

    xs, ys = [np.ones((3, 1)), np.ones((2, 1))], [np.array([0, 1, 1]), np.array([0, 0])]
    problem = problem_of(xs, ys, 2, np.array([0, 1, 1, 1, 1]))
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1).double()
    model = federation(problem, with_rules(selection=Known()), net)
    state = model.initial_state()
    # (class 0, attribute 0), (0, 1), (1, 0), (1, 1)
    assert state.selection["counts"] == [[1, 0, 0, 2], [0, 2, 0, 0]]
    state, first = model.step(state)
    assert (first.clients, first.cost.scalars_up) == ((0,), 0)
    assert model.setup_cost.scalars_up == 8
    assert model.step(state)[1].clients == (1,)


def test_probe_of_one_step_by_hand() -> None:
    """z = x, logits (0, x), class 1 at x = 0: p = 1/2, GCE derivative by p is -p^(q-1), by x it is -p^q (1 - p).

    So one step at rate .1 changes (theta, v_0, v_1) = (1, 0, 1) by theta: x-derivative times 0, v: z = 0 --
    nothing; at x = 1, p = sigmoid(1), d = -p^.3 (1 - p) for logit 1 and +p^.3 (1 - p) for logit 0."""
    results = {}

    class Ask(Asking):
        def pick(self, round: int, clients: ClientPool, state: State) -> Sequence[int]:
            def question(probe: ClientProbe) -> np.ndarray:
                results[probe.client] = probe.train([Gce(q=0.3)], Phase(steps=1), "gce").tolist()
                return np.zeros(1)

            clients.ask([0, 1], question)
            return []

    problem = problem_of([np.array([[0.0]]), np.array([[1.0]])], [np.array([1])] * 2, 2)
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1).double()
    model = federation(problem, with_rules(selection=Ask()), net, lr=0.1, w0=np.array([1.0, 0, 1]))
    state, report = model.step(model.initial_state())
    assert (report.clients, report.cost) == ((), Cost(scalars_up=2, trained=2))
    assert state.w.tolist() == [1, 0, 1]
    assert results[0] == pytest.approx([1, 0, 1], abs=1e-15)
    p = 1 / (1 + np.exp(-1))
    d = p**0.3 * (1 - p)
    assert results[1] == pytest.approx([1 + 0.1 * d, -0.1 * d, 1 + 0.1 * d], abs=1e-14)


class Binary(Asking):
    """Asks client 0 to train a two-way head on whether the label is 2, from values (1, 2); leaves class 0 out."""

    found: Any
    seen: Any

    def heads(self, feature_dim: int, num_classes: int, generators: Generators) -> dict[str, nn.Module]:
        head = nn.Linear(feature_dim, 2, bias=False).double()
        head.weight.data = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
        return {"binary": head}

    def pick(self, round: int, clients: ClientPool, state: State) -> Sequence[int]:
        def question(probe: ClientProbe) -> np.ndarray:
            head, labels = Head("binary", probe.heads["binary"]), probe.data.y - 1
            phase = Phase(groups=("head",), steps=1, lr=0.1)
            trained = probe.train([self.seen], phase, "binary", head=head, labels=labels)
            model = probe.model(trained, Head("binary", trained[probe.body_size :]))
            x, y = next(iter(probe.data.batches()))
            self.found.append((trained.tolist(), model.classify(model.features(x)).tolist(), y.tolist()))
            return np.zeros(1)

        clients.ask([0], question)
        return []


def test_probe_trains_a_head_of_the_selection_on_other_labels() -> None:
    """theta = 2 frozen, z = 2, logits (2, 4), label 1: p_0 = sigmoid(-2), the head's gradient (2 p_0, -2 p_0).

    The sample x = 5 has a negative label then, and is left out; rules see the labels that are trained on.
    """
    problem = problem_of([np.array([[1.0], [5.0]])], [np.array([2, 0])], 3)
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 3, bias=False), 1).double()
    found, seen = [], Recorder.new()
    method = with_rules(selection=Binary(found=found, seen=seen))
    model = federation(problem, method, net, w0=np.array([2.0, 0, 0, 0]), lr=0.05)
    state, report = model.step(model.initial_state())
    p = 1 / (1 + np.exp(2))
    head = [1 - 0.2 * p, 2 + 0.2 * p]
    ((trained, logits, labels),) = found
    assert trained == pytest.approx([2, *head], abs=1e-14)
    assert logits[0] == pytest.approx([2 * head[0], 2 * head[1]], abs=1e-14)
    assert labels == [2, 0]  # the client's own labels are as before
    ((_, _, x, y, _),) = seen.batches
    assert (x.tolist(), y.tolist()) == ([[1.0]], [1])
    assert report.cost == Cost(scalars_up=1, forward=2, trained=1)
    assert state.w.tolist() == [2, 0, 0, 0]


class Later(Selection):
    """Everybody, and plain FedAvg in round 0; then client 1."""

    def pretraining(self, round: int) -> bool:
        return round == 0

    def measures(self, state: State) -> Mapping[str, float]:
        return {"rounds": state.get("rounds", 0)}

    def choose(
        self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
    ) -> Any:
        ids = list(range(clients.num_clients)) if round == 0 else [1]
        return ids, {"rounds": state.get("rounds", 0) + 1}


class Counter(ClientRule):
    """Counts its rounds at client and server, sends two numbers down and three up, and pulls the first parameter."""

    reducers: ClassVar[Mapping[str, Any]] = {"three": "sum"}

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
    states, reports = [model.initial_state()], []
    for _ in range(3):
        state, report = model.step(states[-1])
        states.append(state)
        reports.append(report)
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
    assert reports[0].records(2) == [Record(1, "train", "all", "loss", 0.0)]
    assert reports[1].records(2) == [
        Record(2, "train", "all", "loss", 0.0),
        Record(2, "cost", "all", "scalars_up", 3.0),
        Record(2, "cost", "all", "scalars_down", 2.0),
        Record(2, "participation", "client=1", "weight", 1.0),
    ]
    assert model.evaluate(states[1]) == [Record(1, "selection", "all", "rounds", 1.0)]
