"""What methods reach: bars and curves (FedSDC, Figs. 1 and 4), differences to a base row, mean ranks."""

import itertools
import math
from functools import partial

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from benchmark.papers.figures import Drawing, Request, panels
from benchmark.papers.frozen import ANCHORS
from benchmark.reports.collect import recorded
from benchmark.reports.layout import PUBLISHED
from benchmark.reports.notes import full_label
from benchmark.reports.results import TableResults
from benchmark.reports.statistics import ranking
from benchmark.runs.status import RunState

FOREST = {"published": "D", "reproduced by others": "s", "here": "o"}
"""Whose differences a forest shows, with their markers."""


def bars(request: Request) -> Drawing:
    """What the table of the runs would show: one group of bars per column, one bar per row; dots are seeds."""
    spec = request.runs
    results = request.results
    values = [
        (column.label, row.label, seed, value)
        for column in spec.run_columns
        for row in spec.rows
        for seed, value in results.cell(row, column).values.items()
    ]
    data = request.frame(values, ["column", "method", "seed", "value"])
    columns, rows = list(data["column"].unique()), list(data["method"].unique())
    figure, (axis,) = panels(1, 1, 1.3 + 0.55 * len(columns) * len(rows), 3.0)
    common = {"x": "column", "y": "value", "hue": "method", "order": columns, "hue_order": rows, "ax": axis}
    sns.barplot(
        data, **common, errorbar="sd", palette="colorblind", saturation=1.0, err_kws={"linewidth": 1.2},
        capsize=0.08,
    )  # fmt: skip
    sns.stripplot(
        data, **common, dodge=True, palette=["0.15"] * len(rows), size=3, jitter=False, legend=False, zorder=3
    )
    axis.set(xlabel="", ylabel=request.runs.metric_format.axis)
    axis.grid(False, axis="x")
    # Inside the axes, the legend would cover some of the bars.
    sns.move_legend(axis, "upper left", bbox_to_anchor=(1.0, 1.0), title="", frameon=False)
    remarks = [f"Bar: mean over {seeds_of(data)}; line: one sample standard deviation; dots: seeds."]
    missing = []
    for cell in results.cells.values():
        if not cell.complete:
            reasons = sorted({cell.state} - {"ok"} | set(cell.troubles))
            missing.append(f"{cell.row.label}, {cell.column.label}: {', '.join(reasons)}")
    if missing:
        remarks.append(f"Not shown: {'; '.join(missing)}.")
    return Drawing(figure, data, tuple(remarks))


def curves(request: Request) -> Drawing:
    """Mean over seeds with a band of one sample standard deviation; the table's metric on the test set.

    Options: ``across`` panels in a row (3).
    """
    spec, shown = request.runs, request.runs.metric_format
    metrics = {column.key: spec.of_column(column.key).metric for column in spec.run_columns}
    rows = [
        (column.key, row.label, run.seed, round, value * shown.scale)
        for row, column, run in request.finished()
        for round, value in recorded(request.index.records(run.key), shown.split, metrics[column.key]).items()
    ]
    data = request.frame(rows, ["column", "method", "seed", "round", "value"])
    columns = spec.run_columns
    across = min(int(request.option("across", 3)), len(columns))
    figure, axes = panels(math.ceil(len(columns) / across), across)
    hues, band = list(data["method"].unique()), partial(_band, shown.unit == "%")
    for number, (axis, column) in enumerate(zip(axes, columns, strict=False)):
        sns.lineplot(
            data[data["column"] == column.key], x="round", y="value", hue="method", style="method", hue_order=hues,
            style_order=hues, errorbar=band, err_kws={"alpha": 0.12, "linewidth": 0}, ax=axis, palette="colorblind",
            legend=axis is axes[0],
        )  # fmt: skip
        named = number % across == 0 or metrics[column.key] != spec.metric
        axis.set(xlabel="round", ylabel=spec.of_column(column.key).metric_format.axis if named else "")
        axis.set_title(full_label(column), fontsize=10)
    for axis in axes[len(columns) :]:
        axis.set_visible(False)
    legend = axes[0].get_legend()
    if legend is not None:  # beside all panels it covers no line
        handles, labels = axes[0].get_legend_handles_labels()
        legend.remove()
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
    return Drawing(figure, data, (f"Line: mean over {seeds_of(data)}; band: one sample standard deviation.",))


def _band(percent: bool, values: pd.Series) -> tuple[float, float]:
    """Mean minus and plus one sample standard deviation; percentages stay within 0 and 100."""
    low, high = values.mean() - values.std(), values.mean() + values.std()
    return (max(low, 0.0), min(high, 100.0)) if percent else (low, high)


def forest(request: Request) -> Drawing:
    """Difference of each row to the base row, with its 95 % interval: published, reproduced by others, measured here.

    Options: ``base``, the key of the base row (FedAvg, or the row most like it).
    """
    spec, shown = request.runs, request.runs.metric_format
    base = spec.row(str(request.option("base", spec.base_row.key)))
    results = request.results.against(base.key)
    rows: list[tuple[object, ...]] = []
    for column, row in itertools.product(spec.run_columns, spec.rows):
        cell, name = results.cell(row, column), f"{row.label}, {full_label(column)}"
        numbers = cell.published_difference, cell.reproduced_difference, cell.difference
        for source, found in zip(FOREST, numbers, strict=True):
            if found is not None:
                rows.append((name, source, found.mean, *(found.interval or (None, None)), found.n or None))
    data = request.frame(rows, ["cell", "source", "difference", "low", "high", "pairs"])
    data = data.astype(dict.fromkeys(("difference", "low", "high"), float) | {"pairs": "Int64"})
    unit = " in points" if shown.unit == "%" else ""
    figure = draw_forest(data, f"{shown.label}{unit}:\ndifference to {base.label}")
    pairs = "Line: 95 % interval by Student's t of differences paired by seed, on one type of processor."
    return Drawing(figure, data, (pairs, PUBLISHED))


def draw_forest(data: pd.DataFrame, label: str, width: float = 5.6) -> Figure:
    """``data`` has the columns cell, source (of `FOREST`), difference, low and high; ``label``: of the x axis."""
    names = list(data["cell"].unique())
    figure, (axis,) = panels(1, 1, width, 1.1 + 0.36 * len(names))
    for number, (source, marker) in enumerate(FOREST.items()):
        part = data[data["source"] == source]
        if len(part):
            places = [names.index(name) + 0.22 * (number - 1) for name in part["cell"]]
            whiskers = [part["difference"] - part["low"], part["high"] - part["difference"]]
            axis.errorbar(
                part["difference"], places, xerr=whiskers, fmt=marker, label=source, capsize=2, markersize=4,
                color=sns.color_palette("colorblind")[number],
            )  # fmt: skip
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    axis.set_xlabel(label)
    axis.locator_params(axis="x", nbins=7)
    axis.grid(False, axis="y")
    figure.legend(
        *axis.get_legend_handles_labels(), loc="outside upper center", ncols=len(FOREST), frameon=False
    )
    return figure


def critical_difference(request: Request) -> Drawing:
    """Mean rank of every method whose runs have all ended, best on top; lines: 95 % interval; bars: no difference."""
    values, incomplete = _board(request.results)
    if values.shape[1] < 2:
        raise request.nothing("fewer than two methods have all their runs; nothing to rank.")
    ranks = ranking(values)
    remarks = [
        f"Dots: mean rank over {ranks.blocks} columns; lines: 95 % bootstrap interval. Bars join "
        f"methods whose mean ranks differ by less than {ranks.critical:.2f}, the critical difference (Nemenyi, 5 %)."
    ]
    if incomplete:
        remarks.append(f"Not ranked, as runs are missing or diverged: {', '.join(incomplete)}.")
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


def _board(results: TableResults) -> tuple[pd.DataFrame, list[str]]:
    """Values [column x seed, method], higher is better, of the rows that are ranked; names of the others.

    As in `benchmark.papers.leaderboard`: where values were tuned, a run that diverged is worse than all others.
    """
    ranked: dict[str, dict[tuple[str, int], float]] = {}
    incomplete = []
    sign = 1.0 if results.spec.metric_format.higher_is_better else -1.0
    fine = (RunState.DONE, RunState.DIVERGED) if results.spec.tuned_only else (RunState.DONE,)
    for row in results.spec.rows:
        if row.key in ANCHORS:
            continue
        cells = [results.cell(row, column) for column in results.spec.run_columns]
        runs = {(cell.column.key, run.seed): run for cell in cells for run in cell.runs}
        if all(run.outcome in fine for run in runs.values()) and all(cell.runs for cell in cells):
            ranked[row.label] = {
                place: -math.inf if run.value is None else sign * run.value for place, run in runs.items()
            }
        else:
            incomplete.append(row.label)
    return pd.DataFrame(ranked), incomplete


def seeds_of(data: pd.DataFrame) -> str:
    """``3 seeds``; ``2 to 3 seeds`` where some columns of a method have fewer."""
    seeds = data.groupby(["column", "method"])["seed"].nunique()
    fewest, most = seeds.min(), seeds.max()
    return f"{most if fewest == most else f'{fewest} to {most}'} seed{'s' if most > 1 else ''}"
