"""Heads of different widths, personal groups, and auxiliary models, by throw-away rules with effects by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import (
    Turns,
    federation,
    ones,
    problem_of,
    run,
    two_parameters,
    with_rules,
)
from hook_rules import START, Move, Previous, line, two
from torch import Tensor, nn

from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import Diverged
from benchmark.models.networks import Net
from methods.core.contexts import (
    Batch,
    ClientContext,
    Federation,
    Generators,
    Head,
    Loss,
    Phase,
    RoundView,
    State,
    Trained,
)
from methods.core.rules import (
    ClientRule,
)

# Model surgery, vote, personal groups -------------------------------------------------------------------------


class Slots(ClientRule):
    """Heads of different widths, one per slot; slot s(k, t) = (k + t) mod 3 goes to client k and returns trained."""

    key: ClassVar[str] = "slots"
    owns_head: ClassVar[bool] = True
    reducers: ClassVar[Mapping[str, Any]] = {"head": "keep"}
    widths: tuple[int, ...] = (1, 2, 4)

    def heads(self, feature_dim: int, num_classes: int, generators: Generators) -> dict[str, nn.Module]:
        made: dict[str, nn.Module] = {}
        for s, width in enumerate(self.widths):
            head = nn.Sequential(
                nn.Linear(feature_dim, width, bias=False),
                nn.Dropout(0.0),
                nn.Linear(width, num_classes, bias=False),
            )
            for p in head.parameters():
                nn.init.constant_(p, s + 1.0)
            made[str(s)] = head.double()
        return made

    def setup(self, federation: Federation) -> State:
        return {"heads": dict(federation.heads)}

    def send(self, server: State, client: int, view: RoundView) -> State:
        slot = str((client + view.round) % 3)
        return {"head": Head(slot, server["heads"][slot])}

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        assert trained.head is not None
        return {}, {"head": trained.head}

    def receive(self, server: State, view: RoundView) -> State:
        new = {str((k + view.round) % 3): head for k, head in view.payload["head"].items()}
        return {"heads": server["heads"] | new}


def sent_slots(rounds: int = 1, *rules: ClientRule, **options: Any) -> FederatedRun:
    """Three clients; every step adds 1 to every parameter."""
    return two(Slots(), Move(), *rules, problem=ones(1, 1, 2), rounds=rounds, batch_size=1, **options)


def test_heads_of_different_widths() -> None:
    """Slot s starts with the value s + 1 in its 2 * width parameters; a client adds its number of steps (1, 1, 2).

    Round 0: slot 0 at client 0 (+1), 1 at 1 (+1), 2 at 2 (+2). Round 1: slot 1 at client 0 (+1), slot 2 at 1
    (+1), slot 0 at 2 (+2). The body moves by the weighted mean, (1 + 1 + 2 * 2)/4 = 1.5; the model's own
    classifier stays."""
    states = run(sent_slots(2))
    values = [{s: v.tolist() for s, v in state.rules["slots"]["heads"].items()} for state in states]
    for value, expected in zip(values, ((1, 2, 3), (2, 3, 5), (4, 4, 6)), strict=True):
        for s, width in enumerate((1, 2, 4)):
            np.testing.assert_allclose(value[str(s)], [expected[s]] * 2 * width, rtol=0, atol=1e-12)
    np.testing.assert_allclose([s.w.tolist() for s in states], [[2, 3], [3.5, 3], [5, 3]], rtol=0, atol=1e-12)


def test_heads_that_nobody_held_stay() -> None:
    states = run(sent_slots(2, selection=Turns(turns=((1,), ()))))
    np.testing.assert_allclose(states[-1].rules["slots"]["heads"]["1"], [3.0] * 4, rtol=0, atol=1e-12)
    for slot in "02":
        assert torch.equal(states[-1].rules["slots"]["heads"][slot], states[0].rules["slots"]["heads"][slot])


def test_what_rules_see_of_a_head_that_was_handed_down() -> None:
    """The layout, the vector and the update: body and that head in training, the head's place zero in the update."""
    seen: dict[int, tuple] = {}

    class Look(ClientRule):
        key: ClassVar[str] = "look"

        def begin(self, ctx: ClientContext) -> State:
            return {"w": ctx.w.clone()}

        def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
            shapes = [(e.name, e.shape, e.group) for e in ctx.layout.entries]
            seen[ctx.client] = (shapes, ctx.local["w"].tolist(), trained.w.tolist(), trained.update.tolist())
            return {}, {}

    run(sent_slots(1, Look()))
    shapes, start, w, update = seen[1]
    assert shapes == [
        ("body.weight", (1, 1), "body"),
        ("classifier.0.weight", (2, 1), "head"),
        ("classifier.2.weight", (1, 2), "head"),
    ]
    assert start == [2, 2, 2, 2, 2]
    assert w == pytest.approx([3, 3, 3, 3, 3])
    assert update == pytest.approx([1, 0])


def test_auxiliary_models_beside_heads_of_different_widths() -> None:
    """Logits of body and handed-down head: slot s before training is theta x (s + 1)^2 width = 2 (1, 8, 36)."""
    seen: dict[int, tuple[float, ...]] = {}

    class Look(ClientRule):
        key: ClassVar[str] = "look"

        def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
            x = torch.ones(1, 1, dtype=torch.float64)
            slot = str((ctx.client + ctx.round) % 3)
            before = ctx.frozen(ctx.w, ctx.buffers, Head(slot, ctx.w[1:]))
            after = ctx.frozen(trained.w, trained.buffers, Head(slot, trained.head))
            own = ctx.frozen(torch.tensor([5.0, 7.0], dtype=torch.float64), ctx.buffers)
            seen[ctx.client] = tuple(float(m.classify(m.features(x))) for m in (before, after, own))
            return {}, {}

    run(sent_slots(1, Look()))
    assert seen[0] == pytest.approx((2 * 1, 3 * 4, 35))
    assert seen[1] == pytest.approx((2 * 4 * 2, 3 * 9 * 2, 35))
    assert seen[2] == pytest.approx((2 * 9 * 4, 4 * 25 * 4, 35))


def test_a_non_finite_head_that_was_handed_down_is_noticed() -> None:
    """X5: also where the head goes back as a payload and its place in the update is zero."""

    class Poison(ClientRule):
        key: ClassVar[str] = "poison"

        def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
            if ctx.client == 1:
                g[ctx.layout.mask("head")] = float("nan")

    with pytest.raises(Diverged, match="client 1"):
        run(sent_slots(1, Poison()))


def test_personal_groups_beside_heads_of_different_widths() -> None:
    """FedSDC with FedBN: the norm group stays at the client whatever head it holds."""

    class OwnNorm(ClientRule):
        key: ClassVar[str] = "own_norm"
        personal: ClassVar[tuple[str, ...]] = ("other_norm",)

    net = Net(
        nn.Sequential(nn.Linear(1, 1, bias=False), nn.LayerNorm(1)), nn.Linear(1, 1, bias=False), 1
    ).double()
    method = with_rules(Slots(), Move(), OwnNorm())
    w0 = np.array([2.0, 1.0, 0.0, 3.0])  # body, norm weight and bias, own classifier
    model = federation(ones(1, 1, 2), method, net, lr=0.1, rounds=2, batch_size=1, w0=w0)
    state = run(model)[-1]
    np.testing.assert_allclose(state.w, [5, 1, 0, 3], rtol=0, atol=1e-12)
    for k, steps in enumerate((2, 2, 4)):
        own = model.clients.start_vector(state, k)
        np.testing.assert_allclose(own, [5, 1 + steps, steps, 3], rtol=0, atol=1e-12)


class OwnHead(ClientRule):
    """FedRep: the head stays at the client; head first, then body."""

    key: ClassVar[str] = "own_head"
    personal: ClassVar[tuple[str, ...]] = ("head",)
    owns_head: ClassVar[bool] = True

    def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
        return Phase("head", groups=("head",)), Phase("body", groups=("body",))


def test_personal_groups() -> None:
    """Sizes 1, 3, 1, batches of 1: a client adds its size to its head, then to the body.

    Round 0, clients 0 and 1: heads 3 + 1 and 3 + 3; body 2 + (1 * 1 + 3 * 3)/4 = 4.5. Round 1, clients 1 and
    2: heads 6 + 3 and 3 + 1, body 4.5 + 2.5. Client 0 keeps head 4; the server's head stays 3."""
    model = two(
        OwnHead(),
        Move(),
        problem=ones(1, 3, 1),
        selection=Turns(turns=((0, 1), (1, 2))),
        rounds=2,
        batch_size=1,
    )
    states = run(model)
    np.testing.assert_allclose([s.w.tolist() for s in states], [[2, 3], [4.5, 3], [7, 3]], rtol=0, atol=1e-12)
    own = [[model.clients.start_vector(s, k).tolist() for k in range(3)] for s in states]
    np.testing.assert_allclose(own[1], [[4.5, 4], [4.5, 6], [4.5, 3]], rtol=0, atol=1e-12)
    np.testing.assert_allclose(own[2], [[7, 4], [7, 9], [7, 4]], rtol=0, atol=1e-12)


def test_personal_groups_hide_from_the_server() -> None:
    """Aggregator, optimizer and post act on the shared groups: momentum of the server does not move the head."""
    config = {"server": {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}}
    method = with_rules(OwnHead(), Move(), config=config)
    states = run(federation(ones(1), method, two_parameters(), lr=0.1, rounds=2, w0=START))
    np.testing.assert_allclose([s.w.tolist() for s in states], [[2, 3], [3, 3], [4.5, 3]], rtol=0, atol=1e-12)


# Statistics and auxiliary models -----------------------------------------------------------------------------


class Statistics(ClientRule):
    """Mean feature and logit of the local data, before and after training."""

    key: ClassVar[str] = "statistics"

    @staticmethod
    def means(ctx: ClientContext, w: Tensor, buffers: Tensor) -> dict[str, float]:
        model = ctx.frozen(w, buffers)
        z = f = 0.0
        for x, y in ctx.data.batches():
            features = model.features(x)
            assert not features.requires_grad
            assert len(x) == len(y)
            z += float(features.sum())
            f += float(model.classify(features).sum())
        return {"z": z / ctx.n, "f": f / ctx.n}

    def begin(self, ctx: ClientContext) -> State:
        return self.means(ctx, ctx.w, ctx.buffers)

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.sub_(ctx.local["z"] / ctx.lr)

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        after = self.means(ctx, trained.w, trained.buffers)
        assert trained.w.shape == (2,)
        return {"before": dict(ctx.local), "after": after}, {}


def test_statistics_before_and_after_training() -> None:
    """Client 0, x = (1, 3): z = 2 * 2 = 4, f = 12, so the step adds 4: theta 6, phi 7, z = 12, f = 84.

    Client 1, x = (-1): z = -2, f = -6, step -2: theta 0, phi 1, z = 0, f = 0. The second client sees the
    global model."""
    states = run(two(Statistics(), problem=line([1.0, 3.0], [-1.0])))
    found = {k: entry["rules"]["statistics"] for k, entry in states[-1].clients.items()}
    assert found[0] == {
        "before": pytest.approx({"z": 4, "f": 12}),
        "after": pytest.approx({"z": 12, "f": 84}),
    }
    assert found[1] == {
        "before": pytest.approx({"z": -2, "f": -6}),
        "after": pytest.approx({"z": 0, "f": 0}, abs=1e-12),
    }
    np.testing.assert_allclose(states[-1].w, [2 + (2 * 4 - 2) / 3, 3 + (2 * 4 - 2) / 3], rtol=0, atol=1e-12)


def test_previous_and_global_model_as_auxiliary_models() -> None:
    """x = 1, so the gradient of theta is w_global - w_previous; Move adds the client's size per round; rate .1.

    Round 0: no previous model, no gradient: theta_0 = 2 + 1, theta_1 = 2 + 3, mean (3 + 3 * 5)/4 = 4.5. Round
    1: gradients 4.5 - 3 = 1.5 and 4.5 - 5 = -.5 in every step: theta_0 = 4.5 + 1 - .15 = 5.35, theta_1 = 4.5
    + 3 + .15 = 7.65; mean 7.075."""
    model = two(Previous(), Move(), problem=ones(1, 3), rounds=2, batch_size=1)
    states = run(model)
    assert [float(s.w[0]) for s in states] == pytest.approx([2, 4.5, 7.075], abs=1e-12)
    last = [float(states[-1].clients[k]["rules"]["previous"]["last"]["w"][0]) for k in (0, 1)]
    assert last == pytest.approx([5.35, 7.65], abs=1e-12)


def test_auxiliary_models_are_in_evaluation_mode() -> None:
    """Dropout is off in the auxiliary model while it is on in the model that trains; BatchNorm statistics stay."""
    seen: list[tuple[Tensor, Tensor, Tensor]] = []

    class Compare(ClientRule):
        key: ClassVar[str] = "compare"

        def begin(self, ctx: ClientContext) -> State:
            return {"model": ctx.frozen(ctx.w, ctx.buffers)}

        def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
            seen.append((ctx.local["model"].features(batch.x), batch.z.detach().clone(), batch.x))
            return Loss(0.0)

    net = Net(nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)), nn.Linear(4, 2), 4).double()
    problem = problem_of([np.random.default_rng(0).normal(3, 2, size=(8, 4))], [np.arange(8) % 2], 2)
    run(federation(problem, with_rules(Compare()), net, rounds=1, epochs=2, lr=0.0))
    for frozen, training, x in seen:
        np.testing.assert_allclose(frozen, x / np.sqrt(1 + 1e-5), rtol=0, atol=1e-12)
        assert 0 < int((training == 0).sum()) < training.numel()
