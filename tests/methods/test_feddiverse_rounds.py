"""FedDiverse in whole rounds, the known and the N^k variant, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from feddiverse_cases import TWO, USUAL, perceptron, rule, spurious, table6
from federations import federation, problem_of, run, same, with_rules
from torch import nn

from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost
from benchmark.engine.state import FederationState
from benchmark.models.networks import Net
from methods.core.build import build
from methods.core.errors import MethodError
from methods.core.rules import ClientRule, Selection
from methods.selection.feddiverse_nk import evening_weights
from methods.shared.triplets import dht

# Triples --------------------------------------------------------------------------------------------------------


def line(classes: int) -> Net:
    """z = (x, 1); logits v z."""
    net = Net(nn.Linear(1, 2), nn.Linear(2, classes, bias=False), 2).double()
    with torch.no_grad():
        net.body.weight.copy_(torch.tensor([[1.0], [0.0]]))
        net.body.bias.copy_(torch.tensor([0.0, 1.0]))
    return net


# Rounds ---------------------------------------------------------------------------------------------------------

FEDAVGM = {"server": {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}}


def small(
    selection: Selection,
    *rules: ClientRule,
    kappa: int = 3,
    rounds: int = 4,
    config: Any = None,
    **options: Any,
) -> FederatedRun:
    """Six clients, of 2 x 2 counts, some with fewer samples than a batch."""
    matrices = [
        [[9, 1], [1, 9]], [[9, 9], [1, 1]], [[9, 1], [9, 1]], [[2, 1], [0, 2]], [[0, 0], [5, 2]], [[1, 9], [9, 1]],
    ]  # fmt: skip
    problem, _ = spurious(matrices)
    method = with_rules(*rules, selection=selection, config=config)
    options = {"lr": 0.1, "batch_size": 8, "momentum": 0.9, "order": None} | options
    return federation(problem, method, perceptron(), rounds=rounds, clients_per_round=kappa, **options)


def reports(model: FederatedRun) -> tuple[list[FederationState], list[Any]]:
    states, found = [model.initial_state()], []
    for _ in range(model.schedule.rounds):
        state, report = model.step(states[-1])
        states.append(state)
        found.append(report)
    return states, found


def test_rounds_of_the_paper() -> None:
    """T0 plain rounds with everybody, then one set-up with three numbers per client, then kappa clients."""
    states, found = reports(small(rule(T0=2), config=FEDAVGM))
    assert [len(r.clients) for r in found] == [6, 6, 3, 3]
    assert [r.cost.scalars_up for r in found] == [0, 0, 18, 0]
    assert all((r.cost.forward > 0) == (r.cost.trained > 0) == (r.round == 2) for r in found)
    assert [float(s.optimizer["v"].norm()) > 0 for s in states] == [False, False, False, True, True]
    assert ["triplets" in s.selection for s in states] == [False, False, False, True, True]
    assert np.shape(states[-1].selection["triplets"]) == (6, 3)
    assert states[3].selection == states[4].selection


def test_rounds_of_the_authors_code() -> None:
    """Triplets of the initial model; the server's momentum is on in the pre-training round."""
    states, found = reports(small(rule(variant="reference"), config=FEDAVGM, rounds=2))
    assert [len(r.clients) for r in found] == [6, 3]
    assert [r.cost.scalars_up for r in found] == [18, 0]
    assert float(states[1].optimizer["v"].norm()) > 0
    paper_at_start = reports(small(rule(estimate="first_round"), config=FEDAVGM, rounds=1))[0]
    assert float(paper_at_start[1].optimizer["v"].norm()) == 0
    assert "triplets" in paper_at_start[1].selection


def test_cost_of_the_set_up() -> None:
    """Trained: at most (tau_b + tau_a) batches per client. Forward: at most twice over the data."""
    _, found = reports(small(rule(), rounds=2))
    sizes = [20, 20, 20, 5, 7, 20]
    cost = found[1].cost
    assert cost.trained <= sum(60 * min(8, n) for n in sizes)
    # 50 steps of the biased model: epochs of 20 are 8 + 8 + 4, of 5 and 7 one batch
    biased = sum(50 * n if n < 8 else 16 * 20 + 8 + 8 for n in sizes)
    assert biased < cost.trained
    assert sum(sizes) < cost.forward <= 2 * sum(sizes)


def test_everybody_is_fedavg_bit_for_bit() -> None:
    """kappa = K: the set-up leaves no trace in model, buffers and client states."""
    diverse = run(small(rule(), kappa=6))
    plain = run(small(build({}).selection, kappa=6))
    for a, b in zip(diverse, plain, strict=True):
        assert torch.equal(a.w, b.w)
        assert torch.equal(a.buffers, b.buffers)
    for variant in ("paper", "reference"):
        for s in run(small(rule(variant=variant), kappa=6)):
            assert torch.isfinite(s.w).all()


@pytest.mark.parametrize("name", ["feddiverse", "feddiverse_known", "feddiverse_nk", "reference"])
def test_stop_and_go_on(name: str) -> None:
    choosers: dict[str, Callable[[], Selection]] = {
        "feddiverse": rule,
        "reference": lambda: rule(variant="reference"),
        "feddiverse_known": lambda: rule(triplets="known"),
        "feddiverse_nk": lambda: build({}, {"name": "feddiverse_nk", "T0": 1}).selection,
    }
    through = run(small(choosers[name](), config=FEDAVGM))
    for k in (1, 2):
        stored = io.BytesIO()
        torch.save(through[k].to_dict(), stored)
        stored.seek(0)
        state = FederationState(**torch.load(stored, weights_only=False))
        resumed = run(small(choosers[name](), config=FEDAVGM), state, rounds=4 - k)
        assert same(resumed[-1], through[-1])


def test_one_client() -> None:
    problem, _ = spurious([[[9, 1], [1, 9]]])
    for selection in (
        rule(),
        rule(variant="reference"),
        rule(triplets="known"),
        build({}, {"name": "feddiverse_nk", "T0": 1}).selection,
    ):
        model = federation(problem, with_rules(selection=selection), perceptron(), lr=0.1, order=None)
        assert [r.clients for r in reports(model)[1]] == [(0,)] * 3


# Known triplets, N^k, measures --------------------------------------------------------------------------------------


def test_known_triplets_are_those_of_the_counts() -> None:
    states, found = reports(small(rule(triplets="known"), rounds=2))
    counts = [
        [[9, 1], [1, 9]], [[9, 9], [1, 1]], [[9, 1], [9, 1]], [[2, 1], [0, 2]], [[0, 0], [5, 2]], [[1, 9], [9, 1]],
    ]  # fmt: skip
    np.testing.assert_allclose(states[-1].selection["triplets"], dht(np.array(counts)), rtol=0, atol=1e-15)
    assert [r.cost for r in found] == [Cost(), Cost(scalars_up=18)]


def test_measures_are_the_distance_to_the_truth_and_no_upload() -> None:
    model = small(rule(), rounds=2)
    states, found = reports(model)
    assert found[1].cost.scalars_up == 3 * 6
    truth = [[*dht(np.array(m))] for m in (
        [[9, 1], [1, 9]], [[9, 9], [1, 1]], [[9, 1], [9, 1]], [[2, 1], [0, 2]], [[0, 0], [5, 2]], [[1, 9], [9, 1]],
    )]  # fmt: skip
    away = [
        sum((a - b) ** 2 for a, b in zip(mine, theirs, strict=True)) ** 0.5
        for mine, theirs in zip(states[2].selection["triplets"], truth, strict=True)
    ]
    assert max(away) > 0.05
    records = {(r.split, r.metric): r.value for r in model.evaluate(states[2])}
    assert records["selection", "dht_error"] == pytest.approx(sum(away) / 6, abs=1e-12)
    assert records["selection", "dht_error_max"] == pytest.approx(max(away), abs=1e-12)
    assert model.evaluate(states[1]) == []


def test_the_estimate_needs_no_attributes() -> None:
    problem, _ = spurious(TWO)
    problem = problem_of(
        [problem.images.numpy()[c] for c in problem.clients],
        [problem.labels.numpy()[c] for c in problem.clients],
        2,
    )
    states, _ = reports(federation(problem, with_rules(selection=rule()), perceptron(), lr=0.1, order=None))
    assert np.shape(states[-1].selection["triplets"]) == (3, 3)
    assert rule().measures(states[-1].selection) == {}


def test_evening_weights_by_hand() -> None:
    """[[3,1],[1,3]] and [[1,3],[3,1]]: half and half, variance 0."""
    np.testing.assert_allclose(evening_weights(np.array([[3, 1, 1, 3], [1, 3, 3, 1]])), [0.5, 0.5], atol=1e-9)
    # (3,1) and (1,2), centred (1,-1) and (-.5,.5): om (1/3, 2/3).
    np.testing.assert_allclose(evening_weights(np.array([[3, 1], [1, 2]])), [1 / 3, 2 / 3], atol=1e-8)
    # Equal clients share.
    np.testing.assert_allclose(
        evening_weights(np.array([[3, 1], [1, 3], [3, 1], [3, 1]])), [1 / 6, 1 / 2, 1 / 6, 1 / 6], atol=1e-9
    )
    # +-1 and +-2 off the mean: many ways to 0, the most even one is taken.
    np.testing.assert_allclose(evening_weights(np.array([[3, 1], [1, 3], [4, 0], [0, 4]])), 0.25, atol=1e-6)
    # All lean the same way: the flattest alone.
    np.testing.assert_allclose(evening_weights(np.array([[5, 1], [3, 1], [9, 1]])), [0, 1, 0], atol=1e-12)
    assert evening_weights(np.array([[7, 1]])).tolist() == [1]


@pytest.mark.parametrize("scale", [1, 100])
@pytest.mark.parametrize("setting", ["spawrious_gai", "waterbirds_dist", "spawrious4", "spawrious_gci100"])
def test_evening_weights_are_optimal(published: Path, setting: str, scale: int) -> None:
    """On the simplex om is the minimum iff no client's derivative is below om'(derivative)."""
    counts = scale * table6(published, setting).reshape(-1, table6(published, setting)[0].size).astype(float)
    om = evening_weights(counts)
    assert (om >= 0).all()
    assert om.sum() == pytest.approx(1, abs=1e-12)
    dv = counts - counts.mean(1, keepdims=True)
    derivative = dv @ (om @ dv) / counts.shape[1] + 1e-9 * om
    scale_of_q = np.abs(dv @ dv.T).max() / counts.shape[1]
    assert derivative.min() > om @ derivative - 1e-10 * scale_of_q


def test_nk_draws_with_these_probabilities_and_counts_its_upload() -> None:
    """(3,1), (1,3), (3,1): om 1/4, 1/2, 1/4. One client per round; every client sends C A = 4 numbers, once."""
    problem, _ = spurious([[[3, 1], [1, 3]], [[1, 3], [3, 1]], [[3, 1], [1, 3]]])
    chooser = build({}, {"name": "feddiverse_nk", "T0": 2}).selection
    model = federation(
        problem,
        with_rules(selection=chooser),
        perceptron(),
        lr=0.1,
        clients_per_round=1,
        rounds=3,
        order=None,
    )
    states, found = reports(model)
    assert [len(r.clients) for r in found] == [3, 3, 1]
    assert [r.cost for r in found] == [Cost(), Cost(), Cost(scalars_up=12)]
    np.testing.assert_allclose(states[-1].selection["om"], [0.25, 0.5, 0.25], rtol=0, atol=1e-9)
    picks = np.zeros(3)
    for s in range(1000):
        ids, _ = chooser.choose(2, 1, _Three(), states[-1].selection, np.random.default_rng(s))
        picks[list(ids)] += 1
    np.testing.assert_allclose(picks / 1000, [0.25, 0.5, 0.25], rtol=0, atol=0.05)


class _Three:
    """Three clients that must not be asked again."""

    num_clients = 3


def test_nk_can_always_draw_enough_clients() -> None:
    """om = (0, 1, 0) has one client; with the floor of 1e-6 the others can be drawn too."""
    chooser = build({}, {"name": "feddiverse_nk", "T0": 1}).selection
    for kappa in (1, 2, 3):
        ids, _ = chooser.choose(1, kappa, _Three(), {"om": [0.0, 1.0, 0.0]}, np.random.default_rng(0))  # type: ignore[arg-type]
        assert len(set(ids)) == kappa
        assert 1 in ids


# What is refused ------------------------------------------------------------------------------------------------


def test_rules_that_own_the_head_are_refused() -> None:
    class Owner(ClientRule):
        key: ClassVar[str] = "owner"
        owns_head: ClassVar[bool] = True

    for name, values in (("feddiverse", USUAL), ("feddiverse_nk", {"T0": 1})):
        selection = build({}, {"name": name, **values}).selection
        with pytest.raises(MethodError, match=f"{name} .* owner decides what the head is"):
            with_rules(Owner(), selection=selection).check()


def test_known_needs_attributes() -> None:
    problem = problem_of([np.zeros((4, 6))], [np.array([0, 1, 0, 1])], 2)
    for selection in (rule(triplets="known"), build({}, {"name": "feddiverse_nk", "T0": 1}).selection):
        with pytest.raises(MethodError, match=r"has none.*dataset"):
            federation(problem, with_rules(selection=selection), perceptron()).initial_state()
    single = problem_of([np.zeros((4, 6))], [np.array([0, 1, 0, 1])], 2, np.zeros(4, dtype=np.int64))
    with pytest.raises(MethodError, match="a single one"):
        federation(single, with_rules(selection=rule(triplets="known")), perceptron()).initial_state()


def test_one_class_is_refused() -> None:
    problem = problem_of([np.zeros((4, 6))], [np.zeros(4, dtype=np.int64)], 1)
    with pytest.raises(MethodError, match="2 classes; got 1"):
        federation(problem, with_rules(selection=rule()), perceptron(1))
