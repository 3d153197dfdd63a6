"""FedDiverse: the loss of the biased model, and the choice of triples (Algorithm 5)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from feddiverse_cases import rule, table6
from federations import near
from golden_cases import stored
from torch import Tensor

from benchmark.config.compose import compose
from benchmark.heterogeneity import triplets as triplets_of
from methods.core.contexts import Batch
from methods.selection.feddiverse import FedDiverse
from methods.shared.triplets import Gce

GCE = stored("gce_loss")


# The loss of the biased model ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["q1em6", "q0p1", "q0p3", "q0p5", "q0p7", "q0p9", "q1"])
@pytest.mark.parametrize("case", range(3))
def test_generalised_cross_entropy_is_the_golden_one(case: int, tag: str) -> None:
    """Value and gradient, the gradient through autograd. One p_y is 3e-8."""
    q = dict(zip(GCE["q_tags"].tolist(), GCE["q_values"].tolist(), strict=True))[tag]
    logits = torch.from_numpy(GCE[f"c{case}_logits"]).requires_grad_()
    y = torch.from_numpy(GCE[f"c{case}_labels"])
    batch = Batch(logits, y, logits, logits, torch.zeros(()), torch.arange(len(y)))
    loss = Gce(q=q).loss(None, batch)  # type: ignore[arg-type]
    assert loss.ce_weight == 0
    assert isinstance(loss.extra, Tensor)
    loss.extra.backward()
    near(loss.extra.detach(), GCE[f"c{case}_{tag}_loss_paper"], 1e-10)
    near(logits.grad, GCE[f"c{case}_{tag}_grad_paper"], 1e-10)


# Triples --------------------------------------------------------------------------------------------------------


def simulated(triplets: np.ndarray, chooser: FedDiverse, rounds: int = 400) -> np.ndarray:
    """How often each client is chosen [rounds, K], 9 per round; the first round is 1, as with T0 = 1."""
    taken = np.zeros((rounds, len(triplets)))
    for t in range(rounds):
        ids = chooser._triples(triplets, 9, t + 1, np.random.default_rng([5, t]))
        assert len(ids) == len(set(ids)) == 9
        taken[t, ids] = 1
    return taken


@pytest.mark.parametrize(
    ("values", "all_three"),
    [({}, (0.07, 0.17)), ({"normalise": "rows_l2"}, (0.97, 1)), ({"third": "absolute"}, (1, 1))],
)
def test_the_three_class_imbalanced_clients_of_waterbirds(
    values: dict, all_three: tuple[float, float], published: Path
) -> None:
    """Appendix F, Fig. 9 reports all three in every round; the printed signed product takes two in most rounds."""
    triplets = triplets_of(table6(published, "waterbirds_dist"))
    imbalanced = np.round(triplets, 2).argmax(1) == 0
    assert imbalanced.sum() == 3
    taken = simulated(triplets, rule(**values))[:, imbalanced].sum(1)
    assert taken.min() >= 2
    assert all_three[0] <= (taken == 3).mean() <= all_three[1]


@pytest.mark.parametrize("normalise", ["l1", "rows_l2"])
@pytest.mark.parametrize(("third", "shares"), [("signed", (0.30, 0.26, 0.44)), ("absolute", (1 / 3,) * 3)])
def test_shares_on_gsc(normalise: str, third: str, shares: tuple[float, ...], published: Path) -> None:
    """Shares of CI, AI and SC clients with true triplets; Appendix F reports near a third each (Fig. 5)."""
    triplets = triplets_of(table6(published, "spawrious_gsc"))
    types = np.round(triplets, 2).argmax(1)
    assert np.bincount(types).tolist() == [4, 4, 16]
    taken = simulated(triplets, rule(normalise=normalise, third=third))
    near([taken[:, types == kind].sum() / taken.sum() for kind in range(3)], shares, 0.012)


@pytest.mark.parametrize("name", ["feddiverse", "feddiverse_known"])
def test_the_third_client_is_signed_in_the_papers_form_and_in_the_codes(name: str) -> None:
    """Section 4.2, Algorithm 5 and the authors' code. The file names the form, so that it is part of a run's hash."""
    selection = compose("quick", {"selection": {"name": name}})["selection"]
    assert selection["third"] == rule().third == rule(variant="reference").third == "signed"


@pytest.mark.parametrize("normalise", ["l1", "rows_l2"])
@pytest.mark.parametrize("third", ["absolute", "signed"])
def test_second_and_third_are_what_algorithm_5_says(normalise: str, third: str) -> None:
    """Random triplets (no ties): every second is the least aligned, every third the most orthogonal of those left."""
    triplets = np.random.default_rng(0).uniform(0.05, 1, (17, 3))
    unit = triplets / triplets.sum(1, keepdims=True)
    if normalise == "rows_l2":
        unit = triplets / triplets.sum(0)
        unit /= np.sqrt((unit**2).sum(1, keepdims=True))
    for t in range(20):
        ids = rule(normalise=normalise, third=third)._triples(triplets, 11, t, np.random.default_rng(t))
        assert len(ids) == len(set(ids)) == 11
        for at in (0, 3, 6, 9):
            a, b, *c = ids[at : at + 3]
            left = set(range(17)) - set(ids[: at + 1])
            assert b == min(left, key=lambda k: unit[a] @ unit[k])
            product = {k: np.linalg.det(unit[[a, b, k]]) for k in left - {b}}  # <a x b, k>
            assert c in (
                [],
                [max(product, key=lambda k: abs(product[k]) if third == "absolute" else product[k])],
            )


def test_the_first_of_a_triple_rotates_over_dimensions() -> None:
    """Clients 0-2 have CI only, 3-5 AI only, 6-8 SC only: (t + j) mod 3 in the order SC, CI, AI.

    The absolute product takes one client of each kind, so that no kind runs out.
    """
    triplets = np.repeat(np.eye(3), 3, axis=0)
    for t in range(6):
        ids = rule(third="absolute")._triples(triplets, 9, t, np.random.default_rng(t))
        kinds = ["CI AI SC".split()[k // 3] for k in ids]
        assert kinds[::3] == ["SC CI AI".split()[(t + j) % 3] for j in range(3)]
        assert all(len(set(kinds[at : at + 3])) == 3 for at in (0, 3, 6))
    chooser = rule(start="random")
    starts = [chooser._triples(triplets, 1, 0, np.random.default_rng(t))[0] // 3 for t in range(300)]
    near(np.bincount(starts) / 300, 1 / 3, 0.1)


def test_the_first_is_drawn_in_proportion_to_its_value_among_those_left() -> None:
    """t = 0 starts with SC = (.1, .3, .6, 0): each client's share of first places, and 0 never comes."""
    triplets = np.array([[0, 0, 0.1], [0, 0, 0.3], [0, 0, 0.6], [1, 0, 0]])
    first = [rule()._triples(triplets, 1, 0, np.random.default_rng(s))[0] for s in range(2000)]
    near(np.bincount(first, minlength=4) / 2000, [0.1, 0.3, 0.6, 0], 0.03)
