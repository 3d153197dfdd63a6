"""The six metrics against the paper's printed triplets (tests/golden/feddiverse_triplets.npz) and by hand."""

import math
from pathlib import Path

import numpy as np
import pytest

from benchmark.heterogeneity import six_metrics, triplets
from partitions import make

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "feddiverse_triplets.npz", allow_pickle=False)
PRINTED = [f"m{index}" for index in range(int(GOLDEN["n_m"]))]
EDGES = [f"e{index}" for index in range(int(GOLDEN["n_e"]))]


@pytest.mark.parametrize("case", PRINTED + EDGES)
def test_triplet_is_the_golden_one_and_rounds_to_what_the_paper_prints(case: str) -> None:
    counts, expected = GOLDEN[f"{case}_counts"], GOLDEN[f"{case}_triplet"]
    values = triplets([counts, counts * 7, counts * 0])
    np.testing.assert_allclose(values, [expected, expected, 0 * expected], rtol=0, atol=1e-10)
    assert len(PRINTED) == 11
    if case in PRINTED:
        np.testing.assert_array_equal(np.round(values[0], 2), GOLDEN[f"{case}_printed"])


# Equations 2-10 on the matrices of table 6, worked out apart from this code (results/published/settings.md).
DERIVED = {
    "spawrious_gsc": (0.000, 0.000, 0.163, 0.089, 0.089, 0.354),
    "cmnist_gsc": (0.000, 0.000, 0.163, 0.089, 0.089, 0.354),
    "spawrious_gci": (0.163, 0.000, 0.000, 0.354, 0.089, 0.089),
    "spawrious_gai": (0.005, 0.441, 0.052, 0.201, 0.497, 0.119),
    "waterbirds_dist": (0.218, 0.175, 0.670, 0.262, 0.256, 0.761),
    "spawrious4": (0.000, 0.000, 0.374, 0.022, 0.044, 0.330),
    "spawrious_gci100": (0.149, 0.000, 0.000, 0.304, 0.072, 0.072),
}


@pytest.mark.parametrize("name", DERIVED)
def test_six_metrics_of_the_papers_distributions(name: str) -> None:
    metrics = six_metrics(make("interaction", {"distribution": name}).matrices())  # type: ignore[attr-defined]
    assert list(metrics) == ["GCI", "GAI", "GSC", "CCI", "CAI", "CSC"]
    np.testing.assert_array_equal(np.round(list(metrics.values()), 3), DERIVED[name])


def test_six_metrics_by_hand() -> None:
    # Client 0 has one class and one attribute value; client 1 is perfectly correlated; pooled [[3, 0], [0, 1]].
    metrics = six_metrics([[[2, 0], [0, 0]], [[1, 0], [0, 1]]])
    pooled = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(2)
    expected = {"GCI": 1 - pooled, "GAI": 1 - pooled, "GSC": 1.0, "CCI": 0.5, "CAI": 0.5, "CSC": 0.5}
    assert metrics == pytest.approx(expected, abs=1e-12)


def test_without_attributes_only_the_class_metrics_are_defined() -> None:
    metrics = six_metrics([[10, 0, 0, 0], [5, 5, 0, 0]])  # CI: 1 and 1 - log 2 / log 4
    assert (metrics["GAI"], metrics["GSC"], metrics["CAI"], metrics["CSC"]) == (None,) * 4
    assert metrics["CCI"] == pytest.approx(0.75, abs=1e-12)
    pooled = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(4)
    assert metrics["GCI"] == pytest.approx(1 - pooled, abs=1e-12)


def test_one_class_has_no_class_imbalance() -> None:
    metrics = six_metrics([[[3, 1]], [[1, 3]]])
    assert (metrics["GCI"], metrics["CCI"], metrics["GSC"], metrics["CSC"]) == (None,) * 4
    assert metrics["GAI"] == 0.0
