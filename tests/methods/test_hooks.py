"""Losses, gradients, phases, sampling, state and payloads, by throw-away rules with effects by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import (
    Recorder,
    Turns,
    federation,
    ones,
    problem_of,
    run,
    same,
    with_rules,
)
from hook_rules import Move, Upload, line, two
from torch import Tensor, nn

from benchmark.models.networks import Net
from methods.core.contexts import (
    Batch,
    ClientContext,
    Federation,
    Loss,
    Phase,
    RoundView,
    State,
    Trained,
)
from methods.core.errors import MethodError
from methods.core.rules import (
    ClientRule,
    Weights,
)

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
