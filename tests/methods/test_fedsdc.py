"""FedSDC and FedSDC+: the authors' votes and widths (golden), rounds beside NumPy, ranking of heads by hand."""

from __future__ import annotations

import random  # noqa: TID251 -- the authors' generator, replayed from their seeds
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import Turns, federation, mlp, problem_of, run, same, with_rules
from torch import Tensor, nn

from benchmark.config.compose import compose, load_group, resolve
from benchmark.engine.evaluation import EvaluationSet
from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import FederationState
from benchmark.errors import ConfigError
from benchmark.models.networks import Net
from methods.core.build import build
from methods.core.contexts import ClientContext, RoundView, State, Trained
from methods.core.errors import MethodError
from methods.core.rules import ClientRule, Method
from methods.fedsdc import best_heads, head_scores, majority, make_head, rho_ladder

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = range(5)


def fedsdc(
    name: str = "fedsdc", prediction: Mapping[str, Any] | None = None, **client: Any
) -> dict[str, Any]:
    """conf/method/<name>.yaml with these values of the client rule and the prediction on top."""
    config = load_group("method", name)
    config["client"]["fedsdc"] |= client
    config["prediction"] |= prediction or {}
    return config


# Golden: votes and widths ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def votes() -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / "fedsdc_vote.npz"))


@pytest.mark.parametrize("case", CASES)
def test_vote_of_the_authors(votes: dict[str, np.ndarray], case: int) -> None:
    logits = torch.from_numpy(votes[f"c{case}_logits"])
    np.testing.assert_array_equal(majority(logits).argmax(1), votes[f"c{case}_pred_code"])


@pytest.mark.parametrize("case", CASES)
def test_sparse_vote_of_the_authors(votes: dict[str, np.ndarray], case: int) -> None:
    """Heads ranked by balanced accuracy, the best ceil(.3 H) vote; also where labels come in several batches."""
    logits, labels = (torch.from_numpy(votes[f"c{case}_{name}"]) for name in ("logits", "labels"))
    scores = head_scores(zip(logits.split(5, 1), labels.split(5), strict=True), "balanced_accuracy")
    np.testing.assert_allclose(scores, votes[f"c{case}_head_bacc_code"], rtol=0, atol=1e-12)
    best = best_heads(scores, float(votes[f"c{case}_sparse_gamma"]))
    assert best == votes[f"c{case}_sparse_heads_code"].tolist()
    answer = majority(logits[best]).argmax(1)
    np.testing.assert_array_equal(answer, votes[f"c{case}_sparse_pred_code"])
    micro_f1 = (answer == labels).double().mean()
    assert float(micro_f1) == pytest.approx(float(votes[f"c{case}_sparse_micro_f1_code"]), abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_micro_f1_of_each_head(votes: dict[str, np.ndarray], case: int) -> None:
    """2 TP / (2 TP + FP + FN) over all classes, counted one sample at a time."""
    logits, labels = votes[f"c{case}_logits"], votes[f"c{case}_labels"]
    expected = []
    for head in logits:
        tp = fp = fn = 0
        for row, label in zip(head, labels, strict=True):
            for c in range(len(row)):
                says, is_it = int(np.argmax(row)) == c, label == c
                tp, fp, fn = tp + (says and is_it), fp + (says and not is_it), fn + (is_it and not says)
        expected.append(2 * tp / (2 * tp + fp + fn))
    scores = head_scores([(torch.from_numpy(logits), torch.from_numpy(labels))], "micro_f1")
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)


def test_ties_by_hand() -> None:
    """Three heads, one sample each time: [H = 3, B = 4, C = 3]."""
    logits = torch.tensor(
        [
            # 2:1 for class 1, though class 0 has by far the largest sum;
            # 1:1:1, sums (6, 5, 7): class 2;
            # equal logits inside the heads: each votes for its lowest class, 1, 1 and 0, so class 1;
            # 1:1:1, sums (5, 5, 5): the lowest class.
            [[0, 1, 0], [4, 1, 2], [0, 3, 3], [3, 1, 1]],
            [[0, 1, 0], [1, 3, 1], [0, 2, 2], [1, 3, 1]],
            [[9, 0, 0], [1, 1, 4], [1, 1, 0], [1, 1, 3]],
        ],
        dtype=torch.float64,
    )
    assert majority(logits).argmax(1).tolist() == [1, 2, 1, 0]
    # A 1:1 tie of classes 0 and 1 whose sums are (5, 5, 8): class 2 wins without a vote.
    two = torch.tensor([[[5.0, 0.0, 4.0]], [[0.0, 5.0, 4.0]]])
    assert majority(two).argmax(1).tolist() == [2]


def test_best_heads_by_hand() -> None:
    """Stable and descending; ceil(gamma H), also where the product is a hair above a whole number."""
    scores = [0.5, 0.75, 0.5, 0.75, 1.0]
    assert best_heads(scores, 0.3) == [4, 1]  # ceil(1.5)
    assert best_heads(scores, 0.7) == [4, 1, 3, 0]  # ceil(3.5)
    assert best_heads(scores, 1.0) == [4, 1, 3, 0, 2]
    assert best_heads(scores, 0.01) == [4]
    halves = [k % 2 for k in range(100)]  # long enough for a sort that is not stable to show
    assert best_heads(halves, 0.5) == list(range(1, 100, 2))
    assert len(best_heads(range(100), 0.07)) == 7  # 0.07 * 100 = 7.000000000000001


@pytest.mark.parametrize("seed", [0, 1, 42])
@pytest.mark.parametrize("case", ["c10of15", "c15noshuffle", "c5of5", "c10of10"])
def test_widths_of_the_authors(case: str, seed: int) -> None:
    """rho and widths from the draws of Python's own generator, which the authors use; the heads have these widths."""
    g = dict(np.load(GOLDEN / "fedsdc_rho_ladder.npz"))
    count = int(g[f"{case}_H"])
    draws = random.Random(seed)
    uniform = [draws.random() for _ in range(count)]
    rho = rho_ladder(float(g["rho_start"]), float(g["rho_end"]), uniform)
    np.testing.assert_allclose(rho, g[f"{case}_s{seed}_rho_code"], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(np.floor(rho * 2048), g[f"{case}_s{seed}_width2048_code"])

    class Replayed:
        def random(self, size: int) -> np.ndarray:
            assert size == count
            return np.array(uniform)

    rule = build(fedsdc(H=count)).client[0]
    heads = rule.heads(
        512,
        3,
        lambda purpose, *ids: np.random.default_rng(*ids) if ids else Replayed(),  # type: ignore[return-value]
    )
    widths = [head[0].out_features for head in heads.values()]  # type: ignore[index]
    np.testing.assert_array_equal(widths, g[f"{case}_s{seed}_width512_code"])


# Heads -----------------------------------------------------------------------------------------------------------


def test_a_head_is_two_layers_without_a_nonlinearity() -> None:
    head = make_head(64, 5, 30, 0.2, np.random.default_rng(0))
    assert [type(layer) for layer in head] == [nn.Linear, nn.Dropout, nn.Linear]  # type: ignore[attr-defined]
    assert [tuple(p.shape) for p in head.parameters()] == [(30, 64), (30,), (5, 30), (5,)]
    assert head[1].p == 0.2  # type: ignore[index]
    first, last = head[0], head[2]  # type: ignore[index]
    assert not first.bias.any()
    assert not last.bias.any()
    z = torch.randn(7, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(head.eval()(z), z @ (last.weight @ first.weight).T)


def test_first_values_are_xavier_normal() -> None:
    """Standard deviation sqrt(2 / (h + r)): over 400 x 160 numbers known to .3 %; normal, so 4.55 % beyond two."""
    head = make_head(400, 240, 160, 0.2, np.random.default_rng(3))
    for layer, sd in ((head[0], (2 / 560) ** 0.5), (head[2], (2 / 400) ** 0.5)):  # type: ignore[index]
        weight = layer.weight.detach()
        assert float(weight.std()) == pytest.approx(sd, rel=0.015)
        assert float((weight.abs() > 2 * sd).double().mean()) == pytest.approx(0.0455, abs=0.005)


@pytest.mark.parametrize("name", ["fedsdc_m1", "fedsdc_m3"])
def test_without_diversity_a_head_is_one_layer(name: str) -> None:
    rule = build(fedsdc(name, H=4)).client[0]
    heads = rule.heads(8, 3, lambda purpose, *ids: np.random.default_rng(len(ids) and ids[0]))
    assert [type(h) for h in heads.values()] == [nn.Linear] * 4
    assert {tuple(h.weight.shape) for h in heads.values()} == {(3, 8)}
    weights = [h.weight for h in heads.values()]
    assert not torch.equal(weights[0], weights[1])


# Slots -----------------------------------------------------------------------------------------------------------


def dealt(rule: ClientRule, server: State, clients: Sequence[int], round: int) -> list[int]:
    """The slot that each client is sent in a round."""
    zeros = np.zeros(len(clients))
    view = RoundView(round, 0.1, 9, tuple(clients), *[zeros] * 4, zeros)
    return [int(rule.send(server, k, view)["head"].key.removeprefix("fedsdc/")) for k in clients]


def server_of(slots: int, seed: int = 7) -> State:
    heads = {f"fedsdc/{s}": torch.full((2,), float(s)) for s in range(slots)}
    return {"heads": heads, "seed": seed, "feature_dim": 1, "num_classes": 1}


def test_shuffle_deals_every_slot_to_every_client_alike() -> None:
    """200 rounds, 5 clients: a permutation each time, and each of the 25 pairs 40 times, give or take 5.7."""
    rule = build(fedsdc(H=5)).client[0]
    rounds = [dealt(rule, server_of(5), range(5), t) for t in range(200)]
    assert all(sorted(slots) == list(range(5)) for slots in rounds)
    pairs = np.zeros((5, 5))
    for slots in rounds:
        pairs[np.arange(5), slots] += 1
    assert np.abs(pairs - 40).max() < 4 * 5.7
    assert len({tuple(slots) for slots in rounds}) > 80  # of 120 permutations
    assert dealt(rule, server_of(5), range(5), 3) == rounds[3]
    assert [dealt(rule, server_of(5, seed=8), range(5), t) for t in range(9)] != rounds[:9]


def test_some_of_the_slots_go_to_some_of_the_clients() -> None:
    """2 clients, 5 slots: never the same one twice in a round; all 20 ordered pairs come up."""
    rule = build(fedsdc(H=5)).client[0]
    rounds = {tuple(dealt(rule, server_of(5), (1, 4), t)) for t in range(400)}
    assert rounds == {(a, b) for a in range(5) for b in range(5) if a != b}


def test_without_shuffle_the_slot_is_the_client() -> None:
    rule = build(fedsdc("fedsdc_m2", H=5)).client[0]
    assert [dealt(rule, server_of(5), (0, 2, 4), t) for t in range(3)] == [[0, 2, 4]] * 3


# Whole rounds beside NumPy ---------------------------------------------------------------------------------------


class Watch(ClientRule):
    """Writes down which head each client trains and what it starts from."""

    key: ClassVar[str] = "watch"
    seen: Any

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        shapes = [e.shape for e in ctx.layout.entries if e.group == "head"]
        assert trained.head is not None
        self.seen.append((ctx.round, ctx.client, shapes, ctx.w.clone(), trained.head.clone()))
        return {}, {}


BODY = 56
"""W1 [8, 6] and b1 [8]: the body of the golden model."""


def layers(head: np.ndarray, width: int | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """(weight, bias) of a head's layers, out of its vector: 8 -> width -> 3, or 8 -> 3."""
    found, start = [], 0
    for rows, columns in [(3, 8)] if width is None else [(width, 8), (3, width)]:
        stop = start + rows * columns
        found.append((head[start:stop].reshape(rows, columns), head[stop : stop + rows]))
        start = stop + rows
    assert start == len(head)
    return found


def step(body: np.ndarray, head: np.ndarray, width: int | None, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Gradient of the mean cross-entropy by (body, head), written out."""
    w1, b1 = body[:48].reshape(8, 6), body[48:]
    z = np.tanh(x @ w1.T + b1)
    parts = layers(head, width)
    inputs = [z]
    for weight, bias in parts:
        inputs.append(inputs[-1] @ weight.T + bias)
    p = np.exp(inputs[-1])
    d = (p / p.sum(1, keepdims=True) - np.eye(3)[y]) / len(y)
    back: list[np.ndarray] = []
    for (weight, _), value in zip(reversed(parts), reversed(inputs[:-1]), strict=True):
        back = [(d.T @ value).ravel(), d.sum(0), *back]
        d = d @ weight
    d = d * (1 - z**2)
    return np.concatenate([(d.T @ x).ravel(), d.sum(0), *back])


def golden_problem() -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    g = dict(np.load(GOLDEN / "baselines" / "fedavg.npz"))
    return [g[f"uneq_X{k}"] for k in range(4)], [g[f"uneq_y{k}"] for k in range(4)], g["w0"]


def watched(
    config: Mapping[str, Any], turns: Sequence[Sequence[int]] = ((0, 1, 2, 3),) * 3, **slots: Any
) -> tuple[FederatedRun, list]:
    """Rounds of the golden problem, one epoch of batches of 5 at rate .2; what ``Watch`` saw."""
    xs, ys, w0 = golden_problem()
    seen: list = []
    method = with_rules(
        Watch(seen=seen), config=config, selection=Turns(turns=tuple(map(tuple, turns))), **slots
    )
    options = {"lr": 0.2, "batch_size": 5, "rounds": len(turns), "w0": w0}
    return federation(problem_of(xs, ys, 3), method, mlp(), **options), seen


def held_slot(state: FederationState, start: np.ndarray) -> str:
    """The slot whose head stands behind the body of ``start``."""
    found = [
        key for key, head in state.rules["fedsdc"]["heads"].items()
        if np.array_equal(head.double().numpy(), start[BODY:])
    ]  # fmt: skip
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", ["fedsdc", "fedsdc_m1", "fedsdc_m2", "fedsdc_m3"])
@pytest.mark.parametrize(
    "turns", [((0, 1, 2, 3),) * 3, ((1, 3), (0, 1, 2), (), (2,))], ids=["everybody", "some"]
)
def test_rounds_beside_numpy(name: str, turns: Sequence[Sequence[int]]) -> None:
    """Eqs. 4-8: v <- .5 v + sum n_k/n_S (phi - phi_k), phi <- phi - v, heads back to their slots as they are.

    Which slot a client holds is read off the values that it starts from, not asked of the rule.
    """
    model, seen = watched(fedsdc(name, dropout=0.0), turns)
    states = run(model)
    xs, ys, w0 = golden_problem()
    heads = {key: v.double().numpy() for key, v in states[0].rules["fedsdc"]["heads"].items()}
    widths = {key: None if len(v) == 27 else (len(v) - 3) // 12 for key, v in heads.items()}
    for s, width in enumerate(widths.values()):
        if name in ("fedsdc", "fedsdc_m2"):  # rho in part s of four parts of [.4, 1], h = 8
            assert width is not None
            assert int(8 * (0.4 + 0.15 * s)) <= width <= int(8 * (0.55 + 0.15 * s))
        else:
            assert width is None
    phi, v = w0[:BODY], np.zeros(BODY)
    for t, ids in enumerate(turns):
        total, delta, held = sum(len(ys[k]) for k in ids), np.zeros(BODY), {}
        for k in ids:
            shapes, start = next((s, w.numpy()) for r, c, s, w, _ in seen if (r, c) == (t, k))
            np.testing.assert_allclose(start[:BODY], phi, rtol=0, atol=1e-12)
            slot = held_slot(states[t], start)
            width = widths[slot]
            assert shapes == [a.shape for pair in layers(heads[slot], width) for a in pair]
            w = np.concatenate([phi, heads[slot]])
            for i in range(0, len(ys[k]), 5):
                w = w - 0.2 * step(w[:BODY], w[BODY:], width, xs[k][i : i + 5], ys[k][i : i + 5])
            delta += len(ys[k]) / total * (phi - w[:BODY])
            held[k] = (slot, w[BODY:])
        slots = [slot for slot, _ in held.values()]
        assert len(set(slots)) == len(slots)
        if name in ("fedsdc_m1", "fedsdc_m2"):
            assert slots == [f"fedsdc/{k}" for k in ids]
        heads |= dict(held.values())
        if ids:
            v = 0.5 * v + delta
            phi = phi - v
        state = states[t + 1]
        np.testing.assert_allclose(state.w[:BODY], phi, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.optimizer["v"][:BODY], -v, rtol=0, atol=1e-12)
        for key, head in state.rules["fedsdc"]["heads"].items():
            np.testing.assert_allclose(head, heads[key], rtol=0, atol=1e-12)
        # The model's own classifier rests, and the vector rules see nothing at its place.
        np.testing.assert_array_equal(state.w[BODY:], w0[BODY:])
        assert not state.optimizer["v"][BODY:].any()


def test_one_client_with_one_layer_is_plain_descent() -> None:
    """K = 1, one Linear head, beta 0: body and head are those of FedAvg from the same values."""
    xs, ys, w0 = golden_problem()
    problem = problem_of(xs[:1], ys[:1], 3)
    config = fedsdc("fedsdc_m3")
    config["server"]["optimizer"] |= {"beta": 0.0}
    ours = run(federation(problem, config, mlp(), w0=w0, batch_size=3, momentum=0.9))
    head = ours[0].rules["fedsdc"]["heads"]["fedsdc/0"].double().numpy()
    start = np.concatenate([w0[:BODY], head])
    plain = run(federation(problem, {}, mlp(), w0=start, batch_size=3, momentum=0.9))
    assert torch.equal(ours[1].w[:BODY], plain[1].w[:BODY])
    for a, b in zip(ours[1:], plain[1:], strict=True):
        np.testing.assert_allclose(a.w[:BODY], b.w[:BODY], rtol=0, atol=1e-13)
        np.testing.assert_allclose(a.rules["fedsdc"]["heads"]["fedsdc/0"], b.w[BODY:], rtol=0, atol=1e-13)


def test_dropout_is_on_in_training_only() -> None:
    """With the dropout of the YAML the same round ends elsewhere than without; evaluation does not draw."""
    ends = []
    for dropout in (0.0, 0.2, 0.2):
        model, _ = watched(fedsdc(dropout=dropout), ((0, 1, 2, 3),))
        ends.append(run(model)[-1])
    assert not torch.equal(ends[0].w, ends[1].w)
    assert same(ends[1], ends[2])


# Reference code --------------------------------------------------------------------------------------------------


def test_cost_of_the_paper_and_of_the_code() -> None:
    """One head up and one down per client; the code sends all four heads to each of the four."""
    costs = {}
    for variant in ("paper", "reference"):
        model, _ = watched(fedsdc(variant=variant), ((0, 1, 2, 3),))
        state = model.initial_state()
        total = sum(len(v) for v in state.rules["fedsdc"]["heads"].values())
        costs[variant] = model.step(state)[1].cost
        assert costs[variant].scalars_up == total
    assert costs["paper"].scalars_down == total
    assert costs["reference"].scalars_down == 4 * total


def test_clients_draw_their_first_head_themselves() -> None:
    """Code: in round 0 a client starts from a Xavier head of its slot's shape, not the server's; later from the slot's.

    The switch alone does the same as the variant.
    """
    starts = {}
    for key, switches in (
        ("paper", {}), ("reference", {"variant": "reference"}), ("switch", {"first_heads": "client"}),
        ("back", {"variant": "reference", "first_heads": "server", "down": "one"}),
    ):  # fmt: skip
        model, seen = watched(fedsdc(dropout=0.0, **switches))
        states = run(model)
        starts[key] = {(r, c): w[BODY:] for r, c, _, w, _ in seen}
        for (r, k), w in starts[key].items():
            of_server = any(torch.equal(h.double(), w) for h in states[r].rules["fedsdc"]["heads"].values())
            assert of_server == (r > 0 or key in ("paper", "back")), (key, r, k)
    for place, w in starts["reference"].items():
        assert torch.equal(w, starts["switch"][place])
        assert torch.equal(starts["paper"][place], starts["back"][place])
        if place[0] == 0:
            width = (len(w) - 3) // 12
            (weight, bias), (_, last) = layers(w.numpy(), width)
            assert not bias.any()
            assert not last.any()
            assert 0.5 < weight.std() / (2 / (8 + width)) ** 0.5 < 1.5


# Prediction ------------------------------------------------------------------------------------------------------


class Counted(nn.Linear):
    """Counts its passes."""

    passes = 0

    def forward(self, x: Tensor) -> Tensor:
        """As nn.Linear."""
        self.passes += 1
        return super().forward(x)


def labelled(xs: Sequence[float], ys: Sequence[int], batch: int = 3) -> EvaluationSet:
    x = torch.tensor(xs, dtype=torch.float64)[:, None]
    return EvaluationSet(x, torch.tensor(ys), None, 3, 0, lambda images: images, batch_size=batch)


ROWS = ((0.0, 0.0, 1.0), (1.0, 0.0, -1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
"""Heads v [3] of logits v x. For x > 0 they say 2, 0, 1, 0, 2; for x < 0 they say 0, 2, 0, 1, 0."""


def voting(
    prediction: Mapping[str, Any], validation: EvaluationSet | None, train: Sequence[int] = (0,)
) -> tuple[dict[str, float], Counted]:
    """Accuracy on the test set x = 1, 1, 1, -1, y = 0, 0, 2, 0 (per class too), of heads ROWS on the body z = x."""
    problem = problem_of(
        [np.ones((1, 1))] * 4 + [np.ones((len(train), 1))],
        [np.array([train[0]])] * 4 + [np.array(train)],
        3,
    )
    sets = {"test": labelled([1, 1, 1, -1], [0, 0, 2, 0])}
    if validation is not None:
        sets["validation"] = validation
    body = Counted(1, 1, bias=False)
    net = Net(body, nn.Linear(1, 3, bias=False), 1).double()
    config = fedsdc("fedsdc_plus", prediction, diversity=False)
    model = federation(replace(problem, evaluation_sets=sets), config, net, w0=np.array([1.0, 0, 0, 0]))
    state = model.initial_state()
    # A head is weights and biases: v and 0.
    heads = {f"fedsdc/{s}": torch.tensor([*v, 0, 0, 0], dtype=torch.float64) for s, v in enumerate(ROWS)}
    rules = {"fedsdc": state.rules["fedsdc"] | {"heads": heads}}
    body.passes = 0
    records = model.evaluate(replace(state, rules=rules))
    assert not any(r.metric == "loss" for r in records)
    return {r.group: r.value for r in records if (r.split, r.metric) == ("test", "accuracy")}, body


def test_all_heads_vote_and_the_body_runs_once_per_batch() -> None:
    """x = 1: votes 2, 0, 1, 0, 2: classes 0 and 2 tie, sums (2, 1, 1): class 0, right, right, wrong. x = -1: votes
    0, 2, 0, 1, 0: class 0, right. Four samples in batches of 3 are two passes through the body, whatever H is."""
    found, body = voting({"gamma": 1.0}, None)
    assert found == {"all": 0.75, "class=0": 1.0, "class=2": 0.0}
    assert body.passes == 2


@pytest.mark.parametrize(
    ("xs", "ys", "gamma", "expected"),
    [
        # Heads 1 and 3 are right on both: class 0 for x = 1; x = -1: votes 2, 1, sums (-2, 0, 1): class 2, wrong.
        ([1, 2], [0, 0], 0.3, {"all": 0.5, "class=0": 2 / 3, "class=2": 0.0}),
        # Heads 0 and 4, class 2 for x = 1 and class 0 for x = -1: wrong, wrong, right, right.
        ([1, 2], [2, 2], 0.3, {"all": 0.5, "class=0": 1 / 3, "class=2": 1.0}),
        # Only head 2 is right, of the others the first comes in: (2, 0): x = 1: votes 1, 2, sums (0, 1, 1): class 1,
        # all three wrong; x = -1: class 0, right.
        ([1, 2], [1, 1], 0.3, {"all": 0.25, "class=0": 1 / 3, "class=2": 0.0}),
        # The best one alone: head 2, class 1 or 0.
        ([1, 2], [1, 1], 0.1, {"all": 0.25, "class=0": 1 / 3, "class=2": 0.0}),
        # Three of five: heads 0, 4, 1: class 2, and for x = -1 class 0.
        ([1, 2], [2, 2], 0.5, {"all": 0.5, "class=0": 1 / 3, "class=2": 1.0}),
    ],
)
def test_heads_are_ranked_on_the_validation_split(
    xs: list[float], ys: list[int], gamma: float, expected: dict[str, float]
) -> None:
    """The test set, where heads 1 and 3 are right most often at x = 1, has no say; the labels of validation decide."""
    assert voting({"gamma": gamma}, labelled(xs, ys))[0] == pytest.approx(expected)


def test_micro_f1_and_balanced_accuracy_choose_differently() -> None:
    """Validation: x = 1 six times with label 0 and four times with label 2, x = -1 once with label 0.

    Right answers of the heads: 4 + 1, 6, 0 + 1, 6, 4 + 1 of 11, so micro-F1 ranks 1 and 3 first. Recalls of class 0
    (of 7) and class 2 (of 4): (1, 4), (6, 0), (1, 0), (6, 0), (1, 4), so balanced accuracy ranks 0 and 4 first."""
    validation = labelled([1.0] * 10 + [-1.0], [0] * 6 + [2] * 4 + [0])
    micro, balanced = (
        voting({"gamma": 0.3, "metric": metric}, validation)[0]
        for metric in ("micro_f1", "balanced_accuracy")
    )
    assert micro == pytest.approx({"all": 0.5, "class=0": 2 / 3, "class=2": 0.0})
    assert balanced == pytest.approx({"all": 0.5, "class=0": 1 / 3, "class=2": 1.0})


def test_the_code_ranks_on_all_clients_training_data() -> None:
    """All training data say class 2 at x = 1, validation class 0: heads 0 and 4 with the reference variant or the
    switch alone, heads 1 and 3 otherwise."""
    validation = labelled([1, 2], [0, 0])
    by_train = {"all": 0.5, "class=0": 1 / 3, "class=2": 1.0}
    by_validation = {"all": 0.5, "class=0": 2 / 3, "class=2": 0.0}
    for prediction, expected in (
        ({"variant": "reference"}, by_train),
        ({"ranking": "train_reference"}, by_train),
        ({"variant": "reference", "ranking": "validation"}, by_validation),
        ({}, by_validation),
    ):
        assert voting(prediction, validation, train=(2,))[0] == pytest.approx(expected), prediction


# Refusals --------------------------------------------------------------------------------------------------------


def test_numbers_of_heads_and_clients() -> None:
    def method(**client: Any) -> Method:
        return build(fedsdc(**client))

    assert [rule.H for rule in method().for_clients(15, 10).client] == [15]  # type: ignore[attr-defined]
    assert [rule.H for rule in method(H=10).for_clients(15, 10).client] == [10]  # type: ignore[attr-defined]
    assert [rule.H for rule in method(H=20).for_clients(15, 15).client] == [20]  # type: ignore[attr-defined]
    with pytest.raises(MethodError, match=r"fedsdc\.H: got 9; .*10"):
        method(H=9).for_clients(15, 10)
    with pytest.raises(MethodError, match=r"fedsdc\.H: got 10; .*without shuffle"):
        method(H=10, shuffle=False).for_clients(15, 10)
    with pytest.raises(MethodError, match=r"4 clients take part in round 0, but there are 3 heads"):
        # A selection that takes more clients than were announced.
        xs, ys, w0 = golden_problem()
        chosen = with_rules(config=fedsdc(H=3), selection=Turns(turns=((0, 1, 2, 3),)))
        run(federation(problem_of(xs, ys, 3), chosen, mlp(), w0=w0, clients_per_round=3, rounds=1))


def test_ranking_needs_a_validation_split_before_anything_trains() -> None:
    def needs(name: str, validation: float) -> None:
        resolve(compose("quick", {"method": name, "evaluation": {"validation": validation}})).build_method()

    with pytest.raises(ConfigError, match=r"evaluation\.validation: .*'vote'"):
        needs("fedsdc_plus", 0.0)
    needs("fedsdc_plus", 0.1)
    needs("fedsdc", 0.0)


def test_an_empty_validation_split_is_noticed() -> None:
    """Where it turns out empty in spite of all: an error, not a ranking by chance."""
    with pytest.raises(MethodError, match=r"set evaluation\.validation"):
        voting({}, None)
