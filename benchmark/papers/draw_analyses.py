"""Drawings of analyses: critical differences, costs (FedMR, Fig. 4), losses after one round (FedLD, Fig. 2)."""

import math

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from benchmark.papers import loss_decomposition as losses
from benchmark.papers import resources as costs
from benchmark.papers.figures import Drawing, Request, panels
from benchmark.reports.collect import collect
from benchmark.reports.results import board
from benchmark.reports.statistics import ranking


def critical_difference(request: Request) -> Drawing:
    """Mean rank of every method whose runs have all ended, best on top; lines: 95 % interval; bars: no difference."""
    values, incomplete = board(collect(request.runs, request.preset, request.cells, request.index))
    if values.shape[1] < 2:
        raise request.error("fewer than two methods have all their runs; nothing to rank.")
    ranks = ranking(values)
    remarks = [
        f"Dots: mean rank over {ranks.blocks} columns; lines: 95 % bootstrap interval. Bars join "
        f"methods whose mean ranks differ by less than {ranks.critical:.2f}, the critical difference (Nemenyi, 5 %)."
    ]
    if incomplete:
        remarks.append(f"Not ranked, as runs are missing: {', '.join(incomplete)}.")
    data = ranks.table.rename_axis("method").reset_index()
    count = len(data)
    figure, (axis,) = panels(1, 1, width=7.0, height=1.1 + 0.24 * count)
    spans = [data["rank"] - data["low"], data["high"] - data["rank"]]
    axis.errorbar(data["rank"], range(count), xerr=spans, fmt="o", color="black", ecolor="0.6", markersize=5)
    for number, clique in enumerate(ranks.cliques):
        height = count + 0.3 + 0.45 * number
        ends = ranks.table.loc[[clique[0], clique[-1]], "rank"]
        axis.plot(ends, [height, height], color="0.3", linewidth=3, solid_capstyle="butt")
    axis.set_yticks(range(count), list(data["method"]))
    axis.set(xlim=(0.5, count + 0.5), ylim=(count + 0.45 * len(ranks.cliques) + 0.3, -1))
    axis.set_xlabel("mean rank (1 is best)")
    return Drawing(figure, data, tuple(remarks))


def resources(request: Request) -> Drawing:
    """Numbers held by a client and seconds per round, both over FedAvg's, and the table's metric; means over columns.

    The first row is what the others are divided by; methods that do not exist yet are left out. Options: ``repeats``
    of the timing.
    """
    spec = request.runs
    measured = costs.measure(spec, request.cells, int(request.option("repeats", 3)))
    if measured.empty:
        raise request.error("none of its methods can run; nothing to draw.")
    first = spec.rows[0].label
    over = measured.set_index(["column", "method"])[["held", "seconds"]]
    over = over / over.xs(first, level="method").reindex(over.index, level="column")
    shown, reached = spec.metric_format, _reached(request)
    unit = f" ({shown.unit})" if shown.unit else ""
    parts = [
        ("numbers held by a client", f"over {first}'s", over["held"].reset_index(name="value")),
        ("time of a client's round", f"over {first}'s", over["seconds"].reset_index(name="value")),
        (shown.label, f"mean over columns{unit}", reached),
    ]
    order = [row.label for row in spec.rows if row.label in set(measured["method"])]
    figure, axes = panels(1, len(parts), width=3.4, height=0.55 + 0.28 * len(order))
    for axis, (title, label, data) in zip(axes, parts, strict=True):
        # Held numbers and times are spread over data sets, what is reached over seeds.
        sns.barplot(
            data, y="method", x="value", order=order, hue="method", hue_order=order, palette="colorblind",
            errorbar=("sd" if data is reached else None), err_kws={"linewidth": 1}, ax=axis, legend=False,
        )  # fmt: skip
        axis.set_title(title, fontsize=10)
        axis.set(xlabel=label, ylabel="")
        axis.tick_params(labelsize=8)
        if axis is not axes[0]:
            axis.set_yticklabels([])
    long = [
        measured.melt(["column", "method"], ["held", "seconds"], "measure"),
        reached.assign(measure=spec.metric, column="mean"),
    ]
    remarks = (
        f"Left and middle: means over columns of the quotient by {first}. Right: mean over seeds of the mean over "
        "columns; line: one sample standard deviation.",
        *costs.NOTES,
    )
    return Drawing(figure, pd.concat(long, ignore_index=True), remarks)


def _reached(request: Request) -> pd.DataFrame:
    """method, seed, value: mean over the columns of each seed that is done in all of them."""
    spec, shown = request.runs, request.runs.metric_format
    rows = [
        (row.label, run.seed, request.final(run, shown.split).get(spec.metric, math.nan) * shown.scale)
        for row, _, run in request.finished()
    ]
    values = pd.DataFrame(rows, columns=["method", "seed", "value"]).dropna()
    seeds = values.groupby(["method", "seed"], sort=False)["value"].agg(["mean", "size"])
    whole = seeds[seeds["size"] == len(spec.run_columns)]["mean"]
    return whole.rename("value").reset_index()


SHIFT, AGGREGATION = ("shift_loss", "firebrick", "o"), ("aggregation_loss", "steelblue", "s")
"""Term of Eq. 2, colour, marker."""

CURVES = (
    ("naive", "mean", SHIFT, "--", "distribution shift loss, naive training"),
    ("margin", "mean", SHIFT, "-", "distribution shift loss, margin control"),
    ("naive", "mean", AGGREGATION, "--", "aggregation loss, plain mean"),
    ("naive", "principal", AGGREGATION, "-", "aggregation loss, principal gradients"),
)
"""Training, aggregation, term, line, label: the colours of the paper, the methods without FedLD's parts dashed."""


def loss_decomposition(request: Request) -> Drawing:
    """Four lines over alpha: mean over seeds with bars of one sample standard deviation; dotted: with their signs.

    Options: those of ``benchmark.papers.loss_decomposition.Experiment``.
    """
    experiment = losses.Experiment.of(request.options, request.seeds)
    data = losses.measure(experiment, request.preset, request.extra)
    figure, axes = panels(1, 1, width=5.6, height=3.8)
    draw(axes[0], data)
    marks = "Marks: mean over seeds; bars: one sample standard deviation."
    spread = marks if experiment.seeds > 1 else "One seed."
    signs = "Dotted: the sums with their signs; a negative one lowers the global loss."
    return Drawing(figure, data, (spread, signs, losses.remark(experiment, request.preset)))


def draw(axis: Axes, data: pd.DataFrame) -> None:
    """The four curves of ``data`` and their signs (long form, one line per alpha, seed, training and aggregation)."""
    alphas = data["alpha"].unique()
    for number, (training, aggregation, (term, colour, marker), line, label) in enumerate(CURVES):
        part = data[(data["training"] == training) & (data["aggregation"] == aggregation)]
        groups = part.groupby("alpha", sort=False)[term]
        # Side by side, so that bars and coinciding lines can be told apart.
        x = np.arange(len(alphas)) + 0.06 * (number - 1.5)
        face = "white" if line == "--" else colour
        axis.errorbar(
            x, groups.mean(), yerr=groups.std().fillna(0), label=label, color=colour, linestyle=line, marker=marker,
            markerfacecolor=face, markersize=4, capsize=2, linewidth=1.3,
        )  # fmt: skip
        signed = part.groupby("alpha", sort=False)[term.replace("loss", "signed")].mean()
        axis.plot(x, signed, color=colour, linestyle=":", marker=marker, markersize=2, linewidth=1)
    axis.axhline(0, color="0.7", linewidth=0.8)
    axis.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axis.set_xlabel("Dirichlet alpha (heterogeneity grows to the right)")
    axis.set_ylabel("loss")
    axis.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)  # covers no point
