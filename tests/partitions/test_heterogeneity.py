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


POOLED = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        # Client 0 has one class and one attribute value; client 1 is perfectly correlated; pooled [[3, 0], [0, 1]].
        ([[[2, 0], [0, 0]], [[1, 0], [0, 1]]], [1 - POOLED / math.log(2)] * 2 + [1.0, 0.5, 0.5, 0.5]),
        # No attributes: only the class metrics are defined. CI of the clients: 1 and 1 - log 2 / log 4.
        ([[10, 0, 0, 0], [5, 5, 0, 0]], [1 - POOLED / math.log(4), None, None, 0.75, None, None]),
        # One class has no class imbalance. CAI: both clients have shares 3/4 and 1/4.
        ([[[3, 1]], [[1, 3]]], [None, 0.0, None, None, 1 - POOLED / math.log(2), None]),
    ],
)
def test_six_metrics_by_hand(counts: list, expected: list[float | None]) -> None:
    assert list(six_metrics(counts).values()) == pytest.approx(expected, abs=1e-12)
