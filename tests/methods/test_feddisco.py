"""FedDisco's weights against tests/golden/feddisco_weights.npz and by hand."""

import numpy as np
import pytest
from federations import near
from golden_cases import round_view, stored

from benchmark.config.compose import load_group
from methods.core.contexts import RoundView
from methods.core.method import build
from methods.feddisco import Disco, disco_weights, discrepancy

G = stored("feddisco_weights")


def view(counts: np.ndarray) -> RoundView:
    return round_view(len(counts), sizes=counts.sum(1), label_counts=counts)


@pytest.mark.parametrize("case", range(int(G["n_cases"])))
@pytest.mark.parametrize("measure", ["kl", "l2"])
def test_golden(case: int, measure: str) -> None:
    """The paper's form; the code's differs for KL alone, where it divides d by its sum."""
    counts = G[f"c{case}_class_counts"][G[f"c{case}_participants"]].astype(float)
    d = discrepancy(counts, G[f"c{case}_target_dist"], measure)
    near(d, G[f"c{case}_{measure}_d_paper"], 1e-10)
    of_code = d / d.sum() if measure == "kl" else d
    near(of_code, G[f"c{case}_{measure}_d_code"], 1e-10)
    share = G[f"c{case}_size_weight"]
    for j, (a, b) in enumerate(G["ab"]):
        for form, found in (("paper", d), ("code", of_code)):
            w = disco_weights(share, found, a, b)
            near(w, G[f"c{case}_{measure}_w_{form}_ab{j}"], 1e-10)


@pytest.mark.parametrize(("normalise", "form"), [(False, "paper"), (True, "code")])
@pytest.mark.parametrize("measure", ["kl", "l2"])
def test_the_rule_has_a_uniform_target(normalise: bool, form: str, measure: str) -> None:
    counts = G["c0_class_counts"].astype(float)
    assert G["c0_target_dist"].tolist() == [0.25] * 4
    a, b = G["ab"][0]
    rule = Disco(a=a, b=b, measure=measure, normalise=normalise)
    sizes = counts.sum(1) / counts.sum()
    np.testing.assert_allclose(G["c0_size_weight"], sizes, atol=1e-12)
    near(rule.weights(view(counts)), G[f"c0_{measure}_w_{form}_ab0"], 1e-10)


def test_the_default_does_not_cut_off_all_clients() -> None:
    """As many clients as in FedSDC's NIID-1, of 4 samples: 5 have one of four classes, 10 have two.

    d = 2 log 2 and log 2, of sum 20 log 2: 0.1 and 0.05. 1/15 - 0.5 d + 0.1 = 14/120 and 17/120, of sum 2. Unscaled,
    both terms are negative, so that sizes count.
    """
    counts = np.array([[4.0, 0, 0, 0]] * 5 + [[2.0, 2, 0, 0]] * 10)
    default = build(load_group("method", "feddisco")).weights
    near(default.weights(view(counts)), [7 / 120] * 5 + [17 / 240] * 10, 1e-12)
    unscaled = Disco(a=0.5, b=0.1, normalise=False)
    near(unscaled.weights(view(counts)), [1 / 15] * 15, 1e-12)
