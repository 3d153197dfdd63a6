"""HiCS-FL: entropies, clusters and probabilities by hand and against the authors' code; its rounds."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from federations import Recorder, classes, federation, mlp, near, one_parameter, run, with_rules
from selection_cases import HICS, rng

from methods.core.rules import MethodError
from methods.core.vectors import Layout
from methods.selection import hicsfl
from methods.selection.hicsfl import HiCSFL, one_by_one

LN2, LN3 = np.log(2), np.log(3)


def pool(sizes: Any, rounds: int, C: int, h: int) -> Any:
    """Clients of given sizes, and a model of an output layer alone."""
    layer = [("classifier.weight", (C, h), "head"), ("classifier.bias", (C,), "head")]
    return SimpleNamespace(
        num_clients=len(sizes), sizes=np.array(sizes), rounds=rounds, layout=Layout.of(layer)
    )


def seen(rule: HiCSFL, clients: Any, updates: Any) -> dict[str, Any]:
    """The state after all clients took part with these updates [N, d]."""
    ids = range(clients.num_clients)
    return rule.observe(ids, torch.as_tensor(np.asarray(updates, dtype=np.float64)), rule.setup(clients))


@pytest.mark.parametrize(("round", "pi"), [(4, (8, 9)), (9, (1, 1))])
def test_probabilities_by_hand(monkeypatch: pytest.MonkeyPatch, round: int, pi: tuple[int, int]) -> None:
    """T = 1: Db = (log 2, 0, 0) has H = 3/2 log 2, Db = 0 has H = log 3. Two clusters, of sizes 1 + 3 and 2 + 2.

    t = 5 of 10: gamma_t = 2, so pi is 2^3 to 3^2. t = 10: gamma_t = 0.
    """
    rule, clients = HiCSFL(T=1.0, lam=10.0, gamma0=4.0, M=2), pool((1, 3, 2, 2), 10, 3, 1)
    state = seen(rule, clients, [[9, 9, 9, LN2, 0, 0]] * 2 + [[9, 9, 9, 0, 0, 0]] * 2)
    assert rule.measures(state) == pytest.approx({"estimated_entropy": (1.5 * LN2 + LN3) / 2})
    drawn = []
    monkeypatch.setattr(hicsfl, "without_replacement", lambda rng, p, n: drawn.append((p, n)) or np.arange(n))
    rule.choose(round, 3, clients, state, rng())
    ((p, n),) = drawn
    one, two = (share / sum(pi) for share in pi)
    near(p, [one / 4, one * 3 / 4, two / 2, two / 2], 1e-12)
    assert n == 3


def test_angles_separate_clients_with_equal_entropies() -> None:
    """Labels (0, 0, 1, 1) with equal H: angles 0 within, 120 degrees between; weights are not read."""
    rule, clients = HiCSFL(T=1.0, lam=10.0, gamma0=4.0, M=2), pool((1, 1, 1, 1), 10, 3, 1)
    updates = [[1, 2, 3, 2, -1, -1], [0, 0, 0, 4, -2, -2], [5, 0, 0, -1, 2, -1], [0, 0, 0, -1, 2, -1]]
    state = seen(rule, clients, updates)
    near(hicsfl.angles(state["bias"].numpy())[0] * 180 / np.pi, [0, 0, 120, 120], 1e-6)
    one, two, three, four = rule._clusters(state, np.zeros(4), 2)
    assert one == two != three == four


def test_reference_has_the_entropies_and_clusters_of_the_authors_code() -> None:
    """CityChan/HiCS-FL@25f309d, six clients, three classes, two features, T = 0.1, lambda = 10, M = 3."""
    W = np.array([[2, 0, -1, -1, -1, 0], [0, 1, 0, 1, 0, 1], [2, 1, -1, -1, -1, 0],
                  [0, -1, 2, 2, -2, -1], [1, 0, 0, 1, 1, 0], [0, 0, 1, 2, -1, -2]])  # fmt: skip
    b = np.array([[3, -2, -1], [1, 1, 0], [4, -2, -2], [-2, 4, -2], [1, 0, 1], [-1, 3, -2]])
    rule = HiCSFL(T=0.1, lam=10.0, gamma0=4.0, M=3, variant="reference")
    state = seen(rule, pool([1] * 6, 10, 3, 2), np.hstack([W, b]) / 10)
    H = rule._entropies(state)
    near(H, [0.7519804498, 1.0986122887, 0.5876287371, 0.3859324565, 1.0986122887, 0.6215846047], 1e-9)
    labels = rule._clusters(state, H, 3)
    assert {frozenset(np.flatnonzero(labels == m)) for m in range(3)} == {
        frozenset({0, 2, 5}), frozenset({1, 4}), frozenset({3})
    }  # fmt: skip


def test_reference_draws_from_clusters_that_have_clients_left() -> None:
    """Both clients of the first cluster, which has nearly all of the probability, and then one of the second."""
    for seed in range(5):
        ids = one_by_one(np.array([1 - 1e-9, 1e-9]), np.array([0, 1, 0, 1]), 3, rng(seed))
        assert ids[2] in (1, 3) and set(ids[:2]) == {0, 2}


@pytest.mark.parametrize("refresh", [True, False])
def test_rounds(refresh: bool) -> None:
    """Five clients, two a round: rounds of 2, 2 and 1 see everybody. The last update is kept, or the first."""
    log = Recorder()
    method = with_rules(log, config={"selection": HICS | {"refresh": refresh}})
    model = federation(classes((5, 9, 3, 7, 4)), method, mlp(), clients_per_round=2, rounds=8)
    states = run(model)
    by_round = [[k for t, k, _ in log.ends if t == round] for round in range(8)]
    assert [len(ids) for ids in by_round] == [2, 2, 1, 2, 2, 2, 2, 2]
    assert (
        sorted(k for ids in by_round[:3] for k in ids) == [0, 1, 2, 3, 4]
        and states[3].selection["unseen"] == []
    )
    kept: dict[int, Any] = {}
    for _, k, end in log.ends:
        if refresh or k not in kept:
            kept[k] = end.update[-3:]
    near(states[-1].selection["bias"], torch.stack([kept[k] for k in range(5)]), 1e-15)


def test_an_output_layer_without_a_bias_is_refused() -> None:
    with pytest.raises(MethodError, match="got 'no parameters'; expected a linear one with a bias"):
        federation(classes(), {"selection": HICS}, one_parameter()).initial_state()
