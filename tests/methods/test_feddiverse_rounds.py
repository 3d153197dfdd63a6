"""FedDiverse in whole rounds, the known and the N^k variant, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feddiverse_cases import perceptron, rule, spurious, table6
from federations import (
    assert_resumes,
    federation,
    near,
    reported,
    run,
    seeded,
    with_rules,
)
from selection_cases import Fake

from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost
from benchmark.heterogeneity import triplets as triplets_of
from benchmark.models.networks import Net
from methods.core.method import build
from methods.core.rules import Selection
from methods.selection.feddiverse_nk import evening_weights

FEDAVGM = {"server": {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}}
COUNTS = np.array(
    [
        [[9, 1], [1, 9]], [[9, 9], [1, 1]], [[9, 1], [9, 1]], [[2, 1], [0, 2]], [[0, 0], [5, 2]], [[1, 9], [9, 1]],
    ]
)  # fmt: skip
"""Class x attribute counts of six clients, some with fewer samples than a batch of 8."""


def nk(T0: int = 1) -> Selection:
    return build({}, {"name": "feddiverse_nk", "T0": T0}).selection


CHOOSERS: dict[str, Callable[[], Selection]] = {
    "estimated": lambda: rule(tau_b=6, tau_a=3),
    "reference": lambda: rule(tau_b=6, tau_a=3, variant="reference"),
    "known": lambda: rule(triplets="known"),
    "nk": nk,
}


def small(
    selection: Selection,
    kappa: int = 3,
    rounds: int = 4,
    config: Any = None,
    matrices: Any = COUNTS,
    net: Callable[[], Net] = perceptron,
) -> FederatedRun:
    """Clients with these counts."""
    method = with_rules(selection=selection, config=config)
    return federation(
        spurious(matrices)[0], method, seeded(net, 1), rounds=rounds, clients_per_round=kappa, lr=0.1, batch_size=8,
        momentum=0.9, order=None,
    )  # fmt: skip


def test_rounds_of_the_paper() -> None:
    """T0 plain rounds with everybody, then one set-up with three numbers per client, then kappa clients."""
    states, found = reported(small(rule(T0=2), config=FEDAVGM))
    assert [len(r.clients) for r in found] == [6, 6, 3, 3]
    assert [r.cost.scalars_up for r in found] == [0, 0, 18, 0]
    assert all((r.cost.forward > 0) == (r.cost.trained > 0) == (r.round == 2) for r in found)
    assert [float(s.optimizer["v"].norm()) > 0 for s in states] == [False, False, False, True, True]
    assert ["triplets" in s.selection for s in states] == [False, False, False, True, True]
    assert np.shape(states[-1].selection["triplets"]) == (6, 3)
    assert states[3].selection == states[4].selection
    # At most 50 + 10 batches per client are trained, and the data pass forward at most twice.
    sizes, cost = COUNTS.sum((1, 2)), found[2].cost
    assert cost.trained <= sum(60 * min(8, n) for n in sizes)
    # 50 steps of the biased model: epochs of 20 are 8 + 8 + 4, of 5 and 7 one batch
    assert sum(50 * n if n < 8 else 16 * 20 + 8 + 8 for n in sizes) < cost.trained
    assert sum(sizes) < cost.forward <= 2 * sum(sizes)


def test_rounds_of_the_authors_code() -> None:
    """Triplets of the initial model; the server's momentum is on in the pre-training round."""
    states, found = reported(small(rule(variant="reference"), config=FEDAVGM, rounds=2))
    assert [len(r.clients) for r in found] == [6, 3]
    assert [r.cost.scalars_up for r in found] == [18, 0]
    assert float(states[1].optimizer["v"].norm()) > 0
    paper_at_start = run(small(rule(estimate="first_round"), config=FEDAVGM, rounds=1))[1]
    assert float(paper_at_start.optimizer["v"].norm()) == 0
    assert "triplets" in paper_at_start.selection


@pytest.mark.parametrize("name", CHOOSERS)
def test_stop_and_go_on(name: str, tmp_path: Path) -> None:
    assert_resumes(lambda seed: small(CHOOSERS[name](), config=FEDAVGM), tmp_path)


# Known triplets, N^k, measures --------------------------------------------------------------------------------------


def test_known_triplets_are_those_of_the_counts() -> None:
    states, found = reported(small(rule(triplets="known"), rounds=2))
    near(states[-1].selection["triplets"], triplets_of(COUNTS), 1e-15)
    assert [r.cost for r in found] == [Cost(), Cost(scalars_up=18)]


def test_measures_are_the_distance_to_the_truth() -> None:
    model = small(rule(), rounds=2)
    _, before, after = run(model)
    away = np.linalg.norm(np.array(after.selection["triplets"]) - triplets_of(COUNTS), axis=1)
    assert away.max() > 0.05
    records = {(r.split, r.metric): r.value for r in model.evaluate(after)}
    assert records["selection", "dht_error"] == pytest.approx(away.mean(), abs=1e-12)
    assert records["selection", "dht_error_max"] == pytest.approx(away.max(), abs=1e-12)
    assert model.evaluate(before) == []


@pytest.mark.parametrize(
    ("counts", "om", "atol"),
    [
        ([[3, 1, 1, 3], [1, 3, 3, 1]], [0.5, 0.5], 1e-9),  # variance 0
        ([[3, 1], [1, 2]], [1 / 3, 2 / 3], 1e-8),  # centred (1, -1) and (-.5, .5)
        ([[3, 1], [1, 3], [3, 1], [3, 1]], [1 / 6, 1 / 2, 1 / 6, 1 / 6], 1e-9),  # equal clients share
        ([[3, 1], [1, 3], [4, 0], [0, 4]], [0.25] * 4, 1e-6),  # many ways to 0: the most even one is taken
        ([[5, 1], [3, 1], [9, 1]], [0, 1, 0], 1e-12),  # all lean the same way: the flattest alone
        ([[7, 1]], [1], 0),
    ],
)
def test_evening_weights_by_hand(counts: list, om: list, atol: float) -> None:
    near(evening_weights(np.array(counts)), om, atol)


@pytest.mark.parametrize("scale", [1, 100])
@pytest.mark.parametrize("setting", ["spawrious_gai", "waterbirds_dist", "spawrious4", "spawrious_gci100"])
def test_evening_weights_are_optimal(published: Path, setting: str, scale: int) -> None:
    """On the simplex om is the minimum iff no client's derivative is below om'(derivative)."""
    matrices = table6(published, setting)
    counts = scale * matrices.reshape(len(matrices), -1).astype(float)
    om = evening_weights(counts)
    assert (om >= 0).all()
    assert om.sum() == pytest.approx(1, abs=1e-12)
    dv = counts - counts.mean(1, keepdims=True)
    derivative = dv @ (om @ dv) / counts.shape[1] + 1e-9 * om
    scale_of_q = np.abs(dv @ dv.T).max() / counts.shape[1]
    assert derivative.min() > om @ derivative - 1e-10 * scale_of_q


def test_nk_draws_with_these_probabilities_and_counts_its_upload() -> None:
    """(3,1), (1,3), (3,1): om 1/4, 1/2, 1/4. One client per round; every client sends C A = 4 numbers, once."""
    chooser, clients = nk(T0=2), Fake([1] * 3)
    matrices = [[[3, 1], [1, 3]], [[1, 3], [3, 1]], [[3, 1], [1, 3]]]
    states, found = reported(small(chooser, kappa=1, rounds=3, matrices=matrices))
    assert [len(r.clients) for r in found] == [3, 3, 1]
    assert [r.cost for r in found] == [Cost(), Cost(), Cost(scalars_up=12)]
    near(states[-1].selection["om"], [0.25, 0.5, 0.25], 1e-9)
    picks = np.zeros(3)
    for s in range(1000):
        ids, _ = chooser.choose(2, 1, clients, states[-1].selection, np.random.default_rng(s))
        picks[list(ids)] += 1
    assert clients.asked == []
    near(picks / 1000, [0.25, 0.5, 0.25], 0.05)
    # om = (0, 1, 0) has one client; with the floor of 1e-6 the others can be drawn too.
    for kappa in (1, 2, 3):
        ids, _ = chooser.choose(2, kappa, clients, {"om": [0.0, 1.0, 0.0]}, np.random.default_rng(0))
        assert len(set(ids)) == kappa
        assert 1 in ids
