"""The six metrics of heterogeneity of federated data sets (FedDiverse, Fig. 3). No runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import seaborn as sns

from benchmark.errors import wrong
from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import panels
from partitions import make, six_metrics

NAMES = {"CI": "class imbalance", "AI": "attribute imbalance", "SC": "spurious correlation"}


@kind("heterogeneity")
def heterogeneity(request: Request) -> Drawing:
    """Bars: the three metrics of the pooled data on the left, their means over clients on the right.

    Options: ``distributions``, label -> parameters of the partition ``interaction``.
    """
    data = _values(request)
    figure, axes = panels(1, 2, width=5.6, height=3.4)
    for axis, (scope, part) in zip(axes, data.groupby("scope", sort=False), strict=True):
        sns.barplot(
            part, x="data", y="value", hue="metric", hue_order=list(NAMES.values()), palette="colorblind",
            ax=axis, legend=axis is axes[0],
        )  # fmt: skip
        axis.set_title(scope, fontsize=10)
        axis.set_ylim(0, 1)
        axis.set_xlabel("")
        axis.set_ylabel("value" if axis is axes[0] else "")
        for label in axis.get_xticklabels():
            label.set(rotation=35, ha="right", rotation_mode="anchor", fontsize=8)
    legend = axes[0].get_legend()
    if legend is not None:
        legend.set_title("")
    return Drawing(figure, data)


def _values(request: Request) -> pd.DataFrame:
    """Long form: data, scope, metric, name (GCI, ...), value."""
    distributions = request.option("distributions")
    if not isinstance(distributions, Mapping):
        expected = "a mapping from label to parameters of the partition interaction (conf/figure/)"
        raise request.error(wrong("options.distributions", distributions, expected))
    rows = []
    for label, parameters in distributions.items():
        partition: Any = make("interaction", parameters)
        for name, value in six_metrics(partition.matrices()).items():
            scope = "global: clients pooled" if name.startswith("G") else "clients: mean over clients"
            rows.append((label, scope, NAMES[name[1:]], name, value))
    return pd.DataFrame(rows, columns=["data", "scope", "metric", "name", "value"])
