"""The statistics of a table: spread over seeds, best methods, noise, agreement of orders, mean ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter

import numpy as np
import pandas as pd
from scipy import stats

from benchmark.experiments.metrics import WhichRound

ALPHA = 0.05
"""A difference is called significant below this p-value."""

DRAWS = 5000
"""Bootstrap samples of a ranking."""


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation (divisor n - 1; None for one value) of n values."""

    mean: float
    std: float | None
    n: int

    def __str__(self) -> str:
        """``62.00 ± 2.00``; without a spread ``62.00``."""
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


def summarise(values: Sequence[float]) -> Summary:
    """Mean, sample standard deviation and number of ``values``, which are not empty."""
    array = np.asarray(values, dtype=np.float64)
    return Summary(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None, len(array))


Interval = tuple[float, float]


@cache
def _quantile(p: float, freedom: float) -> float:
    """Of Student's t. Thousands of comparisons ask for the same few."""
    return float(stats.t.ppf(p, freedom))


@dataclass(frozen=True)
class Difference:
    """A mean difference; ``error`` is its standard error with ``freedom`` degrees of freedom, None where not known.

    ``n``: number of pairs; 0 for the difference of independent means.
    """

    mean: float
    n: int = 0
    error: float | None = None
    freedom: float = 0.0

    @property
    def interval(self) -> Interval | None:
        """95 % interval by Student's t; None for one pair."""
        return self.interval_at(ALPHA)

    def interval_at(self, alpha: float) -> Interval | None:
        if self.error is None:
            return None
        half = _quantile(1 - alpha / 2, self.freedom) * self.error
        return self.mean - half, self.mean + half

    @property
    def p(self) -> float | None:
        """P-value of the two-sided t-test that the difference is zero; None for one pair."""
        if self.error is None:
            return None
        if self.error == 0:  # no noise to compare with
            return float(self.mean == 0)
        return float(2 * stats.t.sf(abs(self.mean) / self.error, self.freedom))

    def minus(self, other: "Difference") -> "Difference":
        """This difference minus an independent one."""
        return _independent(self.mean - other.mean, (self.error, self.freedom), (other.error, other.freedom))

    def __str__(self) -> str:
        """``+9.00 [+6.52, +11.48]``; without an interval ``+9.00``."""
        return f"{self.mean:+.2f} {shown_interval(self.interval)}".rstrip()


def shown_interval(interval: Interval | None) -> str:
    """``[+6.52, +11.48]``, or nothing."""
    return "[{:+.2f}, {:+.2f}]".format(*interval) if interval else ""


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """``first`` minus ``second`` over the seeds that both have; None if they share none.

    Equal models may differ in the last bit: differences have nine digits after the point.
    """
    differences = [round(value - second[seed], 9) for seed, value in first.items() if seed in second]
    if not differences:
        return None
    found = summarise(differences)
    error = None if found.std is None else found.std / found.n**0.5
    return Difference(found.mean, found.n, error, found.n - 1)


def welch(first: Summary, second: Summary) -> Difference:
    """``first`` minus ``second``, taken for independent (Welch, Biometrika 34, 1947); no error without both SDs."""
    parts = [(None if s.std is None else s.std / s.n**0.5, s.n - 1) for s in (first, second)]
    return _independent(first.mean - second.mean, *parts)


def _independent(mean: float, *parts: tuple[float | None, float]) -> Difference:
    """A difference of independent estimates, given (standard error, degrees of freedom) of each.

    The degrees of freedom are Satterthwaite's (Biometrics Bulletin 2, 1946).
    """
    squares = [(error**2, freedom) for error, freedom in parts if error is not None]
    total = sum(square for square, _ in squares)
    if len(squares) < len(parts) or total == 0:
        return Difference(mean)
    freedom = total**2 / sum(square**2 / freedom for square, freedom in squares)
    return Difference(mean, 0, total**0.5, freedom)


def holm(differences: Sequence[Difference | None]) -> list[Interval | None]:
    """Intervals that exclude zero exactly where Holm's test rejects at 5 % (Scand. J. Statist. 6, 1979).

    By p-value, the difference at place i (from 0) of m has level 1 - 0.05 / (m - i) as long as all before it are
    rejected. The first that is not rejected gives its level to all after it. A difference without a p-value is no
    member of the family and has None.
    """
    intervals: list[Interval | None] = [None] * len(differences)
    family = [
        (found.p, place, found) for place, found in enumerate(differences) if found and found.p is not None
    ]
    alpha, rejected = ALPHA, True
    for rank, (p, place, found) in enumerate(sorted(family, key=itemgetter(0))):
        if rejected:
            alpha = ALPHA / (len(family) - rank)
            rejected = p < alpha
        intervals[place] = found.interval_at(alpha)
    return intervals


def p_better(best: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """P-value of the paired one-sided t-test, over the seeds that both have, that ``best`` lies above ``other``.

    None with fewer than two common seeds. If all differences are the same there is no noise to compare with: 1 if they
    are 0, else the limit of the test, 0 if ``best`` is above and 1 if it is below.
    """
    found = paired_difference(best, other)
    if found is None or found.error is None:
        return None
    if found.error == 0:
        return 0.0 if found.mean > 0 else 1.0
    return float(stats.t.sf(found.mean / found.error, found.freedom))


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


def places(means: Mapping[str, float], higher_is_better: bool) -> dict[str, int]:
    """Place of each method, 1 for the best. Means that print the same, with two digits, share a place."""
    sign = 1.0 if higher_is_better else -1.0
    shown = {method: sign * round(mean, 2) for method, mean in means.items()}
    return {method: 1 + sum(other > mean for other in shown.values()) for method, mean in shown.items()}


def rank(values: Mapping[str, Mapping[int, float]], higher_is_better: bool) -> dict[str, Mark]:
    """Mark the methods of one column by their `places`. ``values``: method -> seed -> value.

    With fewer than two methods nobody is marked. The tests run against the best unrounded mean.
    """
    if len(values) < 2:
        return {method: Mark() for method in values}
    sign = 1.0 if higher_is_better else -1.0
    signed = {method: {seed: sign * value for seed, value in runs.items()} for method, runs in values.items()}
    means = {method: float(np.mean(list(runs.values()))) for method, runs in signed.items()}
    place = places(means, higher_is_better=True)
    second = min((number for number in place.values() if number > 1), default=0)
    leader = signed[max(means, key=means.__getitem__)]
    marks = {}
    for method, runs in signed.items():
        best = place[method] == 1
        p = None if best else p_better(leader, runs)
        marks[method] = Mark(best, place[method] == second, p)
    return marks


def agreement(measured: Sequence[float], published: Sequence[float]) -> float | None:
    """Kendall's tau-b of measured and published means of methods.

    None for fewer than two methods, or if all are tied on one side. Equal models may differ in the last bit: a tie.
    """
    tau = (
        float(stats.kendalltau(np.round(measured, 9), published).statistic) if len(published) > 1 else np.nan
    )
    return tau if np.isfinite(tau) else None


def reported_value(
    which: WhichRound,
    test: Mapping[int, float],
    validation: Mapping[int, float] | None,
    higher_is_better: bool = True,
) -> float | None:
    """The one value of a run that enters a table. ``test``, ``validation``: evaluated round -> value.

    Of equally good rounds the earliest counts. None if the metric was evaluated in none of the rounds that could count;
    `WhichRound.require` says whether a run has these rounds.
    """
    rounds = sorted(test)
    if which.rule in ("last", "mean_last"):
        counting = rounds[-which.n :]
    elif which.rule == "mean_until":  # round 0 is the untrained model
        counting = [r for r in rounds if 0 < r <= which.n]
    else:
        chooser = test if which.rule == "best_test" else (validation or {})
        sign = 1.0 if higher_is_better else -1.0
        counting = sorted((r for r in rounds if r in chooser), key=lambda r: -sign * chooser[r])[:1]
    return float(np.mean([test[r] for r in counting])) if counting else None


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of k methods over N blocks (columns of a table), best first.

    Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006,
    https://jmlr.org/papers/v7/demsar06a.html

    ``table`` has the columns rank (1 is best), low and high (95 % bootstrap interval), by method; ``critical`` is the
    critical difference of the Nemenyi test at 5 % (Eq. 6); ``p`` is of the Friedman test that all methods are equal.
    """

    table: pd.DataFrame
    blocks: int
    critical: float
    p: float

    @property
    def apart(self) -> str:
        """Which methods have mean ranks that are better than those of which others by at least ``critical``."""
        ranks = self.table["rank"]
        worse = {method: ranks.index[ranks - rank >= self.critical] for method, rank in ranks.items()}
        pairs = [f"{method} from {', '.join(others)}" for method, others in worse.items() if len(others)]
        return "; ".join(pairs) or "no two methods"

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """Largest groups of neighbours in the ranking whose first and last differ by less than ``critical``."""
        ranks = self.table["rank"]
        spans: list[tuple[int, int]] = []
        for start in range(len(ranks)):
            stop = int((ranks < ranks.iloc[start] + self.critical).sum())
            if stop - start > 1 and (not spans or stop > spans[-1][1]):
                spans.append((start, stop))
        return [tuple(self.table.index[start:stop]) for start, stop in spans]


def critical_difference(methods: int, blocks: int) -> float:
    """Nemenyi's critical difference of mean ranks at 5 %: q sqrt(k (k + 1) / (6 N)) (Eq. 6)."""
    q = float(stats.studentized_range.ppf(1 - ALPHA, methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * blocks)))


def ranking(values: pd.DataFrame) -> Ranking:
    """Rank methods by ``values`` [column x seed, methods], higher is better; a run that diverged counts as -inf.

    The index begins with the column. A method has one rank in a column, by its mean over the seeds: seeds of one
    column are not independent, and so no blocks. The interval resamples columns, and seeds within them; a column that
    is drawn twice has the same seeds both times, which makes the interval slightly wide.

    ValueError for missing values or fewer than two methods.
    """
    if values.shape[1] < 2 or values.isna().to_numpy().any():
        raise ValueError("a ranking needs two methods, and a value of each of them in every block")
    groups = values.index.get_level_values(0)
    members = [values[groups == name].to_numpy() for name in groups.unique()]
    rng = np.random.default_rng(0)
    ranks = _column_ranks(np.stack([seeds.mean(axis=0) for seeds in members]))
    # [columns, draws, methods]: ranks by the means over resampled seeds, which the methods of a column share.
    redrawn = [seeds[rng.integers(len(seeds), size=(DRAWS, len(seeds)))].mean(axis=1) for seeds in members]
    columns = rng.integers(len(members), size=(DRAWS, len(members)))
    samples = _column_ranks(np.stack(redrawn))[columns, np.arange(DRAWS)[:, None]].mean(axis=1)
    table = pd.DataFrame({"rank": ranks.mean(axis=0)}, index=values.columns)
    table["low"], table["high"] = np.percentile(samples, [2.5, 97.5], axis=0)
    blocks, methods = ranks.shape
    defined = methods > 2 and blocks > 1
    with np.errstate(invalid="ignore"):  # no value if all methods tie everywhere
        p = float(stats.friedmanchisquare(*ranks.T).pvalue) if defined else float("nan")
    critical = critical_difference(methods, blocks)
    return Ranking(table.sort_values("rank", kind="stable"), blocks, critical, p)


def _column_ranks(means: np.ndarray) -> np.ndarray:
    """Ranks along the last axis, 1 for the highest. Equal models may differ in the last bit of a mean: a tie."""
    ranks: np.ndarray = stats.rankdata(-means.round(9), axis=-1)
    return ranks
