"""How all figures look."""

from __future__ import annotations

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmark.experiments.spec import TableSpec


def panels(rows: int, columns: int, width: float = 3.6, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """A figure of rows x columns panels (inches each), outside pyplot: no display, no global state."""
    with sns.axes_style("whitegrid", {"grid.color": "0.9", "axes.edgecolor": "0.4"}):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def metric_label(spec: TableSpec) -> str:
    """The metric of a table with its unit, for an axis."""
    shown = spec.metric_format
    return f"{shown.label} ({shown.unit})" if shown.unit else shown.label
