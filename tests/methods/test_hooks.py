"""Throw-away rules that use every hook of the interface, each with an effect that can be checked by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import (
    Recorder,
    Turns,
    bn_dropout,
    federation,
    ones,
    problem_of,
    run,
    same,
    seeded,
    two_parameters,
    with_rules,
)
from torch import Tensor, nn

from benchmark.engine.evaluation import EvaluationSet
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost, Record
from benchmark.engine.state import Diverged, Problem
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
from methods.core.errors import MethodError
from methods.core.rules import (
    Aggregator,
    ClientPool,
    ClientProbe,
    ClientRule,
    Selection,
    Weights,
)
from methods.shared.triplets import Balanced, Gce

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


# Loss ----------------------------------------------------------------------------------------------------------


class Features(ClientRule):
    """extra = by * mean of z."""

    key: ClassVar[str] = "features"
    by: float = 1.0

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        return Loss(self.by * batch.z.mean())


def test_extra_loss_on_features() -> None:
    """z = theta x; d mean(z) / d theta = mean x = 2; theta <- 2 - .1 * 2; phi has no part in z."""
    w = run(two(Features(), problem=line([1.0, 3.0])))[-1].w
    np.testing.assert_allclose(w, [1.8, 3.0], rtol=0, atol=1e-15)


class Rescale(ClientRule):
    """Cross-entropy times ``ce``, and by * mean of z."""

    key: ClassVar[str] = "rescale"
    ce: float
    by: float = 0.0

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        assert batch.ce.shape == ()
        return Loss(self.by * batch.z.mean(), ce_weight=self.ce)


class RescaleToo(Rescale):
    """The same under another name, to be stacked."""

    key: ClassVar[str] = "rescale_too"


def two_classes(*rules: ClientRule) -> list[float]:
    """(theta, v_0, v_1) after one step from (2, 0, 0): z = theta x, logits = v z; x = 1, 3 and y = 0, 1."""
    problem = problem_of([np.array([[1.0], [3.0]])], [np.array([0, 1])], 2)
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1).double()
    return run(federation(problem, with_rules(*rules), net, lr=0.1, rounds=1, w0=np.array([2.0, 0, 0])))[
        -1
    ].w.tolist()


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


# Gradient ------------------------------------------------------------------------------------------------------


class Spring(ClientRule):
    """g += (w - centre); the centre is what the rule is given. Remembers the points it was called at."""

    key: ClassVar[str] = "spring"
    points: Any

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        self.points.append((w.tolist(), ctx.w.tolist()))
        g.add_(w - 1.0)


def test_gradient_correction_sees_the_present_point_and_passes_through_momentum() -> None:
    """theta: g = 2 - 1 = 1, u = 1, 2 -> 1.9; g = .9, u = .5 + .9 = 1.4 -> 1.76. phi: 2 -> 2.8; 1 + 1.8 = 2.8
    -> 2.52."""
    rule = Spring(points=[])
    w = run(two(rule, epochs=2, momentum=0.5))[-1].w
    np.testing.assert_allclose(w, [1.76, 2.52], rtol=0, atol=1e-14)
    np.testing.assert_allclose(rule.points, [([2, 3], [2, 3]), ([1.9, 2.8], [2, 3])], rtol=0, atol=1e-14)


def test_corrections_of_stacked_rules_add() -> None:
    """-10 from Move and (1, 2) from Spring."""
    w = run(two(Spring(points=[]), Move()))[-1].w
    np.testing.assert_allclose(w, [2 + 1 - 0.1, 3 + 1 - 0.2], rtol=0, atol=1e-14)


# Phases --------------------------------------------------------------------------------------------------------


class HeadThenBody(ClientRule):
    """Two epochs on the head at rate .2 without extra losses, then one on the body at the run's rate."""

    key: ClassVar[str] = "head_then_body"
    points: Any

    def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
        return (
            Phase("head", groups=("head",), epochs=2, lr=0.2, losses=False),
            Phase("body", groups=("body", "norm"), steps=2),
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
    assert state.clients[0]["rules"]["head_then_body"] == {"steps": 4, "norm": 5.0}
    np.testing.assert_allclose(state.w, [1.4522, 2.3552], rtol=0, atol=1e-14)


def test_phases_may_depend_on_the_round() -> None:
    class Alternate(ClientRule):
        key: ClassVar[str] = "alternate"

        def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
            return (Phase(groups=("head",)),) if ctx.round % 2 else (Phase(groups=("body",)),)

    states = run(two(Alternate(), Move(), rounds=3))
    np.testing.assert_allclose(
        [s.w.tolist() for s in states], [[2, 3], [3, 3], [3, 4], [4, 4]], rtol=0, atol=1e-12
    )


# Sampling of local data ------------------------------------------------------------------------------------------


class Sampling(ClientRule):
    """Weight of each sample by its class, as received or as given."""

    key: ClassVar[str] = "sampling"
    by_class: tuple[float, ...] = ()

    def setup(self, federation: Federation) -> State:
        return {
            "q": [
                list(np.eye(federation.num_classes)[k % federation.num_classes])
                for k in range(federation.num_clients)
            ]
        }

    def send(self, server: State, client: int, view: RoundView) -> State:
        return {"q": server["q"][client]}

    def sample_weights(self, ctx: ClientContext) -> np.ndarray | None:
        q = np.array(self.by_class or ctx.received["q"])
        local = ctx.label_counts / ctx.n
        weight = np.divide(q, local, out=np.zeros(len(q)), where=local > 0)
        return weight[ctx.data.y.numpy()]


def labelled(
    rule: ClientRule, labels: Sequence[Sequence[int]], **options: Any
) -> list[tuple[int, int, list, list]]:
    """(round, client, inputs, labels) of each batch; inputs number the samples of a client from 0."""
    log = Recorder.new()
    problem = problem_of(
        [np.arange(len(y), dtype=float)[:, None] for y in labels], [np.array(y) for y in labels], 3
    )
    net = Net(nn.Linear(1, 1), nn.Linear(1, 3), 1).double()
    run(
        federation(
            problem, with_rules(rule, log), net, **({"rounds": 1, "lr": 0.0, "batch_size": 7} | options)
        )
    )
    return [(t, k, x[:, 0].tolist(), y.tolist()) for t, k, x, y, _ in log.batches]


def test_sampling_weights() -> None:
    """q = (.25, .75, 0) over 10, 20, 10 samples: class 2 never, class 1 three times as often as class 0.

    40 samples are drawn per epoch in batches of 7 and one of 5; over 50 epochs 2,000 draws, class 0: 500 +- 19.
    """
    labels = [0] * 10 + [1] * 20 + [2] * 10
    batches = labelled(Sampling(by_class=(0.25, 0.75, 0.0)), [labels], epochs=50)
    assert [len(y) for _, _, _, y in batches[:6]] == [7, 7, 7, 7, 7, 5]
    assert len(batches) == 6 * 50
    ys = [y for batch in batches for y in batch[3]]
    xs = [x for batch in batches for x in batch[2]]
    assert len(ys) == 2000
    assert 2 not in ys
    assert abs(ys.count(0) - 500) < 5 * 19
    assert all(labels[int(x)] == y for x, y in zip(xs, ys, strict=True))
    assert len(set(xs[:40])) < 30  # with replacement: 30 different ones are all there are
    assert xs[:40] != xs[40:80]


def test_downlink_and_sampling() -> None:
    """Each client is told another class, and draws that class only."""
    batches = labelled(Sampling(), [[0, 1, 2] * 5, [0, 1, 2] * 4], rounds=2)
    assert {(k, y) for _, k, _, ys in batches for y in ys} == {(0, 0), (1, 1)}
    assert [sum(len(b[2]) for b in batches if b[:2] == (t, k)) for t in (0, 1) for k in (0, 1)] == [
        15,
        12,
        15,
        12,
    ]


# State, payload, server side -----------------------------------------------------------------------------------


class CountedTurns(ClientRule):
    """Counts a client's turns in its state and moves it by that count."""

    key: ClassVar[str] = "counted_turns"

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.sub_((ctx.state.get("turns", 0) + 1) / ctx.lr)

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        turns = ctx.state.get("turns", 0) + 1
        return {
            "turns": turns,
            "nested": {"w": trained.w, "rounds": [*ctx.state.get("nested", {}).get("rounds", []), ctx.round]},
        }, {}


def test_client_state_of_absent_clients_stays() -> None:
    """Chosen: {0, 1}, {1, 2}, {1}, {0}. Client k moves by its own number of turns; the server takes the mean."""
    turns = ((0, 1), (1, 2), (1,), (0,))
    states = run(two(CountedTurns(), problem=ones(1, 1, 1), selection=Turns(turns=turns), rounds=4))
    kept = [{k: entry["rules"]["counted_turns"] for k, entry in s.clients.items()} for s in states]
    assert [{k: e["turns"] for k, e in entry.items()} for entry in kept] == [
        {}, {0: 1, 1: 1}, {0: 1, 1: 2, 2: 1}, {0: 1, 1: 3, 2: 1}, {0: 2, 1: 3, 2: 1},
    ]  # fmt: skip
    assert {k: e["nested"]["rounds"] for k, e in kept[-1].items()} == {0: [0, 3], 1: [0, 1, 2], 2: [1]}
    moves = [float(b.w[0] - a.w[0]) for a, b in itertools.pairwise(states)]
    assert moves == pytest.approx([1, (2 + 1) / 2, 3, 2], abs=1e-12)
    assert same(states[2].clients[0], states[1].clients[0])
    assert float(kept[2][0]["nested"]["w"][0]) == pytest.approx(3, abs=1e-12)  # of round 0, untouched since


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


@pytest.mark.parametrize("late", [False, True])
def test_payload_reducers_and_server_state(late: bool) -> None:
    """Clients 0, 1, 2 of sizes 3, 1, 4; in round 0 clients 0 and 2 (p = 3/7, 4/7), in round 1 clients 0 and 1
    (3/4, 1/4).

    sum: 1 + 3 = 4 and 1 + 2 = 3; mean: (3 + 12)/7 = 15/7 and (3 + 2)/4 = 5/4, also where p is known after
    training only."""

    class LateSize(Weights):
        key: ClassVar[str] = "late_size"
        needs_training: ClassVar[bool] = True

        def weights(self, view: RoundView) -> np.ndarray:
            return view.sizes / view.sizes.sum()

    slots = {"weights": LateSize()} if late else {}
    model = two(Upload(), problem=ones(3, 1, 4), selection=Turns(turns=((0, 2), (0, 1))), rounds=2, **slots)
    start, first, second = run(model)
    assert start.rules["upload"] == {"rounds": 0, "s": start.rules["upload"]["s"], "clients": 3}
    for state, total, mean, kept, seen in (
        (first, 4, 15 / 7, {0: 1, 2: 3}, ((0, 2), [3 / 7, 4 / 7])),
        (second, 3, 5 / 4, {0: 1, 1: 2}, ((0, 1), [3 / 4, 1 / 4])),
    ):
        server = state.rules["upload"]
        np.testing.assert_allclose(server["s"], [total, 10 * total], rtol=0, atol=1e-14)
        np.testing.assert_allclose(server["m"], [mean, 10 * mean], rtol=0, atol=1e-14)
        assert {k: v.tolist() for k, v in server["k"].items()} == {k: [v, 10 * v] for k, v in kept.items()}
        assert server["seen"] == (seen[0], pytest.approx(seen[1]))
        assert server["rounds"] == state.round
    received = {k: entry["rules"]["upload"]["received"] for k, entry in second.clients.items()}
    assert {k: (r["for"], r["round"], r["s"].tolist()) for k, r in received.items()} == {
        0: (0, 1, [4, 40]), 1: (1, 1, [4, 40]), 2: (2, 0, [0, 0]),
    }  # fmt: skip


def test_a_payload_without_a_reducer_is_refused_by_name() -> None:
    class Nameless(ClientRule):
        key: ClassVar[str] = "nameless"

        def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
            return {}, {"prototypes": trained.w}

    with pytest.raises(MethodError, match="'nameless' uploads 'prototypes' but names no reducer"):
        run(two(Nameless()))


def test_states_of_stacked_rules_do_not_collide() -> None:
    """Two rules with the same names in their states and payloads keep them apart."""

    class UploadToo(Upload):
        key: ClassVar[str] = "upload_too"

        def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
            return {"received": 7}, {"s": torch.tensor([5.0])}

    state = run(two(Upload(), UploadToo(), problem=ones(1, 1)))[-1]
    assert state.rules["upload"]["s"].tolist() == [3, 30]
    assert state.rules["upload_too"]["s"].tolist() == [10]
    assert state.clients[0]["rules"]["upload_too"] == {"received": 7}
    assert state.clients[0]["rules"]["upload"]["received"]["for"] == 0


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


def evaluation(xs: Sequence[float], ys: Sequence[int], num_classes: int) -> dict[str, EvaluationSet]:
    x = torch.tensor(xs, dtype=torch.float64)[:, None]
    return {
        "test": EvaluationSet(x, torch.tensor(ys), None, num_classes, 0, lambda images: images, batch_size=2)
    }


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


# Server slots ---------------------------------------------------------------------------------------------------


class Equalised(Aggregator):
    """Mean of p_k D_k / ||D_k||, times the mean norm; its state counts the rounds."""

    key: ClassVar[str] = "equalised"

    def setup(self, federation: Federation) -> State:
        assert federation.layout.size == len(federation.w)
        return {"rounds": 0}

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        norms = updates.norm(dim=1, keepdim=True)
        unit = torch.where(norms > 0, updates / norms.clamp_min(1e-300), 0.0)
        return norms.mean() * (p[:, None].to(updates) * unit).sum(0), {"rounds": state["rounds"] + 1}


class Aim(ClientRule):
    """Client k's update is the given vector."""

    key: ClassVar[str] = "aim"
    updates: tuple[tuple[float, ...], ...]

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.sub_(torch.tensor(self.updates[ctx.client], dtype=g.dtype) / ctx.lr)


def test_direction_sees_all_updates() -> None:
    """D = (3, 4), (0, 1), (0, 0) with p = (1/4, 1/2, 1/4): mean norm 2; 2 * ((.6, .8)/4 + (0, 1)/2) = (.3, 1.4)."""
    rule = Aim(updates=((3, 4), (0, 1), (0, 0)))
    model = two(rule, problem=ones(1, 2, 1), direction=Equalised())
    state = run(model)[-1]
    np.testing.assert_allclose(state.w, START + np.array([0.3, 1.4]), rtol=0, atol=1e-12)
    assert state.direction == {"rounds": 1}
    assert model.method.keeps_updates(0)


class Nova(Weights):
    """p_k tau_eff / a_k with p_k by size and tau_eff = sum p_k a_k."""

    key: ClassVar[str] = "nova"
    needs_training: ClassVar[bool] = True

    def weights(self, view: RoundView) -> np.ndarray:
        p = view.sizes / view.sizes.sum()
        return p * (p @ view.step_norms) / view.step_norms


def test_weights_that_need_training() -> None:
    """Sizes 1 and 3, batches of 1, every step adds 1: D = 1 and 3, tau = a = 1 and 3, p = 1/4, 3/4.

    tau_eff = 1/4 + 9/4 = 2.5; weights (1/4) 2.5 = .625 and (3/4) 2.5/3 = .625; Dbar = .625 + 1.875 = 2.5.
    (FedAvg: the same 2.5; with gradients that differ it is not: client 0 adds 2 per step, so FedAvg 2.75,
    here 1.25 + 1.875.)"""
    model = two(Move(), problem=ones(1, 3), weights=Nova(), batch_size=1)
    state, report = model.step(model.initial_state())
    assert report.weights == pytest.approx((0.625, 0.625))
    np.testing.assert_allclose(state.w, START + 2.5, rtol=0, atol=1e-12)
    uneven = Aim(updates=((2, 2), (1, 1)))
    np.testing.assert_allclose(
        run(two(uneven, problem=ones(1, 3), weights=Nova(), batch_size=1))[-1].w,
        START + 3.125,
        rtol=0,
        atol=1e-12,
    )
    np.testing.assert_allclose(
        run(two(uneven, problem=ones(1, 3), batch_size=1))[-1].w, START + 2.75, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("tau", [1, 2, 7])
def test_step_norm(rho: float, tau: int) -> None:
    """a_k = (tau - rho (1 - rho^tau)/(1 - rho))/(1 - rho): the displacement over eta of tau steps with gradient 1."""

    class Gradient(ClientRule):
        key: ClassVar[str] = "gradient"

        def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
            g.add_(1.0)

    log = Recorder.new()
    run(two(Gradient(), log, epochs=tau, momentum=rho))
    end = log.ends[0][2]
    closed = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    assert end.steps == tau
    assert end.step_norm == pytest.approx(closed, abs=1e-12)
    assert float(end.update[0]) == pytest.approx(-0.1 * closed, abs=1e-12)


# Selection ------------------------------------------------------------------------------------------------------


def test_selection_sets_up() -> None:
    """FedDiverse with known matrices: each client's counts of class x attribute are asked for once, before
    round 0."""

    class Known(Selection):
        key: ClassVar[str] = "known"

        def setup(self, clients: ClientPool) -> State:
            def counts(probe: ClientProbe) -> np.ndarray:
                attributes = probe.data.attributes
                assert attributes is not None
                cells = probe.data.y * probe.num_attributes + attributes
                return np.bincount(cells, minlength=probe.num_classes * probe.num_attributes)

            return {"counts": clients.ask(range(clients.num_clients), counts).tolist()}

        def choose(
            self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
        ) -> Any:
            return [int(np.argmax([row[round] for row in state["counts"]]))], state

    problem = problem_of(
        [np.ones((3, 1)), np.ones((2, 1))],
        [np.array([0, 1, 1]), np.array([0, 0])],
        2,
        np.array([0, 1, 1, 1, 1]),
    )
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1).double()
    model = federation(problem, with_rules(selection=Known()), net)
    state = model.initial_state()
    # (class 0, attribute 0), (0, 1), (1, 0), (1, 1)
    assert state.selection["counts"] == [[1, 0, 0, 2], [0, 2, 0, 0]]
    state, first = model.step(state)
    assert (first.clients, first.cost.scalars_up) == ((0,), 0)
    assert model.setup_cost.scalars_up == 8
    assert model.step(state)[1].clients == (1,)


# Probes that train ------------------------------------------------------------------------------------------------


class Prober(Selection):
    """The given clients, after every client trained a biased model and answered with its values."""

    key: ClassVar[str] = "prober"
    turns: tuple[tuple[int, ...], ...]
    probe: bool
    found: Any

    def choose(
        self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
    ) -> Any:
        if self.probe:
            self.found.append(clients.ask(range(clients.num_clients), self.question))
        return self.turns[round % len(self.turns)], state

    @staticmethod
    def question(probe: ClientProbe) -> np.ndarray:
        before = probe.model()
        x, _ = next(iter(probe.data.batches()))
        features = before.features(x)
        biased = probe.train([Gce(q=0.3), Balanced()], Phase(steps=4), "biased")
        head = probe.train([], Phase(groups=("head",), epochs=1, lr=0.5), "attribute head", w=biased)
        after = probe.model(head)
        assert torch.equal(before.features(x), features)  # an older view is still the global model
        moved = (biased - probe.w).abs().sum(), (head - biased)[: -probe.num_classes * 9].abs().sum()
        return np.array(
            [*map(float, moved), float(after.classify(after.features(x)).sum()), float(biased.sum())]
        )


def probed(probe: bool, *rules: ClientRule, found: list | None = None) -> FederatedRun:
    rng = np.random.default_rng(0)
    problem = problem_of(
        [rng.normal(size=(n, 6)) for n in (9, 5, 12)], [rng.integers(3, size=n) for n in (9, 5, 12)], 3
    )
    selection = Prober(turns=((0, 1), (2,), (0, 2)), probe=probe, found=[] if found is None else found)
    config = {"server": {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}}
    method = with_rules(*rules, config=config, selection=selection)
    return federation(
        problem,
        method,
        seeded(bn_dropout, 3),
        rounds=3,
        lr=0.1,
        batch_size=4,
        momentum=0.9,
        weight_decay=1e-3,
        order=None,
    )


def test_probe_trains_without_a_trace() -> None:
    """Model, BatchNorm statistics, client and server states are the same bits with and without probes."""
    found: list[np.ndarray] = []
    rules: Callable[[], tuple[ClientRule, ...]] = lambda: (Previous(), Upload())  # noqa: E731
    with_probes = run(probed(True, *rules(), found=found))
    for a, b in zip(with_probes, run(probed(False, *rules())), strict=True):
        assert same(a, b)
    answers = np.stack(found)  # [rounds, clients, 4]
    assert answers.shape == (3, 3, 4)
    assert (answers[..., 0] > 1e-3).all()  # the biased model moved
    assert (answers[..., 1] == 0).all()  # the frozen body did not
    assert len(np.unique(answers[..., 3])) == 9
    again: list[np.ndarray] = []
    run(probed(True, *rules(), found=again))
    assert np.array_equal(answers, np.stack(again))


def test_probe_of_one_step_by_hand() -> None:
    """z = x, logits (0, x), class 1 at x = 0: p = 1/2, GCE derivative by p is -p^(q-1), by x it is -p^q (1 - p).

    So one step at rate .1 changes (theta, v_0, v_1) = (1, 0, 1) by theta: x-derivative times 0, v: z = 0 --
    nothing; at x = 1, p = sigmoid(1), d = -p^.3 (1 - p) for logit 1 and +p^.3 (1 - p) for logit 0."""
    results = {}

    class Ask(Selection):
        key: ClassVar[str] = "ask"

        def choose(
            self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
        ) -> Any:
            def question(probe: ClientProbe) -> np.ndarray:
                results[probe.client] = probe.train([Gce(q=0.3)], Phase(steps=1), "gce").tolist()
                return np.zeros(1)

            clients.ask([0, 1], question)
            return [], state

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


class Binary(Selection):
    """Asks client 0, in round 0, to train a two-way head on whether the label is 2, from values (1, 2, ...)."""

    key: ClassVar[str] = "binary"
    found: Any

    def heads(self, feature_dim: int, num_classes: int, generators: Generators) -> dict[str, nn.Module]:
        head = nn.Linear(feature_dim, 2, bias=False).double()
        head.weight.data = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
        return {"binary": head}

    def choose(
        self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
    ) -> Any:
        def question(probe: ClientProbe) -> np.ndarray:
            head, labels = Head("binary", probe.heads["binary"]), (probe.data.y == 2).long()
            phase = Phase(groups=("head",), steps=1, lr=0.1)
            trained = probe.train([], phase, "binary", head=head, labels=labels)
            model = probe.model(trained, Head("binary", trained[probe.body_size :]))
            x, y = next(iter(probe.data.batches()))
            self.found.append((trained.tolist(), model.classify(model.features(x)).tolist(), y.tolist()))
            return np.zeros(1)

        if round == 0:
            clients.ask([0], question)
        return [0], state


def test_probe_trains_a_head_of_the_selection_on_other_labels() -> None:
    """theta = 2 frozen, z = 2, logits (2, 4), label 1: p_0 = sigmoid(-2), the head's gradient (2 p_0, -2 p_0)."""
    problem = problem_of([np.ones((1, 1))], [np.array([2])], 3)
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 3, bias=False), 1).double()
    found: list[Any] = []
    method = with_rules(selection=Binary(found=found))
    model = federation(problem, method, net, w0=np.array([2.0, 0, 0, 0]), lr=0.05)
    state, report = model.step(model.initial_state())
    p = 1 / (1 + np.exp(2))
    head = [1 - 0.2 * p, 2 + 0.2 * p]
    trained, logits, labels = found[0]
    assert trained == pytest.approx([2, *head], abs=1e-14)
    assert logits[0] == pytest.approx([2 * head[0], 2 * head[1]], abs=1e-14)
    assert labels == [2]  # the client's own labels are as before
    assert report.cost == Cost(scalars_up=1, forward=1, trained=1)
    # The round itself trains the model's own three-way head: uniform p = 1/3, z = 2.
    third = 0.05 * 2 / 3
    assert state.w[1:].tolist() == pytest.approx([-third, -third, 2 * third], abs=1e-14)


class Later(Selection):
    """Everybody, and plain FedAvg in round 0; then client 1."""

    key: ClassVar[str] = "later"

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

    key: ClassVar[str] = "counter"
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
    """In a round of pre-training the method's rules rest: no correction, no momentum, no message; states stay."""
    method = with_rules(
        Counter(),
        selection=Later(),
        config={"server": {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}},
    )
    model = federation(ones(1, 3), method, two_parameters(), lr=0.1, w0=START, rounds=3)
    states, reports = [model.initial_state()], []
    for _ in range(3):
        state, report = model.step(states[-1])
        states.append(state)
        reports.append(report)
    assert states[1].w.tolist() == START.tolist()
    assert states[1].optimizer["v"].tolist() == [0, 0]
    assert states[1].rules["counter"] == {"received": 0}
    assert states[1].clients == {}
    # Then D = (-0.1, 0) each round: v = -0.1, and -0.15 with momentum.
    assert states[2].w.tolist() == pytest.approx([1.9, 3], abs=1e-15)
    assert states[3].w.tolist() == pytest.approx([1.75, 3], abs=1e-15)
    assert states[3].rules["counter"] == {"received": 2}
    assert states[3].clients == {1: {"rules": {"counter": {"rounds": 2}}}}
    assert [r.cost for r in reports] == [Cost(), Cost(3, 2), Cost(3, 2)]


def test_records_of_participation_and_cost() -> None:
    """Who took part is recorded where not everybody did; costs where there were any; rounds count from 1."""
    model = federation(ones(1, 3), with_rules(Counter(), selection=Later()), two_parameters(), w0=START)
    state, first = model.step(model.initial_state())
    assert first.records(2) == [Record(1, "train", "all", "loss", 0.0)]
    second = model.step(state)[1]
    assert second.records(2) == [
        Record(2, "train", "all", "loss", 0.0),
        Record(2, "cost", "all", "scalars_up", 3.0),
        Record(2, "cost", "all", "scalars_down", 2.0),
        Record(2, "participation", "client=1", "weight", 1.0),
    ]
    assert model.evaluate(state) == [Record(1, "selection", "all", "rounds", 1.0)]
