"""Statistics of a table against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from benchmark.errors import ConfigError
from benchmark.experiments.metrics import WhichRound
from benchmark.reports.statistics import (
    Mark,
    Tau,
    agreement,
    mean_tau,
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


def test_p_value_of_two_degrees_of_freedom_in_closed_form() -> None:
    # Differences 10 9 8: t = 9 / (1 / sqrt 3), one-sided p = (1 - t / sqrt(t^2 + 2)) / 2.
    assert p_better(seeds(70, 71, 72), seeds(60, 62, 64)) == pytest.approx((1 - math.sqrt(243 / 245)) / 2)
    assert p_better(seeds(60, 62, 64), seeds(70, 71, 72)) == pytest.approx((1 + math.sqrt(243 / 245)) / 2)


def test_p_value_pairs_by_seed_and_needs_two_of_them() -> None:
    shuffled = {2: 64.0, 0: 60.0, 1: 62.0, 7: 0.0}
    assert p_better(seeds(70, 71, 72), shuffled) == pytest.approx((1 - math.sqrt(243 / 245)) / 2)
    assert p_better({0: 1.0}, {0: 0.0}) is None
    assert p_better({0: 1.0, 1: 2.0}, {1: 0.0, 2: 1.0}) is None


@pytest.mark.parametrize(
    ("best", "other", "p"),
    [((0.3, 0.4), (0.3, 0.4), 1.0), ((0.3, 0.4), (0.1, 0.2), 0.0), ((0.1, 0.2), (0.3, 0.4), 1.0)],
)
def test_p_value_without_any_noise(best: tuple[float, ...], other: tuple[float, ...], p: float) -> None:
    """0.3 - 0.1 and 0.4 - 0.2 differ in the last bit only."""
    assert p_better(seeds(*best), seeds(*other)) == p


def test_ranks() -> None:
    marks = rank({"x": seeds(60, 62, 64), "y": seeds(70, 71, 72), "z": seeds(70.5, 69, 72)}, True)
    assert marks["y"] == Mark(best=True)
    assert marks["z"].second and marks["z"].not_worse
    assert not marks["x"].second and not marks["x"].not_worse
    assert [mark.words for mark in marks.values()] == ["", "best", "second not_significantly_worse"]


def test_lower_can_be_better() -> None:
    marks = rank({"x": seeds(0.5, 0.6, 0.7), "y": seeds(1.5, 1.7, 1.6)}, False)
    assert marks["x"].best
    assert marks["y"].second and not marks["y"].not_worse  # differences 1.0 1.1 0.9


def test_means_that_print_the_same_share_their_place() -> None:
    marks = rank({"x": {0: 90.001}, "y": {0: 90.004}, "z": {0: 89.0}, "u": {0: 89.0}, "v": {0: 88.0}}, True)
    assert [marks[k].best for k in "xyzuv"] == [True, True, False, False, False]
    assert [marks[k].second for k in "xyzuv"] == [False, False, True, True, False]


def test_nobody_is_ranked_alone() -> None:
    assert rank({"x": seeds(1.0, 2.0)}, True) == {"x": Mark()}
    assert rank({}, True) == {}


def test_kendall() -> None:
    # Three pairs, one turned round.
    assert agreement({"a": 1, "b": 2, "c": 3}, {"a": 10, "b": 30, "c": 20}).value == pytest.approx(1 / 3)
    # tau-b with a tie in one order: (2 - 0) / sqrt(2 * 3).
    assert agreement({"a": 1, "b": 1, "c": 3}, {"a": 10, "b": 20, "c": 30}).value == pytest.approx(
        2 / math.sqrt(6)
    )
    assert agreement({"a": 1, "b": 2}, {"b": 1, "c": 5}) == Tau(None, 1)
    assert agreement({"a": 1, "b": 1}, {"a": 1, "b": 5}) == Tau(None, 2)


def test_mean_tau_leaves_undefined_columns_out() -> None:
    assert mean_tau([Tau(1.0, 3), Tau(None, 1), Tau(0.5, 4)]) == Tau(0.75, 2)
    assert mean_tau([Tau(None, 0)]) == Tau(None, 0)


def test_the_reported_round() -> None:
    test = {5: 0.5, 10: 0.9, 20: 0.7, 15: 0.8}
    validation = {5: 0.1, 10: 0.6, 15: 0.7, 20: 0.7}
    assert reported_value(WhichRound.parse("last"), test, None) == 0.7
    assert reported_value(WhichRound.parse("mean_last_2"), test, None) == pytest.approx(0.75)
    assert reported_value(WhichRound.parse("best_validation"), test, validation) == 0.8  # 15 before 20
    assert reported_value(WhichRound.parse("best_test"), test, None) == 0.9
    assert reported_value(WhichRound.parse("best_test"), test, None, higher_is_better=False) == 0.5


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


@pytest.mark.parametrize("text", ["best", "mean_last_0", "mean_last_", "first"])
def test_unknown_rules_for_the_round(text: str) -> None:
    with pytest.raises(ValueError, match="expected last, mean_last_<n>"):
        WhichRound.parse(text)
