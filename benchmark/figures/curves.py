"""Convergence: a metric over rounds, one panel per column, one line per method (FedSDC, Fig. 4)."""

from __future__ import annotations

import math

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import metric_label, panels
from benchmark.reports.collect import recorded
from benchmark.reports.notes import full_label


@kind("curves")
def curves(request: Request) -> Drawing:
    """Mean over seeds with a band of one sample standard deviation; the table's metric on the test set.

    Options: ``across`` panels in a row (3).
    """
    data = _values(request)
    columns = request.runs.run_columns
    across = min(int(request.option("across", 3)), len(columns))
    figure, axes = panels(math.ceil(len(columns) / across), across)
    hues = list(data["method"].unique())
    own = {row.label for row in request.runs.rows if row.own}
    sizes = {method: 2.2 if method in own else 1.4 for method in hues}
    for number, (axis, column) in enumerate(zip(axes, columns, strict=False)):
        part = data[data["column"] == column.key]
        sns.lineplot(
            part, x="round", y="value", hue="method", style="method", size="method", hue_order=hues,
            style_order=hues, size_order=hues, sizes=sizes, errorbar="sd", err_kws={"alpha": 0.12, "linewidth": 0},
            ax=axis, palette="colorblind", legend=axis is axes[0],
        )  # fmt: skip
        axis.set_title(full_label(column), fontsize=10)
        axis.set_xlabel("round")
        axis.set_ylabel(metric_label(request.runs) if number % across == 0 else "")
    for axis in axes[len(columns) :]:
        axis.set_visible(False)
    _legend_beside(figure, axes[0])
    remark = "Line: mean over seeds; band: one sample standard deviation."
    return Drawing(figure, data, (remark, "Thick: the paper's own method.") if own else (remark,))


def _legend_beside(figure: Figure, axis: Axes) -> None:
    """Move the legend of ``axis`` to the right of all panels, where it covers no line."""
    legend = axis.get_legend()
    if legend is not None:
        handles, labels = axis.get_legend_handles_labels()
        legend.remove()
        figure.legend(handles, labels, loc="outside right upper", frameon=False)


def _values(request: Request) -> pd.DataFrame:
    """Long form: column, method, seed, round, value."""
    metric, shown = request.runs.metric, request.runs.metric_format
    rows = [
        (column.key, row.label, run.seed, round, value * shown.scale)
        for row, column, run in request.finished()
        for round, value in recorded(request.records(run), shown.split, metric).items()
    ]
    return request.frame(rows, ["column", "method", "seed", "round", "value"])
