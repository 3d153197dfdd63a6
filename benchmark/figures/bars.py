"""Bars: the score of each method in each setting (FedSDC, Fig. 1)."""

from __future__ import annotations

import pandas as pd
import seaborn as sns

from benchmark.errors import ConfigError
from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import panels
from benchmark.reports.collect import collect
from benchmark.reports.tables import Table


@kind("bars")
def bars(request: Request) -> Drawing:
    """What the table of the runs would show: one group of bars per column, one bar per row; dots are seeds."""
    if request.table is None:
        raise ConfigError(f"figure {request.spec.name}: kind bars needs a table with runs (conf/figure/).")
    spec = request.table
    table = collect(spec, request.preset, request.cells, request.results)
    data = _values(table)
    if data.empty:
        raise ConfigError(f"figure {request.spec.name}: no run of it is done; nothing to draw.")
    columns, rows = list(data["column"].unique()), list(data["method"].unique())
    figure, axes = panels(1, 1, 1.3 + 0.55 * len(columns) * len(rows), 3.0)
    axis = axes[0]
    common = {"x": "column", "y": "value", "hue": "method", "order": columns, "hue_order": rows, "ax": axis}
    sns.barplot(
        data, **common, errorbar="sd", palette="colorblind", saturation=1.0, err_kws={"linewidth": 1.2},
        capsize=0.08,
    )  # fmt: skip
    sns.stripplot(
        data, **common, dodge=True, palette=["0.15"] * len(rows), size=3, jitter=False, legend=False, zorder=3
    )
    axis.set_xlabel("")
    axis.set_ylabel(
        f"{spec.metric_format.label} ({spec.metric_format.unit})"
        if spec.metric_format.unit
        else spec.metric_format.label
    )
    axis.grid(False, axis="x")
    # Beside the bars: inside it would cover some of them.
    sns.move_legend(axis, "upper left", bbox_to_anchor=(1.0, 1.0), title="", frameon=False)
    remarks = ("Bar: mean over seeds; line: one sample standard deviation; dots: seeds.", *_lacking(table))
    return Drawing(figure, data, remarks)


def _values(table: Table) -> pd.DataFrame:
    """Long form: column, method, seed, value in the unit shown."""
    rows = [
        (column.label, row.label, seed, value)
        for column in table.spec.run_columns
        for row in table.spec.rows
        for seed, value in table.cell(row, column).values.items()
    ]
    return pd.DataFrame(rows, columns=["column", "method", "seed", "value"])


def _lacking(table: Table) -> tuple[str, ...]:
    """Which runs have no bar or dot, and why."""
    lines = []
    for cell in table.cells.values():
        states = sorted({cell.state} - {"ok"} | {run.status for run in cell.runs} - {"done"})
        if states:
            lines.append(f"{cell.row.label}, {cell.column.label}: {', '.join(states)}")
    return (f"Not shown: {'; '.join(lines)}.",) if lines else ()
