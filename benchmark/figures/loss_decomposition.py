"""Distribution shift loss and aggregation loss over heterogeneity, after one round (FedLD, Fig. 2). No stored runs."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from benchmark.errors import ConfigError
from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import panels

CURVES = (
    ("naive", "mean", "shift_loss", "distribution shift loss, naive training", "firebrick", "--", "o"),
    ("margin", "mean", "shift_loss", "distribution shift loss, margin control", "firebrick", "-", "o"),
    ("naive", "mean", "aggregation_loss", "aggregation loss, plain mean", "steelblue", "--", "s"),
    (
        "naive",
        "principal",
        "aggregation_loss",
        "aggregation loss, principal gradients",
        "steelblue",
        "-",
        "s",
    ),
)
"""Training, aggregation, term of Eq. 2, label, colour, line, marker: the colours of the paper, naive ones dashed."""


@kind("loss_decomposition")
def loss_decomposition(request: Request) -> Drawing:
    """Four lines over alpha: mean over seeds with bars of one sample standard deviation.

    Options: those of ``benchmark.analyses.loss_decomposition.Options``.
    """
    # Imports torch, which the other drawings do not need.
    from benchmark.analyses.loss_decomposition import measure, read_options, remarks

    values = dict(request.options) | ({} if request.seeds is None else {"seeds": request.seeds})
    options = read_options(values)
    data = measure(options, request.preset, request.extra, request.results.root / "partitions")
    figure, axes = panels(1, 1, width=5.6, height=3.8)
    draw(axes[0], data)
    spread = (
        "Marks: mean over seeds; bars: one sample standard deviation." if options.seeds > 1 else "One seed."
    )
    return Drawing(figure, data, (spread, *remarks(options, request.preset)))


def draw(axis: Axes, data: pd.DataFrame) -> None:
    """The four curves of ``data`` (long form, one line per alpha, seed, training and aggregation)."""
    alphas = list(data["alpha"].unique())
    if not len(alphas):
        raise ConfigError("figure loss_decomposition: there is nothing to draw.")
    places: Mapping[float, int] = {alpha: i for i, alpha in enumerate(alphas)}
    for number, (training, aggregation, term, label, colour, line, marker) in enumerate(CURVES):
        part = data[(data["training"] == training) & (data["aggregation"] == aggregation)]
        groups = part.groupby("alpha", sort=False)[term]
        mean, sd = groups.mean(), groups.std().fillna(0)
        # Side by side, so that bars and coinciding lines can be told apart.
        x = [places[alpha] + 0.06 * (number - 1.5) for alpha in mean.index]
        face = "white" if line == "--" else colour
        axis.errorbar(
            x, mean, yerr=sd, label=label, color=colour, linestyle=line, marker=marker, markerfacecolor=face,
            markersize=4, capsize=2, linewidth=1.3,
        )  # fmt: skip
    axis.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axis.set_xlabel("Dirichlet alpha (heterogeneity grows to the right)")
    axis.set_ylabel("loss")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8)
