"""Mean ranks and critical differences, by hand and against the tables of Demsar (JMLR 7, 2006)."""

import math

import numpy as np
import pandas as pd
import pytest

from benchmark.reports.statistics import critical_difference, mean_agreement, ranking


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_critical_values_of_the_nemenyi_test(k: int, q: float) -> None:
    """Table 5a of the paper, alpha 0.05; CD = q sqrt(k (k + 1)/(6 N))."""
    assert critical_difference(k, 14) == pytest.approx(q * math.sqrt(k * (k + 1) / (6 * 14)), abs=2e-3)


def test_mean_ranks_by_hand() -> None:
    """Blocks (3, 2, 1), (1, 3, 2), (2, 2, 0) and one where b diverged: ranks 1 2 3, 3 1 2, 1.5 1.5 3, 1 3 2."""
    values = pd.DataFrame(
        [[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [2.0, 2.0, 0.0], [5.0, -math.inf, 1.0]], list("1122"), list("abc")
    )
    found = ranking(values)
    assert found.table["rank"].to_dict() == {"a": 6.5 / 4, "b": 7.5 / 4, "c": 10 / 4}
    assert list(found.table.index) == ["a", "b", "c"]
    assert found.blocks == 4
    assert (found.table["low"] <= found.table["rank"]).all()
    assert (found.table["rank"] <= found.table["high"]).all()
    assert found.table.loc["a", "low"] >= 1 and found.table.loc["c", "high"] <= 3


def test_the_last_bit_makes_no_rank() -> None:
    """0.1 + 0.2 is not 0.3 in floats; a and b share ranks 1 and 2."""
    values = pd.DataFrame([[0.3, 0.1 + 0.2, 0.29]], columns=["a", "b", "c"])
    assert ranking(values).table["rank"].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}


def test_the_interval_has_no_width_where_all_blocks_agree() -> None:
    found = ranking(pd.DataFrame(np.tile([3.0, 2.0, 1.0], (6, 1)), list("111222"), list("abc")))
    assert found.table["low"].tolist() == found.table["high"].tolist() == [1.0, 2.0, 3.0]
    # Friedman's statistic is at its largest, N (k - 1) = 12 with 2 degrees of freedom: p = exp(-6).
    assert found.p == pytest.approx(math.exp(-6))


@pytest.mark.parametrize(
    ("turned", "cliques"), [(0, [("a", "b"), ("b", "c"), ("c", "d")]), (6, [("a", "b", "c")])]
)
def test_cliques(turned: int, cliques: list[tuple[str, ...]]) -> None:
    """CD of 4 methods over 14 blocks is 1.25: ranks 1, 2, 3, 4 join neighbours only; 1, 1.6, 2.2, 4 the first three."""
    blocks = [[4.0, 3.0, 2.0, 1.0]] * (14 - turned) + [[2.0, 3.0, 4.0, 1.0]] * turned
    assert ranking(pd.DataFrame(blocks, [1] * 14, list("abcd"))).cliques == cliques


@pytest.mark.parametrize("values", [{"a": [1.0, 2.0]}, {"a": [1.0, np.nan], "b": [1.0, 2.0]}])
def test_what_cannot_be_ranked(values: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError, match="needs two methods"):
        ranking(pd.DataFrame(values))


def test_agreement_with_the_published_order() -> None:
    """Three methods: the same order in all seeds is 1, the reverse -1, two of three pairs the same (2 - 1) / 3."""
    published = np.array([1.0, 2.0, 3.0])
    same, turned, part = ([[1, 1], [2, 2], [3, 3]], [[3, 3], [2, 2], [1, 1]], [[2, 2], [1, 1], [3, 3]])
    columns = [(np.array(values, dtype=float), published) for values in (same, turned, part)]
    assert mean_agreement(columns[:1]) == (1, 1, 1)
    assert mean_agreement(columns[1:2]) == (-1, -1, -1)
    tau, low, high = mean_agreement(columns) or (0, 0, 0)
    assert (tau, low, high) == pytest.approx((1 / 9, -1, 1))
    tied = np.ones((3, 2))
    assert mean_agreement([(tied, published)]) is None
    assert mean_agreement([(tied, published), *columns[:1]]) == (1, 1, 1)


def test_agreement_of_seeds_that_differ() -> None:
    """Seed 0 has the published order, seed 1 the reverse by less: their mean is 1; of four pairs of seeds one is -1."""
    tau, low, high = mean_agreement([(np.array([[1.0, 3.0], [4.0, 2.0]]), np.array([1.0, 2.0]))]) or (0, 0, 0)
    assert (tau, low, high) == (1, -1, 1)
