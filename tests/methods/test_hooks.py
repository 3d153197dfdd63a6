"""Losses, gradients, phases, sampling, state, payloads, heads and models, by throw-away rules with effects by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from federations import (
    Turns,
    federation,
    near,
    ones,
    problem_of,
    run,
    two_parameters,
    with_rules,
)
from torch import Tensor, nn

from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import Problem
from benchmark.models.networks import Net
from methods.core.contexts import (
    Batch,
    ClientContext,
    Federation,
    Generators,
    Head,
    Heads,
    Loss,
    Phase,
    RoundView,
    State,
    Trained,
)
from methods.core.rules import ClientRule
from methods.fedbn import FedBN
from methods.fedrep import FedRep

START = np.array([2.0, 3.0])
"""(theta, phi) of ``two_parameters``: z = theta x, logits = phi z."""


def two(*rules: ClientRule, problem: Problem | None = None, **options: Any) -> FederatedRun:
    """One round at rate 0.1 of the two-parameter model from ``START``; by default one client with x = 1."""
    slots = {"selection": options.pop("selection")} if "selection" in options else {}
    options = {"lr": 0.1, "rounds": 1, "w0": START} | options
    return federation(problem or ones(1), with_rules(*rules, **slots), two_parameters(), **options)


class Move(ClientRule):
    """Adds gradient -1/lr to all parameters, so that every step adds 1 to each."""

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.sub_(1 / ctx.lr)


class Upload(ClientRule):
    """Uploads (k + 1) x [1, 10] under each reducer; the server keeps what it received, and sends its sum down."""

    reducers = {"s": "sum", "k": "keep"}

    def setup(self, federation: Federation) -> State:
        return {"rounds": 0, "s": torch.zeros(2, dtype=torch.float64), "clients": federation.num_clients}

    def send(self, server: State, client: int, view: RoundView) -> State:
        return {"s": server["s"], "for": client, "round": view.round}

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        value = (ctx.client + 1) * torch.tensor([1.0, 10.0], dtype=torch.float64)
        return {"received": ctx.received}, {"s": value, "k": value}

    def receive(self, server: State, view: RoundView) -> State:
        return {"rounds": server["rounds"] + 1, **view.payload, "seen": (view.clients, view.weights.tolist())}


class Rescale(ClientRule):
    """Cross-entropy times ``ce``, and by * mean of z."""

    ce: float
    by: float = 0.0

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        assert batch.ce.shape == ()
        return Loss(self.by * batch.z.mean(), ce_weight=self.ce)


class RescaleToo(Rescale):
    """The same under another name, to be stacked."""


def two_classes(*rules: ClientRule) -> list[float]:
    """(theta, v_0, v_1) after one step from (2, 0, 0): z = theta x, logits = v z; x = 1, 3 and y = 0, 1."""
    problem = problem_of([np.array([[1.0], [3.0]])], [np.array([0, 1])], 2)
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1).double()
    w0 = np.array([2.0, 0, 0])
    return run(federation(problem, with_rules(*rules), net, lr=0.1, rounds=1, w0=w0))[-1].w.tolist()


def test_extra_loss_rescales_cross_entropy() -> None:
    """With v = 0 both classes have probability 1/2, so dCE/dv_c = mean of (1/2 - [y = c]) z = (-+2 +- 6)/4 =
    (+1, -1).

    dCE/dtheta = 0 and d mean(z)/dtheta = 2. Weights of stacked rules multiply, extras add.
    """
    assert two_classes() == pytest.approx([2, -0.1, 0.1], abs=1e-15)
    assert two_classes(Rescale(ce=0.25, by=1.0)) == pytest.approx([1.8, -0.025, 0.025], abs=1e-15)
    assert two_classes(Rescale(ce=0.0, by=1.0)) == pytest.approx([1.8, 0, 0], abs=1e-15)
    both = two_classes(Rescale(ce=0.5, by=1.0), RescaleToo(ce=0.5, by=2.0))
    assert both == pytest.approx([1.4, -0.025, 0.025], abs=1e-15)


class HeadThenBody(ClientRule):
    """Two epochs on the head at rate .2 without extra losses, then one on the body at the run's rate."""

    points: Any

    def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
        return (
            Phase(groups=("head",), epochs=2, lr=0.2, losses=False),
            Phase(groups=("body", "norm"), steps=2),
        )

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        return Loss(batch.z.mean())

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        self.points.append(w.tolist())
        g.add_(1.0)

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        self.points.append(trained.w.tolist())
        return {"steps": trained.steps, "norm": trained.step_norm}, {}


def test_phases() -> None:
    """Constant gradient 1 on both (from ``correct``), momentum .5, weight decay .1, from (theta, phi) = (2, 3).

    Head, rate .2: u = 1 + .3 = 1.3, phi = 2.74; u = .65 + 1 + .274 = 1.924, phi = 2.3552. theta stays 2
    exactly, though weight decay would move it. Body, rate .1, extra loss mean(z) (gradient 1) on, momentum
    afresh: u = 2 + .2 = 2.2, theta = 1.78; u = 1.1 + 2 + .178 = 3.278, theta = 1.4522. phi stays 2.3552
    exactly, though the head's momentum would move it. a_k: (1 + 1.5) per phase of two steps."""
    rule = HeadThenBody(points=[])
    model = two(rule, momentum=0.5, weight_decay=0.1)
    state = run(model)[-1]
    thetas, phis = zip(*rule.points, strict=True)
    assert thetas == pytest.approx([2, 2, 2, 1.78, 1.4522], abs=1e-14)
    assert phis == pytest.approx([3, 2.74, 2.3552, 2.3552, 2.3552], abs=1e-14)
    assert thetas[:3] == (2.0, 2.0, 2.0)
    assert phis[2] == phis[3] == phis[4]
    assert state.clients[0]["rules"]["HeadThenBody"] == {"steps": 4, "norm": 5.0}
    near(state.w, [1.4522, 2.3552], 1e-14)


def test_payload_reducers_and_server_state() -> None:
    """Clients 0, 1, 2 of sizes 3, 1, 4; in round 0 clients 0 and 2 (p = 3/7, 4/7), in round 1 clients 0 and 1
    (3/4, 1/4)."""
    model = two(Upload(), problem=ones(3, 1, 4), selection=Turns(turns=((0, 2), (0, 1))), rounds=2)
    start, first, second = run(model)
    assert start.rules["Upload"] == {"rounds": 0, "s": start.rules["Upload"]["s"], "clients": 3}
    for state, total, kept, seen in (
        (first, 4, {0: 1, 2: 3}, ((0, 2), [3 / 7, 4 / 7])),
        (second, 3, {0: 1, 1: 2}, ((0, 1), [3 / 4, 1 / 4])),
    ):
        server = state.rules["Upload"]
        near(server["s"], [total, 10 * total], 1e-14)
        assert {k: v.tolist() for k, v in server["k"].items()} == {k: [v, 10 * v] for k, v in kept.items()}
        assert server["seen"] == (seen[0], pytest.approx(seen[1]))
        assert server["rounds"] == state.round
    received = {k: entry["rules"]["Upload"]["received"] for k, entry in second.clients.items()}
    assert {k: (r["for"], r["round"], r["s"].tolist()) for k, r in received.items()} == {
        0: (0, 1, [4, 40]), 1: (1, 1, [4, 40]), 2: (2, 0, [0, 0]),
    }  # fmt: skip


class Slots(ClientRule):
    """Heads of widths 1, 2, 4, all numbers of head s being s + 1; client k trains head k."""

    owns_head = True
    reducers = {"head": "keep"}

    def heads(self, feature_dim: int, num_classes: int, num_clients: int, generators: Generators) -> Heads:
        made: dict[str, nn.Module] = {}
        for s, width in enumerate((1, 2, 4)):
            first, last = nn.Linear(feature_dim, width, bias=False), nn.Linear(width, num_classes, bias=False)
            made[str(s)] = nn.Sequential(first, nn.Dropout(0.0), last).double()
            for p in made[str(s)].parameters():
                nn.init.constant_(p, s + 1.0)
        return made

    def setup(self, federation: Federation) -> State:
        return {"heads": dict(federation.heads)}

    def send(self, server: State, client: int, view: RoundView) -> State:
        return {"head": Head(str(client), server["heads"][str(client)])}

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        assert trained.head is not None
        return {}, {"head": trained.head}

    def receive(self, server: State, view: RoundView) -> State:
        return {"heads": {str(k): head for k, head in view.payload["head"].items()}}


def sent_slots(*rules: ClientRule) -> FederatedRun:
    """Three clients; every step adds 1 to every parameter."""
    return two(Slots(), Move(), *rules, problem=ones(1, 1, 2), batch_size=1)


def test_what_rules_see_of_a_head_that_was_handed_down() -> None:
    """The head's place is zero in the update. Auxiliary models have the model's own head: 5 * 7 = 35 at x = 1.

    Training adds 1 to every number of the head of client k, k + 1 before.
    """
    seen: dict[int, tuple] = {}

    class Look(ClientRule):
        def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
            own = ctx.frozen(torch.tensor([5.0, 7.0], dtype=torch.float64), ctx.buffers)
            logits = float(own.logits(torch.ones(1, 1, dtype=torch.float64)))
            before, after = (set(v.tolist()) for v in (ctx.w[1:], trained.head))
            seen[ctx.client] = (trained.update.tolist(), before, after, logits)
            return {}, {}

    run(sent_slots(Look()))
    near(seen[1][0], [1, 0])
    for k, steps in enumerate((1, 1, 2)):
        _, (before,), (after,), logits = seen[k]
        near((before, after, logits), (k + 1, k + 1 + steps, 35))


def test_personal_groups_beside_heads_of_different_widths() -> None:
    """FedSDC with FedBN: the norm group stays at the client whatever head it holds."""
    body = nn.Sequential(nn.Linear(1, 1, bias=False), nn.LayerNorm(1))
    net = Net(body, nn.Linear(1, 1, bias=False), 1).double()
    method = with_rules(Slots(), Move(), FedBN(norm="all"))
    w0 = np.array([2.0, 1.0, 0.0, 3.0])  # body, norm weight and bias, own classifier
    model = federation(ones(1, 1, 2), method, net, lr=0.1, rounds=2, batch_size=1, w0=w0)
    state = run(model)[-1]
    near(state.w, [5, 1, 0, 3])
    for k, steps in enumerate((2, 2, 4)):
        own = model.clients.start_vector(state, k)
        near(own, [5, 1 + steps, steps, 3])


def test_personal_groups_hide_from_the_server() -> None:
    """Aggregator, optimizer and post act on the shared groups: momentum of the server does not move the head."""
    config = {"server": {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}}
    method = with_rules(FedRep(E_h=None, E_b=None), Move(), config=config)
    states = run(federation(ones(1), method, two_parameters(), lr=0.1, rounds=2, w0=START))
    near([s.w.tolist() for s in states], [[2, 3], [3, 3], [4.5, 3]])
