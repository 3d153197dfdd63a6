"""What clients hold: samples per class (FedSDC, Fig. 3), and metrics of heterogeneity (FedDiverse, Fig. 3). No runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns

from benchmark.errors import wrong
from benchmark.experiments.plan import plan
from benchmark.experiments.spec import Column, TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.heterogeneity import class_counts, six_metrics
from benchmark.papers.figures import Drawing, Request, panels
from benchmark.reports.pictures import draw_bubbles
from benchmark.runs.data import load_data
from partitions import make

CELL = 0.27
"""Inches of a client and of a class."""

METRICS = {"CI": "class imbalance", "AI": "attribute imbalance", "SC": "spurious correlation"}


def partitions(request: Request) -> Drawing:
    """One bubble per client and class; the split of seed 0, before anything is held out. Nothing is trained.

    Options: ``of`` the table whose columns are drawn.
    """
    table = spec_called(str(request.option("of")), f"figure {request.spec.name}: options.of")
    columns = [table.column(key) for key in request.spec.columns] or table.run_columns
    scenarios = [(column, *_counts(request, table, column)) for column in columns]
    classes = [len(names) for _, _, names in scenarios]
    clients = max(len(counts) for _, counts, _ in scenarios)
    rows = len(scenarios)
    height = CELL * sum(classes) / rows + 0.75
    heights = [number + 1.5 for number in classes]
    figure, axes = panels(rows, 1, clients * CELL + 2.9, height, heights)
    frames = []
    for axis, (column, counts, names) in zip(axes, scenarios, strict=True):
        draw_bubbles(axis, counts, names, CELL)
        axis.set_title(f"{column.label}: {counts.sum():,} samples", fontsize=10)
        axis.set(xlabel="client" if axis is axes[-1] else "", ylabel="")
        client, label = np.indices(counts.shape).reshape(2, -1)
        samples = {"client": client, "class": np.asarray(names)[label], "samples": counts.ravel()}
        frames.append(pd.DataFrame({"column": column.key, **samples}))
    remark = "Area: samples of a class at a client, on a scale of each panel's own. Split of seed 0."
    return Drawing(figure, pd.concat(frames), (remark,))


def _counts(request: Request, table: TableSpec, column: Column) -> tuple[np.ndarray, Sequence[str]]:
    """Samples per client and class [K, Y] and names of the classes, as in every run of a column with seed 0."""
    row = table.rows[0].key
    cell = plan(table.cut([row], [column.key]), request.preset, (0,), request.extra)[row, column.key]
    if not cell.runs:
        raise request.error(f"column {column.key} of {table.name}: {cell.state}.")
    data = load_data(cell.runs[0])
    names = data.dataset.classes
    return class_counts(data.partition.clients, np.asarray(data.train.labels), len(names)), names


def heterogeneity(request: Request) -> Drawing:
    """Bars: the three metrics of the pooled data on the left, their means over clients on the right.

    Options: ``distributions``, label -> parameters of the partition ``interaction``.
    """
    distributions = request.option("distributions")
    if not isinstance(distributions, Mapping):
        expected = "a mapping from label to parameters of the partition interaction (conf/figure/)"
        raise request.error(wrong("options.distributions", distributions, expected))
    rows = []
    for label, parameters in distributions.items():
        partition: Any = make("interaction", parameters)
        for name, value in six_metrics(partition.matrices()).items():
            scope = "global: clients pooled" if name.startswith("G") else "clients: mean over clients"
            rows.append((label, scope, METRICS[name[1:]], name, value))
    data = pd.DataFrame(rows, columns=["data", "scope", "metric", "name", "value"])
    figure, axes = panels(1, 2, width=5.6, height=3.4)
    for axis, (scope, part) in zip(axes, data.groupby("scope", sort=False), strict=True):
        sns.barplot(
            part, x="data", y="value", hue="metric", hue_order=list(METRICS.values()), palette="colorblind",
            ax=axis, legend=axis is axes[0],
        )  # fmt: skip
        axis.set_title(scope, fontsize=10)
        axis.set(ylim=(0, 1), xlabel="", ylabel="value" if axis is axes[0] else "")
        for tick in axis.get_xticklabels():
            tick.set(rotation=35, ha="right", rotation_mode="anchor", fontsize=8)
    sns.move_legend(axes[0], "best", title="")
    return Drawing(figure, data)
