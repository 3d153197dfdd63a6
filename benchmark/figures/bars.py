"""Bars: the score of each method in each setting (FedSDC, Fig. 1)."""

from __future__ import annotations

import seaborn as sns

from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import metric_label, panels
from benchmark.reports.collect import collect
from benchmark.reports.results import TableResults


@kind("bars")
def bars(request: Request) -> Drawing:
    """What the table of the runs would show: one group of bars per column, one bar per row; dots are seeds."""
    spec = request.runs
    results = collect(spec, request.preset, request.cells, request.index)
    values = [
        (column.label, row.label, seed, value)
        for column in spec.run_columns
        for row in spec.rows
        for seed, value in results.cell(row, column).values.items()
    ]
    data = request.frame(values, ["column", "method", "seed", "value"])
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
    axis.set_ylabel(metric_label(spec))
    axis.grid(False, axis="x")
    # Inside the axes, the legend would cover some of the bars.
    sns.move_legend(axis, "upper left", bbox_to_anchor=(1.0, 1.0), title="", frameon=False)
    remarks = ("Bar: mean over seeds; line: one sample standard deviation; dots: seeds.", *_lacking(results))
    return Drawing(figure, data, remarks)


def _lacking(results: TableResults) -> tuple[str, ...]:
    lines = []
    for cell in results.cells.values():
        states = sorted({cell.state} - {"ok"} | set(cell.troubles))
        if states:
            lines.append(f"{cell.row.label}, {cell.column.label}: {', '.join(states)}")
    return (f"Not shown: {'; '.join(lines)}.",) if lines else ()
