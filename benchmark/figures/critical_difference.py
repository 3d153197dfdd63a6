"""Critical-difference diagram: mean ranks on a line, methods that cannot be told apart joined by a bar.

Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006, https://jmlr.org/papers/v7/demsar06a.html
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from benchmark.analyses.leaderboard import board
from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import panels
from benchmark.reports.collect import collect
from benchmark.reports.ranking import Ranking

HEIGHT = 0.24
"""Inches per method."""


@kind("critical_difference")
def critical_difference(request: Request) -> Drawing:
    """Mean rank of every method whose runs have all ended, best on top; lines: 95 % interval; bars: no difference."""
    found = board(collect(request.runs, request.preset, request.cells, request.index))
    if found.values.shape[1] < 2:
        raise request.error("fewer than two methods have all their runs; nothing to rank.")
    ranks = found.ranking
    remarks = [
        f"Dots: mean rank over {ranks.blocks} blocks (column x seed); lines: 95 % bootstrap interval. Bars join "
        f"methods whose mean ranks differ by less than {ranks.critical:.2f}, the critical difference (Nemenyi, 5 %)."
    ]
    if found.incomplete:
        remarks.append(f"Not ranked, as runs are missing: {', '.join(found.incomplete)}.")
    data = ranks.table.rename_axis("method").reset_index()
    return Drawing(_draw(ranks), data, tuple(remarks))


def _draw(ranks: Ranking) -> Figure:
    count = len(ranks.table)
    figure, (axis,) = panels(1, 1, width=7.0, height=1.1 + HEIGHT * count)
    places = dict(zip(ranks.table.index, range(count), strict=True))
    low, high = ranks.table["rank"] - ranks.table["low"], ranks.table["high"] - ranks.table["rank"]
    marks: dict[str, Any] = {"fmt": "o", "color": "black", "ecolor": "0.6", "markersize": 5}
    axis.errorbar(ranks.table["rank"], range(count), xerr=[low, high], **marks)
    for number, clique in enumerate(ranks.cliques):
        height = count + 0.3 + 0.45 * number
        ends = ranks.table.loc[[clique[0], clique[-1]], "rank"]
        axis.plot(ends, [height, height], color="0.3", linewidth=3, solid_capstyle="butt")
    axis.plot([1, 1 + ranks.critical], [-1, -1], color="firebrick", linewidth=2)
    axis.text(1 + ranks.critical / 2, -1.15, f"CD {ranks.critical:.2f}", ha="center", va="bottom", fontsize=8)
    axis.set_yticks(list(places.values()), list(places))
    axis.set_ylim(count + 0.45 * len(ranks.cliques) + 0.3, -2)
    axis.set_xlim(0.5, count + 0.5)
    axis.set_xlabel("mean rank (1 is best)")
    return figure
