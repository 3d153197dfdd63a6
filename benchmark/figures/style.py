"""How all figures look, and their files, which do not depend on the day they were made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmark.experiments.spec import TableSpec

FORMATS = (".png", ".pdf")


def panels(rows: int, columns: int, width: float = 3.6, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """A figure of rows x columns panels (inches each), outside pyplot: no display, no global state."""
    with sns.axes_style("whitegrid", {"grid.color": "0.9", "axes.edgecolor": "0.4"}):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def metric_label(spec: TableSpec) -> str:
    """The metric of a table with its unit, for an axis."""
    shown = spec.metric_format
    return f"{shown.label} ({shown.unit})" if shown.unit else shown.label


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write ``stem``.png and .pdf; the same figure gives the same bytes."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(stem.name + suffix) for suffix in formats]
    for file in files:
        metadata = {"CreationDate": None} if file.suffix == ".pdf" else {"Software": None}
        figure.savefig(file, dpi=150, bbox_inches="tight", metadata=metadata)
    return files
