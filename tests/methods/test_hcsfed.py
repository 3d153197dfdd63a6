"""HCSFed: compression, clusters, allocation and rounds; weighted draws."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from federations import Recorder, classes, federation, mlp, run, seeded, with_rules
from golden_cases import stored
from selection_cases import HCS, MOMENTUM, Fake, rng

from benchmark.engine.federation import FederatedRun
from methods.selection import hcsfed
from methods.selection.hcsfed import HCSFed, allocate, allocate_at_random, compressed, spread
from methods.shared.draw import without_replacement

HCSFED = stored("baselines/hcsfed")


# HCSFed: compression ---------------------------------------------------------------------------------------------


def test_compression_by_hand() -> None:
    assert compressed(np.array([9.0, 1, 2, 3, 10, 11]), 2).tolist() == [2, 10]
    assert compressed(np.array([3.0, 1, 2]), 3).tolist() == [1, 2, 3]
    assert compressed(np.array([3.0, 1]), 5).tolist() == [1, 3]
    # From 1 and 7 on, each step takes one value more into the lower cell: 0.5 | 9.5, 2 | 11, 3 | 13.5, 3.8 | 20.
    assert compressed(np.array([6.0, 0, 20, 1, 7, 5]), 2).tolist() == [3.8, 20]
    # Centroids begin at the values number 1, 3, 5, 7: 5, 5, 5, 7. The second cell is empty and keeps its centroid.
    assert compressed(np.array([5.0, 5, 5, 5, 5, 5, 6, 7]), 4).tolist() == [5, 5, 6, 7]
    assert compressed(np.zeros(6), 2).tolist() == [0, 0]
    # 0, 1, 2 and then 3.0 in the middle between 2 and 4: it belongs to the lower centroid.
    assert compressed(np.array([0.0, 4, 2, 2]), 2).tolist() == [4 / 3, 4]
    # Neighbours in float32: their midpoint is no float32, and must not be rounded onto the upper one. (A tie between
    # neighbours is rounded to the even one of them, so two pairs are tried.)
    near = [np.float32(1)]
    for pair in range(2):
        near.append(np.nextafter(near[-1], np.float32(2)))
        found = compressed(np.array([near[pair], near[pair + 1]] * 2), 2)
        assert found.tolist() == [float(near[pair]), float(near[pair + 1])]


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
    drawn.clear()
    HCSFed(r=0.1, Hc=3, within="uniform").choose(1, 6, Fake([1] * 14), state, rng(1))
    assert all((p == 1 / len(p)).all() for p, _ in drawn)


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


# HCSFed: rounds --------------------------------------------------------------------------------------------------


def hcs(selection: dict, **options: Any) -> tuple[FederatedRun, Recorder]:
    log = Recorder()
    method = with_rules(log, config={"selection": selection, "server": MOMENTUM})
    problem = classes((5, 9, 3, 7, 4, 8))
    return federation(problem, method, seeded(mlp, 0), clients_per_round=3, rounds=5, **options), log


@pytest.mark.parametrize(("least", "size"), [(1, 8), (22, 22)])  # floor(.1 * 83), but not below ``least``
def test_hcsfed_rounds(least: int, size: int) -> None:
    """Round 0: everybody, with the method's own optimizer. x_k is the compressed update; clusters stay as they are."""
    model, log = hcs(HCS | {"least": least})
    states = run(model)
    d = len(states[0].w)
    assert d == 83
    updates = [end.update for t, _, end in log.ends if t == 0]
    assert len(updates) == 6
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
