"""The statistics of a table: spread over seeds, who leads, who is within noise, and how well an order is met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmark.errors import ConfigError
from benchmark.experiments.metrics import WhichRound

ALPHA = 0.05
"""A difference is called significant below this p-value."""


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation (divisor n - 1; None for one value) of n values."""

    mean: float
    std: float | None
    n: int


def summarise(values: Sequence[float]) -> Summary:
    """Mean, sample standard deviation and number of ``values``, which are not empty."""
    array = np.asarray(values, dtype=np.float64)
    return Summary(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None, len(array))


def p_better(best: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """P-value of the paired one-sided t-test, over the seeds that both have, that ``best`` lies above ``other``.

    None with fewer than two common seeds. If all differences are the same there is no noise to compare with: 1 if they
    are 0, else the limit of the test, 0 if ``best`` is above and 1 if it is below.
    """
    seeds = sorted(best.keys() & other.keys())
    if len(seeds) < 2:
        return None
    first, second = (np.array([runs[seed] for seed in seeds], dtype=np.float64) for runs in (best, other))
    difference = first - second
    rounding = 1e-12 * max(1.0, float(np.abs(first).max()), float(np.abs(second).max()))
    if float(np.ptp(difference)) <= rounding:
        return 0.0 if float(difference.mean()) > rounding else 1.0
    return float(stats.ttest_rel(first, second, alternative="greater").pvalue)


@dataclass(frozen=True)
class Mark:
    """Place of one method in its column.

    ``p`` is that of the best method being better than this one: None for the best itself and where no test is possible.
    """

    best: bool = False
    second: bool = False
    p: float | None = None

    @property
    def not_worse(self) -> bool:
        """Not the best, but not significantly worse than it."""
        return not self.best and self.p is not None and self.p >= ALPHA

    @property
    def words(self) -> str:
        """The marks as words for a CSV."""
        flags = {"best": self.best, "second": self.second, "not_significantly_worse": self.not_worse}
        return " ".join(word for word, on in flags.items() if on)


def rank(
    values: Mapping[str, Mapping[int, float]], higher_is_better: bool, decimals: int = 2
) -> dict[str, Mark]:
    """Mark the methods of one column. ``values``: method -> seed -> value.

    Means that print the same with ``decimals`` digits share a place; the second place is the next value that is shown.
    With fewer than two methods nobody is marked. The tests run against the best unrounded mean.
    """
    if len(values) < 2:
        return {method: Mark() for method in values}
    sign = 1.0 if higher_is_better else -1.0
    means = {method: sign * summarise(list(runs.values())).mean for method, runs in values.items()}
    shown = {method: round(mean, decimals) for method, mean in means.items()}
    places = sorted(set(shown.values()), reverse=True)
    leader = max(means, key=lambda method: means[method])
    signed = {method: {seed: sign * value for seed, value in runs.items()} for method, runs in values.items()}
    marks = {}
    for method in values:
        if shown[method] == places[0]:
            marks[method] = Mark(best=True)
        else:
            p = p_better(signed[leader], signed[method])
            marks[method] = Mark(second=shown[method] == places[1], p=p)
    return marks


@dataclass(frozen=True)
class Tau:
    """Kendall's tau-b of two orders of ``n`` methods; ``value`` is None if n < 2 or one order is all ties."""

    value: float | None
    n: int


def agreement(measured: Mapping[str, float], published: Mapping[str, float]) -> Tau:
    """Kendall's tau-b of the measured against the published values, over the methods that have both."""
    both = [method for method in measured if method in published]
    if len(both) < 2:
        return Tau(None, len(both))
    tau = float(stats.kendalltau([measured[m] for m in both], [published[m] for m in both]).statistic)
    return Tau(tau if np.isfinite(tau) else None, len(both))


def mean_tau(taus: Sequence[Tau]) -> Tau:
    """Unweighted mean over the columns where tau is defined; ``n`` is the number of those columns."""
    values = [tau.value for tau in taus if tau.value is not None]
    return Tau(float(np.mean(values)) if values else None, len(values))


def reported_value(
    which: WhichRound,
    test: Mapping[int, float],
    validation: Mapping[int, float] | None,
    higher_is_better: bool = True,
) -> float:
    """The one value of a run that enters a table. ``test``, ``validation``: evaluated round -> value.

    Of equally good rounds the earliest counts. Raises `ConfigError` if the run has not evaluated often enough, or
    not on a validation split where the rule needs one.
    """
    if not test:
        raise ConfigError(
            "no evaluated round to report; set evaluation.every so that the last round is evaluated."
        )
    rounds = sorted(test)
    if which.rule == "last":
        return float(test[rounds[-1]])
    if which.rule == "mean_last":
        if len(rounds) < which.n:
            raise ConfigError(
                f"which_round mean_last_{which.n} needs {which.n} evaluated rounds, the run has {len(rounds)}. Lower "
                "evaluation.every or the table's which_round."
            )
        return float(np.mean([test[r] for r in rounds[-which.n :]]))
    chooser = (
        test if which.rule == "best_test" else {r: v for r, v in (validation or {}).items() if r in test}
    )
    if not chooser:
        raise ConfigError(
            "which_round best_validation: the run has no validation values; hold out a validation split."
        )
    sign = 1.0 if higher_is_better else -1.0
    return float(test[max(sorted(chooser), key=lambda r: sign * chooser[r])])
