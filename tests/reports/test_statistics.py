"""Statistics of a table against numbers worked out by hand, and mean ranks against Demsar (JMLR 7, 2006)."""

import math

import pandas as pd
import pytest

from benchmark.errors import ConfigError
from benchmark.experiments.metrics import WhichRound
from benchmark.reports.statistics import (
    Difference,
    Mark,
    Summary,
    agreement,
    critical_difference,
    holm,
    p_better,
    paired_difference,
    rank,
    ranking,
    reported_value,
    summarise,
    welch,
)


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_summary_uses_the_sample_standard_deviation() -> None:
    summary = summarise([2.0, 4.0, 4.0, 6.0])  # squares of the deviations: 4 + 0 + 0 + 4, over 3
    assert (summary.mean, summary.std, summary.n) == (4.0, pytest.approx(math.sqrt(8 / 3)), 4)
    assert summarise([5.0]).std is None


P = (1 - math.sqrt(243 / 245)) / 2
"""Differences 10 9 8: t = 9 / (1 / sqrt 3), with two degrees of freedom one-sided p = (1 - t / sqrt(t^2 + 2)) / 2."""


@pytest.mark.parametrize(
    ("best", "other", "p"),
    [
        (seeds(70, 71, 72), seeds(60, 62, 64), P),
        (seeds(60, 62, 64), seeds(70, 71, 72), 1 - P),
        # Paired by seed, of which the test needs two.
        (seeds(70, 71, 72), {2: 64.0, 0: 60.0, 1: 62.0, 7: 0.0}, P),
        ({0: 1.0}, {0: 0.0}, None),
        ({0: 1.0, 1: 2.0}, {1: 0.0, 2: 1.0}, None),
        # Without any noise: 0.3 - 0.1 and 0.4 - 0.2 differ in the last bit only.
        (seeds(0.3, 0.4), seeds(0.3, 0.4), 1.0),
        (seeds(0.3, 0.4), seeds(0.1, 0.2), 0.0),
        (seeds(0.1, 0.2), seeds(0.3, 0.4), 1.0),
    ],
)
def test_p_values(best: dict[int, float], other: dict[int, float], p: float | None) -> None:
    assert p_better(best, other) == (p if p is None else pytest.approx(p, abs=1e-15))


def test_equal_models_may_differ_in_the_last_bit() -> None:
    found = paired_difference(seeds(0.1 + 0.2, 0.1 + 0.2), seeds(0.3, 0.3))
    assert found is not None and (found.interval, found.p) == ((0, 0), 1)


def test_paired_differences() -> None:
    """10 9 8 as above. The 97.5 % quantile of t with two degrees of freedom is 4.302653, with one it is 12.706205."""
    found = paired_difference({**seeds(70, 71, 72), 8: 1.0}, {2: 64.0, 0: 60.0, 1: 62.0, 7: 0.0})
    half = 4.302653 / math.sqrt(3)
    assert found is not None and (found.mean, found.n) == (9.0, 3)
    assert found.interval == pytest.approx((9 - half, 9 + half), abs=1e-6)
    two = paired_difference(seeds(1, 3), seeds(0, 0))  # mean 2, standard deviation sqrt 2
    assert two is not None and two.interval == pytest.approx((2 - 12.706205, 2 + 12.706205), abs=1e-6)
    assert paired_difference({0: 1.5}, {0: 1.0, 1: 9.0}) == Difference(0.5, 1)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_the_difference_of_printed_means() -> None:
    """FedDiverse's 94.01 +- 0.98 and 92.00 +- 1.61 over three runs each; then equal SDs, with 4 degrees of freedom."""
    found = welch(Summary(94.01, 0.98, 3), Summary(92.00, 1.61, 3))
    assert str(found) == "+2.01 [-1.28, +5.30]"
    assert (found.n, found.error) == (0, pytest.approx(math.sqrt((0.98**2 + 1.61**2) / 3)))
    equal = welch(Summary(5.0, 1.0, 3), Summary(2.0, 1.0, 3))
    half = 2.776445 * math.sqrt(2 / 3)  # the 97.5 % quantile of t with 4 degrees of freedom
    assert equal.interval == pytest.approx((3 - half, 3 + half), abs=1e-6)
    assert welch(Summary(5.0, None, 0), Summary(2.0, 1.0, 3)) == Difference(3.0)


def test_the_difference_of_two_differences() -> None:
    """Squared errors 2/3 (4 degrees of freedom) and 1/3 (2): 1 / ((4/9)/4 + (1/9)/2) = 6 degrees of freedom."""
    published = welch(Summary(5.0, 1.0, 3), Summary(2.0, 1.0, 3))
    found = published.minus(Difference(1.0, 3, math.sqrt(1 / 3), 2))
    assert (found.mean, found.error, found.freedom) == pytest.approx((2, 1, 6))
    assert found.interval == pytest.approx((2 - 2.446912, 2 + 2.446912), abs=1e-6)
    assert published.minus(Difference(1.0, 1)).interval is None


def of_pairs(mean: float, error: float | None = 1.0) -> Difference:
    """A difference of three pairs, whose two-sided p is 1 - t / sqrt(t^2 + 2)."""
    return Difference(mean, 3, error, 2)


@pytest.mark.parametrize(
    ("difference", "p"),
    [
        (of_pairs(-9, math.sqrt(1 / 3)), 2 * P),
        (of_pairs(0), 1),
        (of_pairs(2, 0.0), 0),
        (of_pairs(0, 0.0), 1),
        (of_pairs(2, None), None),
    ],
)
def test_two_sided_p_values(difference: Difference, p: float | None) -> None:
    assert difference.p == (p if p is None else pytest.approx(p, abs=1e-12))


@pytest.mark.parametrize(
    ("means", "halves"),
    [
        ((3, 10, 7), (4.302653, 7.6488, 6.2053)),  # 10 and 7 are rejected, 3 is not
        ((4.5, 10, 5), (6.2053, 7.6488, 6.2053)),  # 5 is not, so 4.5 is not either
        ((-7.5, 7, -5), (7.6488, 7.6488, 7.6488)),  # not even the largest
    ],
)
def test_intervals_by_holm(means: tuple[float, ...], halves: tuple[float, ...]) -> None:
    """Three differences with error 1 and one without: t must exceed 7.6488 (0.05/3), 6.2053 (0.05/2) and 4.302653."""
    first, *others = holm([*map(of_pairs, means[:1]), of_pairs(9, None), *map(of_pairs, means[1:]), None])
    assert (others[0], others[-1]) == (None, None)
    for mean, half, interval in zip(means, halves, (first, *others[1:3]), strict=True):
        assert interval == pytest.approx((mean - half, mean + half), abs=1e-4)
    assert holm([]) == []


def test_lower_can_be_better() -> None:
    marks = rank({"x": seeds(0.5, 0.6, 0.7), "y": seeds(1.5, 1.7, 1.6)}, False)
    assert marks["x"].best
    assert marks["y"].second and not marks["y"].not_worse  # differences 1.0 1.1 0.9


def test_means_that_print_the_same_share_their_place() -> None:
    marks = rank({"x": {0: 90.001}, "y": {0: 90.004}, "z": {0: 89.0}, "u": {0: 89.0}, "v": {0: 88.0}}, True)
    assert [marks[k].best for k in "xyzuv"] == [True, True, False, False, False]
    assert [marks[k].second for k in "xyzuv"] == [False, False, True, True, False]
    assert rank({"x": seeds(1.0, 2.0)}, True) == {"x": Mark()}  # nobody is ranked alone
    assert rank({}, True) == {}


@pytest.mark.parametrize(
    ("rule", "higher", "value"),
    [
        ("last", True, 0.7),
        ("mean_last_2", True, 0.75),
        ("mean_until_14", True, 0.7),  # 5 and 10; not the untrained model
        ("best_validation", True, 0.8),  # 15 before 20
        ("best_test", True, 0.9),
        ("best_test", False, 0.5),
    ],
)
def test_the_reported_round(rule: str, higher: bool, value: float) -> None:
    test = {0: 0.6, 5: 0.5, 10: 0.9, 20: 0.7, 15: 0.8}
    validation = {5: 0.1, 10: 0.6, 15: 0.7, 20: 0.7, 25: 0.9}
    assert reported_value(WhichRound.parse(rule), test, validation, higher) == pytest.approx(value)
    assert reported_value(WhichRound.parse(rule), {}, validation, higher) is None


@pytest.mark.parametrize(
    ("which", "every", "message"),
    [
        (
            "mean_last_4",
            5,
            r"got '3 evaluations \(train.rounds=10, evaluation.every=5\)'; expected at least 4",
        ),
        ("mean_until_4", 5, "expected an evaluated round from 1 to 4"),
        ("best_validation", 5, "evaluation.validation: got None"),
    ],
)
def test_a_round_that_a_run_does_not_have(which: str, every: int, message: str) -> None:
    """Rounds 0, 5 and 10 are evaluated."""
    rule = WhichRound.parse(which)
    with pytest.raises(ConfigError, match=message):
        rule.require(10, every, None)
    rule.require(10, 3, 0.1)


# Agreement with the published order ---------------------------------------------------------------------------


def test_kendall() -> None:
    """Three methods, one pair turned round; tau-b with a tie in one order: (2 - 0) / sqrt(2 * 3); undefined."""

    assert agreement([1, 2, 3], [10, 30, 20]) == pytest.approx(1 / 3)
    assert agreement([1, 1, 3], [10, 20, 30]) == pytest.approx(2 / math.sqrt(6))
    assert agreement([2], [1]) is agreement([1, 1], [1, 5]) is None


# Mean ranks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_critical_values_of_the_nemenyi_test(k: int, q: float) -> None:
    """Table 5a of the paper, alpha 0.05; CD = q sqrt(k (k + 1)/(6 N))."""
    assert critical_difference(k, 14) == pytest.approx(q * math.sqrt(k * (k + 1) / (6 * 14)), abs=2e-3)


def test_mean_ranks_by_hand() -> None:
    """Column 1 has the means 2, 2.5, 1.5 over its two seeds: ranks 2 1 3. In column 2 a run of b diverged: 1 3 2."""
    blocks = [[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [2.0, 2.0, 0.0], [5.0, -math.inf, 1.0]]
    order = ranking(pd.DataFrame(blocks, list("1122"), list("abc")))
    table = order.table
    assert table["rank"].to_dict() == {"a": 1.5, "b": 2, "c": 2.5}
    assert (list(table.index), order.blocks) == (["a", "b", "c"], 2)
    assert ((1 <= table["low"]) & (table["low"] <= table["rank"])).all()
    assert ((table["rank"] <= table["high"]) & (table["high"] <= 3)).all()
    # 0.1 + 0.2 is not 0.3 in floats; the last bit makes no rank.
    last_bit = pd.DataFrame([[0.3, 0.1 + 0.2, 0.29]], columns=["a", "b", "c"])
    assert ranking(last_bit).table["rank"].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}


@pytest.mark.parametrize(
    ("turned", "cliques", "apart"),
    [
        (0, [("a", "b"), ("b", "c"), ("c", "d")], "a from c, d; b from d"),
        (6, [("a", "b", "c")], "a from d; b from d; c from d"),
    ],
)
def test_cliques(turned: int, cliques: list[tuple[str, ...]], apart: str) -> None:
    """CD of 4 methods over 14 blocks is 1.25: ranks 1, 2, 3, 4 join neighbours only; 1, 1.6, 2.2, 4 the first three."""
    blocks = [[4.0, 3.0, 2.0, 1.0]] * (14 - turned) + [[2.0, 3.0, 4.0, 1.0]] * turned
    order = ranking(pd.DataFrame(blocks, range(14), list("abcd")))
    assert (order.cliques, order.apart) == (cliques, apart)
