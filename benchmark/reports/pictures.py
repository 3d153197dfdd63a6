"""Pictures of partitions: which client has how many samples of which class."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import ArrayLike, NDArray

from benchmark.runs.files import write_atomically

matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a name is no formula

FORMATS = (".png", ".pdf")
WIDTHS = {"one": 84 / 25.4, "two": 176 / 25.4}
"""Inches of one and of both columns of a page, as in most two-column styles."""
SMALLEST = 6.0
"""Points of the smallest text of a figure that is shrunk."""
MOST_TICKS = 40
LONGEST = 3
"""Characters of a client's name that is written level."""


def client_picture(
    counts: ArrayLike,
    path: Path | str,
    class_names: Sequence[str] = (),
    title: str = "",
    client_names: Sequence[str] = (),
) -> list[Path]:
    """Draw a bubble per client (x) and class (y), area proportional to the samples, and return the files written.

    ``counts``: samples [K, Y] of clients and classes, which are numbered if they have no names. ``path``: with suffix
    .png or .pdf that one file, otherwise both, suffixes appended.
    """
    table, path = np.asarray(counts), Path(path)
    clients, classes = table.shape
    wide, high = min(0.5, 13.0 / clients), min(0.5, 10.0 / classes)  # inches of a client and of a class
    names = client_names or [str(client) for client in range(clients)]
    upright = max(map(len, names)) > LONGEST  # written upwards, a character in 0.07 inches
    height = max(classes * high + 1.0, 3.2)  # 3.2: room for the legend
    height += upright * 0.07 * max(map(len, names))
    figure = Figure(figsize=(clients * wide + 2.4, height), layout="constrained")
    with sns.axes_style("white"):
        axes = figure.add_subplot()
    draw_bubbles(axes, table, class_names or [str(label) for label in range(classes)], min(wide, high))
    _label_axis(axes.xaxis, names)
    axes.tick_params(axis="x", labelrotation=90 * upright)
    if title:
        figure.suptitle(title, fontsize=11)
    return save(figure, path.with_suffix(""), [path.suffix]) if path.suffix in FORMATS else save(figure, path)


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS, dpi: int = 150) -> list[Path]:
    """Write ``stem``.png and .pdf without a date, so that the same figure gives the same bytes."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(stem.name + suffix) for suffix in formats]
    for file in files:
        dates = {"CreationDate": None} if file.suffix == ".pdf" else {"Software": None}
        draw = partial(figure.savefig, format=file.suffix[1:], dpi=dpi, bbox_inches="tight", pad_inches=0.03)
        write_atomically(file, partial(draw, metadata=dates), durable=False)
    return files


def fit(figure: Figure, width: float) -> None:
    """Shrink a figure to ``width`` inches. Text stays readable, so the height shrinks less than the width."""
    old_width, height = figure.get_size_inches()
    scale = width / old_width
    if scale >= 1:
        return
    figure.set_size_inches(width, height * max(scale, 0.75))
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_fontsize(max(SMALLEST, text.get_fontsize() * scale))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        for label in axis.get_ticklabels()[:1]:
            axis.set_tick_params(labelsize=label.get_fontsize())  # for ticks that are made later
    for line in figure.findobj(Line2D):
        assert isinstance(line, Line2D)
        line.set(linewidth=line.get_linewidth() * max(scale, 0.5), markersize=line.get_markersize() * scale)
    for points in figure.findobj(PathCollection):
        assert isinstance(points, PathCollection)
        points.set_sizes(points.get_sizes() * scale**2)


def draw_bubbles(axes: Axes, table: NDArray, names: Sequence[str], cell: float) -> None:
    """Draw one bubble per client (x) and class (y) of ``table`` [K, Y], area proportional to the count.

    ``cell``: inches of a cell; the largest bubble just fits into it. The legend is to the right of the axes.
    """
    clients, classes = table.shape
    client, label = np.nonzero(table)
    cells = pd.DataFrame({"client": client, "class": label, "samples": table[client, label]})
    diameter = 0.92 * 72 * cell  # points
    sns.scatterplot(
        cells, x="client", y="class", size="samples", sizes=(0.0, diameter**2), size_norm=(0, table.max()),
        alpha=0.85, linewidth=0, legend="brief", ax=axes, zorder=2,
    )  # fmt: skip
    # One sample among thousands must still be seen.
    (bubbles,) = axes.collections
    assert isinstance(bubbles, PathCollection)
    bubbles.set_sizes(np.maximum(bubbles.get_sizes(), 2.5))
    axes.set(xlim=(-0.6, clients - 0.4), ylim=(classes - 0.4, -0.6))
    axes.grid(color="0.9", linewidth=0.6, zorder=0)
    _label_axis(axes.xaxis, [str(number) for number in range(clients)])
    _label_axis(axes.yaxis, names)
    # In units of the font size, so that large bubbles do not touch.
    space = {"labelspacing": max(0.6, diameter / 14 - 0.3), "handletextpad": max(0.8, diameter / 20)}
    axes.legend(title="samples", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, **space)
    sns.despine(ax=axes, left=True, bottom=True)


def _label_axis(axis: Axis, names: Sequence[str]) -> None:
    """Put a tick at every name, or at every n-th where there is no room."""
    shown = range(0, len(names), -(-len(names) // MOST_TICKS))
    axis.set_ticks(list(shown), labels=[names[number] for number in shown], fontsize=8)
    axis.set_tick_params(length=0)
