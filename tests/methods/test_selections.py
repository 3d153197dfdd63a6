"""POW-D, FedPNS, HCSFed, round robin as in the code: stored numbers, arithmetic by hand, edge rules, resume."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import (
    Quadratic,
    Recorder,
    bn_dropout,
    classes,
    federation,
    mlp,
    one_parameter,
    ones,
    problem_of,
    run,
    same,
    seeded,
    with_rules,
)
from torch import Tensor

from benchmark.engine import aggregation as engine
from benchmark.engine import randomness
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost
from benchmark.engine.state import FederationState
from benchmark.engine.views import ProbedClients
from methods.core import vectors
from methods.core.build import build
from methods.core.errors import MethodError
from methods.core.vectors import gram
from methods.selection import hcsfed
from methods.selection.fedpns import FedPNS, agreement, flag
from methods.selection.hcsfed import HCSFed, allocate, allocate_at_random, cluster, compressed, spread
from methods.selection.powd import PowD
from methods.selection.round_robin import RoundRobin
from methods.shared.draw import without_replacement

GOLDEN = Path(__file__).parents[1] / "golden" / "baselines"
POWD, FEDPNS, HCSFED = (dict(np.load(GOLDEN / f"{name}.npz")) for name in ("powd", "fedpns", "hcsfed"))
PNS = {"name": "fedpns", "alpha": 2.0, "beta": 0.7}
HCS = {"name": "hcsfed", "r": 0.1, "Hc": 2}
MOMENTUM = {"optimizer": {"name": "momentum", "beta": 0.95, "lr": 0.1}}


class Fake:
    """Clients of given sizes whose answers are known; writes down who was asked."""

    def __init__(self, sizes: Sequence[float], answers: Sequence[float] = ()) -> None:
        self.num_clients, self.sizes = len(sizes), np.array(sizes, dtype=np.float64)
        self.group_counts = None
        self.answers, self.asked = np.array(answers), []  # type: ignore[var-annotated]

    def ask(self, ids: Sequence[int], question: Callable) -> np.ndarray:
        self.asked.append(tuple(ids))
        return self.answers[list(ids), None]


def rng(*ids: int) -> np.random.Generator:
    return randomness.generator(0, "participation", *ids)


# All of them -----------------------------------------------------------------------------------------------------

ALL: dict[str, dict[str, Any]] = {
    "powd": {"name": "powd", "d": None},
    "powd, 3 candidates": {"name": "powd", "d": 3},
    "powd, reference": {"name": "powd", "d": 3, "variant": "reference", "batch_size": 2},
    "fedpns": PNS,
    "fedpns, reference": PNS | {"variant": "reference", "min_keep": 1},
    "hcsfed": HCS,
    "hcsfed, reference": HCS | {"variant": "reference"},
    "round robin, reference": {"name": "round_robin", "variant": "reference"},
}
SIZES = (5, 9, 3, 7, 4)


def built(name: str, net_seed: int = 0, sizes: Sequence[int] = SIZES, **options: Any) -> FederatedRun:
    method = {"selection": ALL[name], "server": MOMENTUM}
    options = {"clients_per_round": 2, "rounds": 6, "momentum": 0.9, "batch_size": 4, "order": None} | options
    net = options.pop("net", bn_dropout)
    return federation(classes(sizes), method, seeded(net, net_seed), **options)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("stop", [1, 3])
def test_resume_is_bit_for_bit(name: str, stop: int, tmp_path: Path) -> None:
    """From a file and from other first weights: the state alone carries everything."""
    whole = run(built(name))
    torch.save(run(built(name), rounds=stop)[-1].to_dict(), tmp_path / "checkpoint")
    loaded = FederationState(**torch.load(tmp_path / "checkpoint", weights_only=True))
    assert same(loaded, whole[stop])
    resumed = run(built(name, net_seed=99), loaded, rounds=6 - stop)
    assert same(resumed[-1], whole[-1])
    # What is drawn depends on seed, round and state alone, so a federation can be replayed from any state.
    again = built(name)
    run(again)
    assert same(run(again, whole[stop], rounds=6 - stop)[-1], whole[-1])


@pytest.mark.parametrize("name", ALL)
def test_kappa_clients_without_repeats(name: str) -> None:
    model = built(name)
    state, turns = model.initial_state(), []
    for _ in range(6):
        state, report = model.step(state)
        turns.append(report.clients)
    full = name.startswith("hcsfed")
    assert [len(ids) for ids in turns] == [5 if full else 2, 2, 2, 2, 2, 2]
    assert all(set(ids) <= set(range(5)) for ids in turns)
    assert len(set(turns[1:])) > 1 or name == "powd"
    assert float(state.optimizer["v"].abs().sum()) > 0


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("sizes", [(6,), (5, 4, 6)])
def test_everybody_takes_part_where_kappa_is_k(name: str, sizes: tuple[int, ...]) -> None:
    """K = 1, and kappa = K: the same bits as uniform selection of everybody."""
    options: dict[str, Any] = {"sizes": sizes, "clients_per_round": len(sizes), "rounds": 3, "net": mlp}
    single: dict[str, Any] = {"Hc": 1} if "Hc" in ALL[name] else {}
    if name == "fedpns, reference":
        single = {"drop_flagged": False}
    elif "d" in ALL[name]:
        single = {"d": len(sizes)}
    model = built(name, **options)
    chosen = build({"selection": ALL[name] | single, "server": MOMENTUM})
    expected = replace(model, method=build({"server": MOMENTUM}))
    states, others = run(replace(built(name, **options), method=chosen)), run(expected)
    for state, other in zip(states, others, strict=True):
        assert torch.equal(state.w, other.w)


@pytest.mark.parametrize("name", ALL)
def test_equal_clients(name: str) -> None:
    """All losses, updates (zero) and norms are equal: nothing is divided by zero, nothing warns."""
    method = {"selection": ALL[name] | ({"Hc": 3} if "Hc" in ALL[name] else {}), "server": MOMENTUM}
    model = federation(ones(2, 2, 2, 2, 2), method, one_parameter(), clients_per_round=2, rounds=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(bool(torch.isfinite(state.w).all()) for state in run(model))


# Weighted draws --------------------------------------------------------------------------------------------------


def test_draw_follows_the_weights_left() -> None:
    """Weights 1, 2, 3 without replacement, 2 of 3: P(index 2 left out) = 1/6 * 2/5 + 2/6 * 1/4 = .15."""
    counts = np.zeros(3)
    for t in range(3000):
        counts[without_replacement(rng(t), np.array([1.0, 2, 3]), 2)] += 1
    left_out = 1 - counts / 3000
    expected = [2 / 6 * 3 / 4 + 3 / 6 * 2 / 3, 1 / 6 * 3 / 5 + 3 / 6 * 1 / 3, 0.15]
    assert sum(expected) == pytest.approx(1)
    assert np.abs(left_out - expected).max() < 5 * np.sqrt(0.25 / 3000)


def test_draw_fills_with_the_others() -> None:
    weights = np.array([0, 5, 0, 1e-9, 0])
    drawn = [without_replacement(rng(t), weights, 3) for t in range(300)]
    assert all(set(ids) >= {1, 3} and len(set(ids.tolist())) == 3 for ids in drawn)
    others = [(set(ids.tolist()) - {1, 3}).pop() for ids in drawn]
    assert min(others.count(k) for k in (0, 2, 4)) > 60
    assert sorted(without_replacement(rng(), weights, 5)) == [0, 1, 2, 3, 4]
    assert sorted(without_replacement(rng(), np.zeros(2), 2)) == [0, 1]


# POW-D -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["full", "mini"])
def test_powd_rounds(schedule: str) -> None:
    """Losses, chosen clients and global vectors of three rounds; the authors weight the chosen ones equally."""
    budget = {"full": {"epochs": 3, "batch_size": 1000}, "mini": {"epochs": 2, "batch_size": 8}}[schedule]
    problem = problem_of([POWD[f"uneq_X{k}"] for k in range(4)], [POWD[f"uneq_y{k}"] for k in range(4)], 3)
    method = {"selection": {"name": "powd", "d": 4}, "server": {"weights": {"name": "uniform"}}}
    model = federation(problem, method, mlp(), lr=0.05, w0=POWD["w0"], clients_per_round=2, **budget)
    state = model.initial_state()
    for t in range(3):
        losses = ProbedClients(model.clients, state, model.heads, Cost()).ask(range(4), PowD(d=4)._loss)[:, 0]
        np.testing.assert_allclose(losses, POWD[f"uneq_{schedule}_losses"][t], rtol=0, atol=1e-8)
        state, report = model.step(state)
        assert set(report.clients) == set(POWD[f"uneq_{schedule}_selected"][t])
        assert report.cost == Cost(scalars_up=4, forward=60)
        np.testing.assert_allclose(state.w, POWD[f"uneq_{schedule}_w"][t], rtol=0, atol=1e-9)


def test_powd_takes_the_highest_of_the_candidates() -> None:
    for candidates, selected in zip(POWD["sel_candidates"], POWD["sel_selected"], strict=True):
        fake = Fake(POWD["sel_n"][candidates], POWD["sel_loss"][candidates])
        ids, _ = PowD(d=None).choose(0, 3, fake, {}, rng())
        assert set(candidates[list(ids)]) == set(selected)
        ids, _ = PowD(d=None, prefer="lowest").choose(0, 2, fake, {}, rng())
        assert not set(candidates[list(ids)]) & set(selected)


def test_powd_frequencies() -> None:
    fake = Fake(POWD["sel_n"], POWD["sel_loss"])
    chosen, draws = np.zeros(10), 3000
    for t in range(draws):
        ids, _ = PowD(d=5).choose(t, 3, fake, {}, rng(t))
        chosen[list(ids)] += 1
    asked = np.bincount(np.array(fake.asked).ravel(), minlength=10)
    assert all(len(set(ids)) == 5 for ids in fake.asked)
    within = 5 * np.sqrt(0.25 / draws)
    assert np.abs(asked / draws - POWD["sel_incl_prob"]).max() < within
    assert np.abs(chosen / draws - POWD["sel_sel_prob"]).max() < within


def test_powd_breaks_ties_at_random() -> None:
    """Losses 2, 1, 1, 1, 0: client 0 always, one of 1, 2, 3 a third of the time each (300 +- 70 of 900)."""
    counts = np.zeros(5)
    for t in range(900):
        ids, _ = PowD(d=None).choose(t, 2, Fake([3] * 5, [2, 1, 1, 1, 0]), {}, rng(t))
        counts[list(ids)] += 1
    assert (counts[0], counts[4]) == (900, 0)
    assert np.abs(counts[1:4] - 300).max() < 70


def test_powd_loss_is_the_mean_over_samples_in_evaluation_mode() -> None:
    """600 samples come in batches of 512 and 88; dropout is off and BatchNorm's statistics are the running ones."""
    problem = classes((600, 11))
    model = federation(problem, {}, bn_dropout(), batch_size=8)
    state = model.initial_state()
    net = model.model.net.eval()
    with torch.no_grad():
        each = F.cross_entropy(net.classify(net.features(problem.images)), problem.labels, reduction="none")
    each = each.numpy()
    ask = ProbedClients(model.clients, state, model.heads, Cost()).ask
    np.testing.assert_allclose(
        ask([0, 1], PowD(d=2)._loss)[:, 0], [each[:600].mean(), each[600:].mean()], rtol=1e-12
    )
    # FedDiverse's code: mean losses of batches of 4, 4 and 3 samples, summed, by 11.
    parts = each[600:604].mean() + each[604:608].mean() + each[608:].mean()
    for options in ({"variant": "reference"}, {"loss": "batch_means"}):
        found = ask([1], PowD(d=2, batch_size=4, **options)._loss)
        np.testing.assert_allclose(found, [[parts / 11]], rtol=1e-12)
    found = ask([1], PowD(d=2, variant="reference", loss="mean")._loss)
    np.testing.assert_allclose(found, [[each[600:].mean()]], rtol=1e-12)
    assert torch.equal(state.buffers, model.model.buffers)


def test_powd_and_clients_without_samples() -> None:
    """They are asked only where the candidates would otherwise be too few; their loss counts as 0."""
    problem = classes((4, 0, 5, 0))
    for d, asked in ((2, 2), (3, 3)):
        method = {"selection": {"name": "powd", "d": d}}
        model = federation(problem, method, mlp(), clients_per_round=2, batch_size=4)
        for state in run(model, rounds=2)[:-1]:
            report = model.step(state)[1]
            assert report.clients == (0, 2)
            assert report.cost == Cost(scalars_up=asked, forward=9)


def test_powd_in_a_full_first_round() -> None:
    """``train.first_round_full`` asks for more clients than there are candidates later: nobody is asked then."""
    model = federation(
        ones(1, 1, 1, 1), {"selection": {"name": "powd", "d": 3}}, one_parameter(), clients_per_round=2
    )
    model = replace(model, schedule=replace(model.schedule, first_round_full=True))
    state, first = model.step(model.initial_state())
    assert (first.clients, first.cost) == ((0, 1, 2, 3), Cost())
    assert model.step(state)[1].cost == Cost(scalars_up=3, forward=3)


# FedPNS ----------------------------------------------------------------------------------------------------------


def test_fedpns_scores() -> None:
    whole, without = agreement(gram(torch.from_numpy(FEDPNS["G"])).numpy())
    np.testing.assert_allclose(whole, FEDPNS["score_all"], rtol=1e-12)
    np.testing.assert_allclose(without, FEDPNS["score_without"], rtol=1e-12)


@pytest.mark.parametrize(("min_keep", "flagged"), [(8, [8, 3]), (10, [8, 3]), (11, [8]), (12, [])])
def test_fedpns_flags_the_wrong_labels(min_keep: int, flagged: list[int]) -> None:
    """The authors' code flags 8, then 3, and stops by itself; min_keep would stop it there too."""
    assert FEDPNS["labelled"].tolist() == [8, 3]
    assert flag(gram(torch.from_numpy(FEDPNS["G"])).numpy(), min_keep) == flagged


def updates_with(bad: Sequence[int], m: int) -> Tensor:
    """1 for everybody but ``bad``, which have -1: En grows until all of those are gone, and falls then."""
    updates = torch.ones(m, 1)
    updates[list(bad)] = -1
    return updates


@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_fedpns_probabilities(case: str) -> None:
    """The stored counts are those after the round."""
    before, counts = FEDPNS[f"prob_{case}_in"], FEDPNS[f"prob_{case}_count"]
    labelled = FEDPNS[f"prob_{case}_labeled"]
    f = counts[:, 1].copy()
    f[labelled] -= 1
    state = {"pr": before.tolist(), "s": (counts[:, 0] - 1).tolist(), "f": f.tolist()}
    rule = FedPNS(alpha=2, beta=0.7, cap=1)
    after = rule.observe(range(12), updates_with(labelled, 12), state)
    np.testing.assert_allclose(after["pr"], FEDPNS[f"prob_{case}_out"], rtol=0, atol=1e-15)
    assert after["s"] == counts[:, 0].tolist()
    assert after["f"] == counts[:, 1].tolist()


def test_fedpns_by_hand() -> None:
    """D = 1, 1, -1 of clients 0, 2, 3 of 4: En = 1/3, without the last 2, then at most 1: client 3 is flagged.

    f/s = 1, so the cap .99 applies: .2475 of its .25 go to clients 0, 1, 2, client 1 was absent but not flagged.
    """
    rule = FedPNS(alpha=2, beta=0.7)
    state = rule.setup(Fake([1, 1, 1, 1]))
    after = rule.observe((0, 2, 3), torch.tensor([[1.0], [1.0], [-1.0]]), state)
    np.testing.assert_allclose(after["pr"], [0.3325, 0.3325, 0.3325, 0.0025], rtol=0, atol=1e-15)
    assert (after["s"], after["f"]) == ([1, 0, 1, 1], [0, 0, 0, 1])
    assert rule.measures(after) == {"flags": 1}
    # Unflagged next time: s grows, nothing moves. Flagged again: f/s = 2/3, (2/3 + .7)^2 > 1.
    still = rule.observe((0, 3), torch.tensor([[1.0], [1.0]]), after)
    assert still["pr"] == after["pr"]
    assert still["s"] == [2, 0, 1, 2]
    mild = FedPNS(alpha=2, beta=0.1)
    moved = mild.observe((0, 2, 3), torch.tensor([[1.0], [1.0], [-1.0]]), still)
    cut = 0.0025 * (2 / 3 + 0.1) ** 2
    np.testing.assert_allclose(moved["pr"], [0.3325 + cut / 3] * 3 + [0.0025 - cut], rtol=0, atol=1e-15)


def test_fedpns_stays_a_distribution() -> None:
    """200 rounds of 6 of 20 clients with random updates and cap 1: never negative, sum 1."""
    rule = FedPNS(alpha=2, beta=0.7, cap=1)
    state, zeros = rule.setup(Fake([1] * 20)), 0
    for t in range(200):
        ids, state = rule.choose(t, 6, Fake([1] * 20), state, rng(t))
        assert len(set(ids)) == 6
        updates = torch.from_numpy(np.random.default_rng(t).normal(size=(6, 3)))
        state = rule.observe(sorted(ids), updates, state)
        zeros += state["pr"].count(0.0)
        assert min(state["pr"]) >= 0
        assert sum(state["pr"]) == pytest.approx(1, abs=1e-12)
    assert zeros  # with cap 1 a probability may be lost whole


def test_fedpns_draws_by_probability_and_fills_up() -> None:
    state = {"pr": [0.0, 0.0, 0.9, 0.1, 0.0], "s": [0] * 5, "f": [0] * 5}
    clients, rule = Fake([1] * 5), FedPNS(alpha=2, beta=0.7)
    firsts = [rule.choose(t, 1, clients, state, rng(t))[0][0] for t in range(1000)]
    assert set(firsts) == {2, 3}
    assert abs(firsts.count(3) - 100) < 50
    fours = [rule.choose(t, 4, clients, state, rng(t))[0] for t in range(200)]
    assert all({2, 3} <= set(ids) and len(set(ids)) == 4 for ids in fours)
    assert {k for ids in fours for k in ids} == {0, 1, 2, 3, 4}


def pulled(targets: Sequence[float], selection: dict, sizes: Sequence[int]) -> FederatedRun:
    """Clients whose updates from w = 0 are their targets: one full step of rate 1 on (w - b)^2 / 2."""
    rule = Quadratic(a=(1.0,) * len(targets), b=tuple(targets))
    method = with_rules(rule, config={"selection": selection})
    return federation(ones(*sizes), method, one_parameter(), lr=1.0, w0=np.zeros(1), epochs=1)


def test_fedpns_may_leave_flagged_updates_out_of_the_mean() -> None:
    """Updates 1, 2, -3.5 of sizes 1, 3, 4: En of all .25/3; without 1 2.25/2, 2 6.25/2, -3.5 9/2; then 4/1 < 9/2."""
    sizes, targets = (1, 3, 4), (1.0, 2.0, -3.5)
    assert flag(np.outer(targets, targets), 1) == [2]
    for selection, w in (
        (PNS, (1 + 6 - 14) / 8),
        (PNS | {"drop_flagged": True}, 7 / 4),
        (PNS | {"variant": "reference", "min_keep": 1}, 7 / 4),
        (PNS | {"variant": "reference"}, (1 + 6 - 14) / 8),  # min_keep 8: nobody is flagged
        (PNS | {"variant": "reference", "min_keep": 1, "drop_flagged": False}, (1 + 6 - 14) / 8),
    ):
        model = pulled(targets, selection, sizes=sizes)
        state, report = model.step(model.initial_state())
        assert state.w.tolist() == pytest.approx([w], abs=1e-15)
        assert sum(report.weights) == pytest.approx(1)
        assert (report.weights[2] == 0) == (w == 7 / 4)


def test_dropped_updates_take_their_buffers_with_them() -> None:
    """BatchNorm statistics and payloads are averaged with the same weights as the updates."""
    sizes = (6, 6, 6, 6)
    method = with_rules(config={"selection": PNS | {"drop_flagged": True}})
    log = Recorder.new()
    method = replace(method, client=(log,))
    model = federation(classes(sizes, seed=3), method, seeded(bn_dropout, 0), lr=0.5, batch_size=3)
    first = model.initial_state()
    start = first.w.clone()
    state, report = model.step(first)
    p = np.array(report.weights)
    assert 0 < (p == 0).sum() < 4
    assert p.sum() == pytest.approx(1)
    ends = [end for _, _, end in log.ends]
    mean = sum(weight * end.buffers for weight, end in zip(p, ends, strict=True))
    counters = model.model.counters
    np.testing.assert_allclose(state.buffers[~counters], mean[~counters], rtol=1e-12, atol=1e-12)
    moved = sum(weight * end.update for weight, end in zip(p, ends, strict=True))
    np.testing.assert_allclose(state.w, start + moved, rtol=1e-12, atol=1e-12)


def test_gram_goes_through_columns_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact in float64 on float32 input, and only a piece is in float64 at a time."""
    updates = torch.randn(5, 1001, generator=torch.Generator().manual_seed(0)) * 1e-3
    expected = updates.double() @ updates.double().T
    pieces, double = [], Tensor.double

    def spy(tensor: Tensor) -> Tensor:
        pieces.append(tuple(tensor.shape))
        return double(tensor)

    monkeypatch.setattr(Tensor, "double", spy)
    monkeypatch.setattr(vectors, "CHUNK", 5 * 70)
    found = gram(updates)
    assert pieces == [(5, 70)] * 14 + [(5, 21)]
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=0)


# HCSFed: compression ---------------------------------------------------------------------------------------------


def lloyd(values: Sequence[float], centres: list[float]) -> list[float]:
    """1-D k-means by loops over values; ties go to the lower centre, an empty cell keeps its centre."""
    while True:
        cells: list[list[float]] = [[] for _ in centres]
        for value in values:
            distances = [abs(value - centre) for centre in centres]
            cells[distances.index(min(distances))].append(value)
        new = [sum(cell) / len(cell) if cell else c for cell, c in zip(cells, centres, strict=True)]
        if new == centres:
            return sorted(centres)
        centres = new


@pytest.mark.parametrize("size", [1, 2, 5, 13])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compression_is_k_means(size: int, dtype: type) -> None:
    values = np.random.default_rng(size).normal(size=200).astype(dtype)
    ordered = np.sort(values).astype(float)
    start = [float(ordered[int((i + 0.5) * 200 / size)]) for i in range(size)]
    found = compressed(values, size)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, lloyd(ordered.tolist(), start), rtol=1e-12, atol=1e-14)
    assert (np.diff(found) > 0).all()
    assert np.array_equal(compressed(np.random.default_rng(1).permutation(values), size), found)


def test_compression_by_hand() -> None:
    assert compressed(np.array([9.0, 1, 2, 3, 10, 11]), 2).tolist() == [2, 10]
    assert compressed(np.array([3.0, 1, 2]), 3).tolist() == [1, 2, 3]
    assert compressed(np.array([3.0, 1]), 5).tolist() == [1, 3]
    # Centroids begin at the values number 1, 3, 5, 7: 5, 5, 5, 7. The second cell is empty and keeps its centroid.
    assert compressed(np.array([5.0, 5, 5, 5, 5, 5, 6, 7]), 4).tolist() == [5, 5, 6, 7]
    assert compressed(np.zeros(6), 2).tolist() == [0, 0]
    # 0, 1, 2 and then 3.0 in the middle between 2 and 4: it belongs to the lower centroid.
    assert compressed(np.array([0.0, 4, 2, 2]), 2).tolist() == [4 / 3, 4]


def test_compression_of_close_values() -> None:
    """Neighbours in float32: their midpoint is no float32, and must not be rounded onto the upper one."""
    values = [np.float32(1)]
    for _ in range(2):
        values.append(np.nextafter(values[-1], np.float32(2)))
    for low, high in itertools.pairwise(
        values
    ):  # a tie between neighbours is rounded to the even one of them
        assert compressed(np.array([low, high, low, high]), 2).tolist() == [float(low), float(high)]


# HCSFed: clusters and allocation ---------------------------------------------------------------------------------


def test_hcsfed_spread_and_quotas() -> None:
    x, labels, N = HCSFED["compressed"], HCSFED["labels"], HCSFED["N_h"]
    found = spread(x, labels, 3)
    by_hand = [
        sum(((x[i] - x[j]) ** 2).sum() for i, j in itertools.product(np.flatnonzero(labels == h), repeat=2))
        / (N[h] - 1)
        for h in range(3)
    ]
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)
    np.testing.assert_allclose(found, HCSFED["S_h"], rtol=1e-6)
    np.testing.assert_allclose(spread(x, labels, 3, 1e-6), HCSFED["S_h"], rtol=1e-12)
    weights = N * HCSFED["S_h"]
    np.testing.assert_allclose(6 * weights / weights.sum(), HCSFED["m_real"], rtol=1e-12)
    assert allocate(6, N * found, N).tolist() == HCSFED["m_int"].tolist()
    assert allocate_at_random(6, weights, N, rng()).tolist() == HCSFED["m_int"].tolist()


def state_of(x: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    return {"x": torch.from_numpy(np.asarray(x, dtype=np.float64)), "labels": labels.tolist()}


def test_hcsfed_draws_with_the_stored_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients per cluster are (0, 2, 4), drawn with probability ||x_k|| / sum over the cluster."""
    labels, state = HCSFED["labels"], state_of(HCSFED["compressed"], HCSFED["labels"])
    drawn = []

    def draw(rng: np.random.Generator, weights: np.ndarray, count: int) -> np.ndarray:
        drawn.append((weights / weights.sum(), count))
        return without_replacement(rng, weights, count)

    monkeypatch.setattr(hcsfed, "without_replacement", draw)
    ids, new = HCSFed(r=0.1, Hc=3).choose(1, 6, Fake([1] * 14), state, rng(1))
    assert new == state
    assert np.bincount(labels[list(ids)], minlength=3).tolist() == [0, 2, 4]
    for h, (p, count) in enumerate(drawn):
        np.testing.assert_allclose(p, HCSFED["p"][labels == h], rtol=1e-12)
        assert count == HCSFED["m_int"][h]


def test_hcsfed_draws_in_proportion_to_the_norm() -> None:
    """Norms 1, 3 in one cluster of which one is drawn: 1/4 and 3/4; with ``uniform`` 1/2 each."""
    state, clients = state_of(np.array([[1.0, 0], [0, -3]]), np.array([0, 0])), Fake([1, 1])
    for within, share in (("norm", 0.25), ("uniform", 0.5)):
        rule = HCSFed(r=0.1, Hc=1, within=within)
        hits = sum(rule.choose(1, 1, clients, state, rng(t))[0] == [0] for t in range(1000))
        assert abs(hits / 1000 - share) < 5 * np.sqrt(0.25 / 1000)


def test_allocation_by_hand() -> None:
    room = np.array([5, 10, 9])
    assert allocate(6, np.array([1.0, 2, 3]), room).tolist() == [1, 2, 3]
    # 8 of (1, 2, 3): 1.33, 2.67, 4: the largest remainder gets the one that is left.
    assert allocate(8, np.array([1.0, 2, 3]), room).tolist() == [1, 3, 4]
    # The first cluster is full with 5; the other 4 are shared 1 : 3.
    assert allocate(9, np.array([100.0, 1, 3]), room).tolist() == [5, 1, 3]
    # Zero weights everywhere: in proportion to the clusters' sizes, 24 clients, 12 of them.
    assert allocate(12, np.zeros(3), room).tolist() == [3, 5, 4]  # 2.5, 5, 4.5: a tie goes to the first
    # A cluster with weight takes what it can, the others share the rest by size: 5, and 6 of (10, 9).
    assert allocate(11, np.array([1.0, 0, 0]), room).tolist() == [5, 3, 3]
    assert allocate(24, np.array([1.0, 0, 7]), room).tolist() == room.tolist()
    assert allocate(2, np.array([1.0, 1]), np.array([0, 4])).tolist() == [0, 2]
    assert allocate(0, np.array([1.0, 1]), np.array([1, 4])).tolist() == [0, 0]
    # Tiny weights are weights (updates are small numbers).
    assert allocate(4, np.array([1e-14, 3e-14]), np.array([9, 9])).tolist() == [1, 3]
    assert allocate_at_random(4, np.array([1e-14, 3e-14]), np.array([9, 9]), rng()).tolist() == [1, 3]


def test_allocation_sums_up() -> None:
    draw = np.random.default_rng(0)
    for _ in range(300):
        room = draw.integers(0, 8, size=4)
        weights = draw.choice([0.0, 1e-3, 1.0, 50.0], size=4) * draw.random(4)
        total = int(draw.integers(0, room.sum() + 1))
        for counts in (allocate(total, weights, room), allocate_at_random(total, weights, room, draw)):
            assert counts.sum() == total
            assert (counts >= 0).all()
            assert (counts <= room).all()


def test_random_rounding_moves_by_one_at_random() -> None:
    """Quotas 1.5, 1.5 round to 2, 2; the surplus one is taken from either."""
    found = {tuple(allocate_at_random(3, np.ones(2), np.array([5, 5]), rng(t)).tolist()) for t in range(50)}
    assert found == {(1, 2), (2, 1)}


def test_hcsfed_allocations() -> None:
    """Clusters 0 (six equal clients: S = 0), 1 (two: S > 0), 2 (one: S = 0)."""
    x = np.array([[1.0]] * 6 + [[5.0], [7.0]] + [[100.0]])
    labels = np.array([0] * 6 + [1] * 2 + [2])
    state, clients = state_of(x, labels), Fake([1] * 9)

    def counts(kappa: int, **options: Any) -> list[int]:
        ids, _ = HCSFed(r=0.1, Hc=3, **options).choose(1, kappa, clients, state, rng())
        assert len(set(ids)) == len(ids) == kappa
        return np.bincount(labels[list(ids)], minlength=3).tolist()

    # S_1 = (4 + 4) / 1; N_h = 1 has no spread.
    assert spread(x, labels, 3).tolist() == [0, 8, 0]
    assert counts(2) == [0, 2, 0]
    assert counts(2, allocation="equal", min_per_cluster=0) in ([1, 1, 0], [1, 0, 1], [0, 1, 1])
    assert counts(3, allocation="equal") == [1, 1, 1]
    assert counts(5, allocation="equal") == [2, 2, 1]
    assert counts(3, min_per_cluster=1) == [1, 1, 1]
    assert counts(4, min_per_cluster=1) == [1, 2, 1]
    # A cluster of one cannot give two.
    assert counts(5, min_per_cluster=2) == [2, 2, 1]
    assert counts(9) == [6, 2, 1]
    with pytest.raises(
        MethodError, match=r"selection\.min_per_cluster: got 1.* 3 clients .*2 take part.*clients_per_round"
    ):
        counts(2, min_per_cluster=1)


def test_hcsfed_weighs_the_spread_with_the_size() -> None:
    """Six clients at +-a and two at +-1 with 2 * 6 * 6 a^2 / 5 = 2 * 2 * 2 / 1 = 8: equal S_h, so 4 go 3 : 1."""
    a = np.sqrt(8 * 5 / 72)
    x = np.array([a, -a, a, -a, a, -a, 9, 11])[:, None]
    labels = np.array([0] * 6 + [1] * 2)
    np.testing.assert_allclose(spread(x, labels, 2), [8, 8], rtol=1e-12)
    ids, _ = HCSFed(r=0.1, Hc=2).choose(1, 4, Fake([1] * 8), state_of(x, labels), rng())
    assert np.bincount(labels[list(ids)]).tolist() == [3, 1]


def test_clusters_are_found_and_belong_to_the_seed() -> None:
    """Three groups far apart in the scale of updates: the same groups whatever the seed, in one numbering per seed."""
    draw = np.random.default_rng(0)
    groups = np.repeat(np.arange(3), 8)
    x = np.sort(draw.normal(size=(24, 4)), axis=1) * 1e-6 + groups[:, None] * 1e-4
    for seed in range(5):
        labels = cluster(x, 3, np.random.default_rng(seed))
        assert {tuple(np.flatnonzero(labels == h)) for h in range(3)} == {
            tuple(np.flatnonzero(groups == g)) for g in range(3)
        }
        assert np.array_equal(labels, cluster(x, 3, np.random.default_rng(seed)))


# HCSFed: rounds --------------------------------------------------------------------------------------------------


def hcs(selection: dict, **options: Any) -> tuple[FederatedRun, Recorder]:
    log = Recorder.new()
    method = with_rules(log, config={"selection": selection, "server": MOMENTUM})
    net = seeded(mlp, 0)
    return (
        federation(classes((5, 9, 3, 7, 4, 8)), method, net, clients_per_round=3, rounds=5, **options),
        log,
    )


def test_hcsfed_rounds() -> None:
    """Round 0: everybody, with the method's own optimizer. x_k is the compressed update; clusters stay as they are."""
    model, log = hcs(HCS)
    states = run(model)
    d = len(states[0].w)
    assert d == 83
    updates = [end.update for t, _, end in log.ends if t == 0]
    assert len(updates) == 6
    size = 8  # floor(.1 * 83)
    expected = np.stack([compressed(update.numpy(), size) for update in updates])
    assert np.array_equal(states[1].selection["x"].numpy(), expected)
    weights = np.array([5, 9, 3, 7, 4, 8]) / 36
    dbar = sum(p * update for p, update in zip(weights, updates, strict=True))
    np.testing.assert_allclose(states[1].optimizer["v"], dbar, rtol=1e-12)
    np.testing.assert_allclose(states[1].w, states[0].w + 0.1 * dbar, rtol=1e-12)
    assert model.method.selection.measures(states[0].selection) == {}
    assert model.method.selection.measures(states[1].selection) == {"compressed_scalars": size}
    labels = [state.selection["labels"] for state in states[2:]]
    assert labels == [labels[0]] * 4
    assert set(labels[0]) == {0, 1}
    for t in range(1, 5):
        ids = [k for round, k, _ in log.ends if round == t]
        assert len(ids) == 3
        counts = model.method.selection._counts(3, expected, np.array(labels[0]), rng())
        assert np.bincount(np.array(labels[0])[ids], minlength=2).tolist() == counts.tolist()


def test_hcsfed_compression_rate() -> None:
    """d' = max(1, floor(r d)); 22 for the 2.2 million parameters of the paper's network."""
    rule = HCSFed(r=1e-5, Hc=1)
    state = rule.observe([0, 1], torch.zeros(2, 83), {})
    assert state["x"].shape == (2, 1)
    state = HCSFed(r=0.1, Hc=1).observe([0], torch.zeros(1, 86), {})
    assert state["x"].shape == (1, 8)
    state = rule.observe([0], torch.zeros(1, 2_230_000), {})
    assert rule.measures(state) == {"compressed_scalars": 22}


def test_hcsfed_streams_after_round_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only round 0 holds all updates at once."""
    kept = []

    class Spy(engine.Updates):
        def __init__(self, like: Tensor, m: int, keep: bool) -> None:
            kept.append((m, keep))
            super().__init__(like, m, keep)

    monkeypatch.setattr(engine, "Updates", Spy)
    model, _ = hcs(HCS)
    run(model)
    assert kept == [(6, True), (3, False), (3, False), (3, False), (3, False)]
    kept.clear()
    run(federation(classes((5, 9)), {"selection": PNS}, mlp(), rounds=2))
    assert kept == [(2, True)] * 2
    kept.clear()
    run(federation(classes((5, 9)), {"selection": {"name": "powd", "d": None}}, mlp(), rounds=2))
    assert kept == [(2, False)] * 2


def test_hcsfed_reference_compresses_weights_and_shuffles_centroids() -> None:
    model, log = hcs(HCS | {"variant": "reference"})
    states = run(model)
    trained = [end.w for t, _, end in log.ends if t == 0]
    expected = np.stack([compressed(w.numpy(), 8) for w in trained])
    np.testing.assert_allclose(states[1].selection["x"], expected, rtol=1e-12, atol=1e-15)
    assert "w" not in states[1].selection
    x = states[2].selection["x"].numpy()
    assert np.array_equal(np.sort(x, axis=1), states[1].selection["x"].numpy())
    orders = {tuple(np.argsort(row)) for row in x}
    assert len(orders) > 3  # each client in an order of its own
    assert torch.equal(states[5].selection["x"], states[2].selection["x"])
    model, _ = hcs(HCS | {"variant": "reference", "compress": "update", "centroids": "sorted"})
    plain, _ = hcs(HCS)
    same_x, own_x = (run(m, rounds=2)[-1].selection["x"] for m in (model, plain))
    assert torch.equal(same_x, own_x)


# Round robin, as in the public code ------------------------------------------------------------------------------


def test_round_robin_as_in_the_code() -> None:
    """9 of 24 in 200 rounds: a free draw, then one from the 15 others; turns are a binomial of 100 at 3/4 (sd 4.3)."""
    rule, clients = RoundRobin(variant="reference"), Fake([1] * 24)
    state, turns, draws = rule.setup(clients), np.zeros(24), []
    for t in range(200):
        ids, state = rule.choose(t, 9, clients, state, rng(t))
        assert len(set(ids)) == 9
        turns[list(ids)] += 1
        draws.append(set(ids))
    assert all(not a & b for a, b in zip(draws[::2], draws[1::2], strict=True))
    assert sum(bool(a & b) for a, b in zip(draws[1::2], draws[2::2], strict=False)) > 90
    assert turns.sum() == 1800
    assert 4 < np.ptp(turns) < 8 * 4.4
    assert np.abs(turns - 75).max() < 4 * 4.4


# Bad values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "kappa", "message"),
    [
        ({"name": "powd"}, 2, r"selection\.d: missing"),
        ({"name": "powd", "d": 1}, 2, r"selection\.d: got 1; .*clients_per_round.* 2 to 5"),
        ({"name": "powd", "d": 6}, 2, r"selection\.d: got 6"),
        (PNS | {"cap": 1.5}, 2, r"selection\.cap: got 1\.5"),
        (PNS | {"capp": 1}, 2, r"selection\.capp: unknown.*'cap'"),
        (HCS | {"r": 0}, 2, r"selection\.r: got 0"),
        (HCS | {"Hc": 6}, 2, r"selection\.Hc: got 6; .*1 to 5"),
        ({"name": "round_robin", "variant": "code"}, 2, r"selection\.variant: got 'code'"),
    ],
)
def test_bad_values(selection: dict, kappa: int, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        run(
            federation(
                ones(1, 1, 1, 1, 1), {"selection": selection}, one_parameter(), clients_per_round=kappa
            )
        )
