"""Ranks of methods over several data sets: mean ranks, their confidence intervals, and which gaps mean anything.

Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006, https://jmlr.org/papers/v7/demsar06a.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import friedmanchisquare, rankdata, studentized_range

DRAWS = 5000
"""Bootstrap samples."""


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of k methods over N blocks (a column and a seed each), best first.

    ``table`` has the columns rank (1 is best), low and high (95 % bootstrap interval), by method; ``critical`` is the
    critical difference of the Nemenyi test at 5 % (Eq. 6); ``p`` is of the Friedman test that all methods are equal.
    """

    table: pd.DataFrame
    blocks: int
    critical: float
    p: float

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """Largest groups of neighbours in the ranking whose first and last differ by less than ``critical``."""
        ranks = self.table["rank"]
        found: list[tuple[int, int]] = []
        for start in range(len(ranks)):
            stop = int((ranks <= ranks.iloc[start] + self.critical).sum())
            if stop - start > 1 and (not found or stop > found[-1][1]):
                found.append((start, stop))
        return [tuple(self.table.index[start:stop]) for start, stop in found]


def critical_difference(methods: int, blocks: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of mean ranks: q_alpha sqrt(k (k + 1) / (6 N)) (Eq. 6)."""
    q = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * blocks)))


def ranking(values: pd.DataFrame, groups: Sequence[str]) -> Ranking:
    """Rank methods by ``values`` [blocks, methods], higher is better; a run that diverged counts as -inf.

    ``groups`` names the column of each block. The interval resamples columns, and seeds within them, so that it covers
    other seeds and other splits; blocks of one column are not independent, which the Nemenyi test ignores. ValueError
    for missing values or fewer than two methods.
    """
    if values.shape[1] < 2 or values.isna().to_numpy().any():
        raise ValueError("a ranking needs two methods, and a value of each of them in every block")
    # Models with the same bits may differ in the last bit of a mean over clients; that is a tie.
    ranks = rankdata(-values.to_numpy().round(9), axis=1)
    names = list(dict.fromkeys(groups))
    members = [np.flatnonzero(np.array(groups) == name) for name in names]
    rng = np.random.default_rng(0)
    draws = np.empty((DRAWS, values.shape[1]))
    for draw in draws:
        picked = [rng.choice(members[i], len(members[i])) for i in rng.integers(len(names), size=len(names))]
        draw[:] = ranks[np.concatenate(picked)].mean(axis=0)
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    table = pd.DataFrame({"rank": ranks.mean(axis=0), "low": low, "high": high}, index=values.columns)
    # The test is defined for three methods or more.
    p = float(friedmanchisquare(*ranks.T).pvalue) if values.shape[1] > 2 and len(values) > 1 else float("nan")
    critical = critical_difference(values.shape[1], len(values))
    return Ranking(table.sort_values("rank", kind="stable"), len(values), critical, p)
