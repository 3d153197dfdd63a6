"""Convergence: a metric over rounds, one panel per column, one line per method (FedSDC, Figs. 1 and 4)."""

from __future__ import annotations

import math

import pandas as pd
import seaborn as sns

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
    shown = request.table.shown
    across = min(int(request.option("across", 3)), len(columns))
    figure, axes = panels(math.ceil(len(columns) / across), across)
    hues = list(data["method"].unique())
    for axis, column in zip(axes, columns, strict=False):
        part = data[data["column"] == column.key]
        sns.lineplot(
            part, x="round", y="value", hue="method", style="method", hue_order=hues, style_order=hues,
            errorbar="sd", ax=axis, palette="colorblind", legend=axis is axes[0],
        )  # fmt: skip
        axis.set_title(f"{column.group} {column.label}" if column.group else column.label, fontsize=10)
        axis.set_xlabel("round")
        axis.set_ylabel(f"{shown.label} ({shown.unit})" if shown.unit else shown.label)
        legend = axis.get_legend()
        if legend is not None:
            legend.set_title("")
    return Drawing(figure, data, ("Line: mean over seeds; band: one sample standard deviation.",))


def _values(request: Request) -> pd.DataFrame:
    """Long form: column, method, seed, round, value."""
    assert request.table is not None
    metric, shown = request.table.metric, request.table.shown
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
