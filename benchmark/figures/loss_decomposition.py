"""Distribution shift loss and aggregation loss over heterogeneity, after one round (FedLD, Fig. 2). No stored runs."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import panels

SHIFT, AGGREGATION = ("shift_loss", "firebrick", "o"), ("aggregation_loss", "steelblue", "s")
"""Term of Eq. 2, colour, marker."""

CURVES = (
    ("naive", "mean", SHIFT, "--", "distribution shift loss, naive training"),
    ("margin", "mean", SHIFT, "-", "distribution shift loss, margin control"),
    ("naive", "mean", AGGREGATION, "--", "aggregation loss, plain mean"),
    ("naive", "principal", AGGREGATION, "-", "aggregation loss, principal gradients"),
)
"""Training, aggregation, term, line, label: the colours of the paper, the methods without FedLD's parts dashed."""


@kind("loss_decomposition")
def loss_decomposition(request: Request) -> Drawing:
    """Four lines over alpha: mean over seeds with bars of one sample standard deviation.

    Options: those of ``benchmark.analyses.loss_decomposition.Experiment``.
    """
    # Imports torch, which the other drawings do not need.
    from benchmark.analyses.loss_decomposition import Experiment, measure, remarks

    experiment = Experiment.of({**request.options, **({"seeds": request.seeds} if request.seeds else {})})
    folder = request.index.results.root / "partitions"
    data = measure(experiment, request.preset, request.extra, folder)
    figure, axes = panels(1, 1, width=5.6, height=3.8)
    draw(axes[0], data)
    several = "Marks: mean over seeds; bars: one sample standard deviation."
    spread = several if experiment.seeds > 1 else "One seed."
    return Drawing(figure, data, (spread, *remarks(experiment, request.preset)))


def draw(axis: Axes, data: pd.DataFrame) -> None:
    """The four curves of ``data`` (long form, one line per alpha, seed, training and aggregation)."""
    alphas = list(data["alpha"].unique())
    places = {alpha: i for i, alpha in enumerate(alphas)}
    for number, (training, aggregation, (term, colour, marker), line, label) in enumerate(CURVES):
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
