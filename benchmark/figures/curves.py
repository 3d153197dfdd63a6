"""Convergence: a metric over rounds, one panel per column, one line per method (FedSDC, Fig. 4)."""

from __future__ import annotations

import math

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmark.errors import ConfigError
from benchmark.figures.registry import Drawing, Request, done_runs, kind
from benchmark.figures.style import panels


@kind("curves")
def curves(request: Request) -> Drawing:
    """Mean over seeds with a band of one sample standard deviation; the table's metric on the test set.

    Options: ``across`` panels in a row (3).
    """
    if request.table is None:
        raise ConfigError(f"figure {request.spec.name}: kind curves needs a table with runs (conf/figure/).")
    data = _values(request)
    columns = request.table.run_columns
    shown = request.table.metric_format
    across = min(int(request.option("across", 3)), len(columns))
    figure, axes = panels(math.ceil(len(columns) / across), across)
    hues = list(data["method"].unique())
    own = {row.label for row in request.table.rows if row.own}
    sizes = {method: 2.2 if method in own else 1.4 for method in hues}
    for number, (axis, column) in enumerate(zip(axes, columns, strict=False)):
        part = data[data["column"] == column.key]
        sns.lineplot(
            part, x="round", y="value", hue="method", style="method", size="method", hue_order=hues,
            style_order=hues, size_order=hues, sizes=sizes, errorbar="sd", err_kws={"alpha": 0.12, "linewidth": 0},
            ax=axis, palette="colorblind", legend=axis is axes[0],
        )  # fmt: skip
        axis.set_title(f"{column.group} {column.label}" if column.group else column.label, fontsize=10)
        axis.set_xlabel("round")
        left = f"{shown.label} ({shown.unit})" if shown.unit else shown.label
        axis.set_ylabel(left if number % across == 0 else "")
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
    assert request.table is not None
    metric, shown = request.table.metric, request.table.metric_format
    rows = []
    for row in request.table.rows:
        for column in request.table.run_columns:
            for run in done_runs(request, row.key, column.key):
                for record in request.results.run(run.key).read_records():
                    if (record.split, record.group, record.metric) == (shown.split, "all", metric):
                        value = record.value * shown.scale
                        rows.append((column.key, row.label, run.seed, record.round, value))
    if not rows:
        raise ConfigError(f"figure {request.spec.name}: no run of it is done; nothing to draw.")
    return pd.DataFrame(rows, columns=["column", "method", "seed", "round", "value"])
