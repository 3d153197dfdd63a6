"""Statistics of a table against numbers worked out by hand."""

import math

import numpy as np
import pytest

from benchmark.errors import ConfigError
from benchmark.experiments.metrics import WhichRound
from benchmark.reports.statistics import (
    Mark,
    agreement,
    p_better,
    rank,
    reported_value,
    summarise,
)


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_summary_uses_the_sample_standard_deviation() -> None:
    summary = summarise([2.0, 4.0, 4.0, 6.0])  # squares of the deviations: 4 + 0 + 0 + 4, over 3
    assert (summary.mean, summary.n) == (4.0, 4)
    assert summary.std == pytest.approx(math.sqrt(8 / 3))
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


def test_kendall() -> None:
    """Three methods, one pair turned round; tau-b with a tie in one order: (2 - 0) / sqrt(2 * 3); undefined."""

    def tau(means: list[float], published: list[float]) -> float | None:
        return agreement(np.array(means)[:, None], np.array(published))

    assert tau([1, 2, 3], [10, 30, 20]) == pytest.approx(1 / 3)
    assert tau([1, 1, 3], [10, 20, 30]) == pytest.approx(2 / math.sqrt(6))
    assert tau([2], [1]) is tau([1, 1], [1, 5]) is None


@pytest.mark.parametrize(
    ("rule", "higher", "value"),
    [
        ("last", True, 0.7),
        ("mean_last_2", True, 0.75),
        ("best_validation", True, 0.8),  # 15 before 20
        ("best_test", True, 0.9),
        ("best_test", False, 0.5),
    ],
)
def test_the_reported_round(rule: str, higher: bool, value: float) -> None:
    test = {5: 0.5, 10: 0.9, 20: 0.7, 15: 0.8}
    validation = {5: 0.1, 10: 0.6, 15: 0.7, 20: 0.7, 25: 0.9}
    assert reported_value(WhichRound.parse(rule), test, validation, higher) == pytest.approx(value)


@pytest.mark.parametrize(
    ("which", "test", "message"),
    [
        ("last", {}, "no evaluated round"),
        ("mean_last_3", {1: 0.5}, "needs 3 evaluated rounds, the run has 1"),
        ("best_validation", {1: 0.5}, "validation split"),
    ],
)
def test_a_round_that_cannot_be_reported(which: str, test: dict[int, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reported_value(WhichRound.parse(which), test, None)
