"""Pictures of partitions: which client has how many samples of which class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

FORMATS = (".png", ".pdf")
MOST_KEYS = 10
"""Colours that the colour-blind palette can tell apart. For more classes, a colour bar replaces the legend."""
MOST_TICKS = 25
Colour = tuple[float, float, float]
_GRID: dict[str, Any] = {"color": "0.9", "linewidth": 0.6}


def client_picture(
    counts: ArrayLike,
    path: Path | str,
    kind: Literal["bubble", "bars"] = "bubble",
    class_names: Sequence[str] = (),
    title: str = "",
) -> list[Path]:
    """Draw the samples per client and class, and return the files written.

    Args:
        counts: [K, Y], clients x classes, with samples in them.
        path: Where to write; with suffix .png or .pdf that one file, otherwise both, suffixes appended.
        kind: `bubble` = one bubble per client (x) and class (y), area proportional to the count; `bars` = one
            bar per client, stacked by class.
        class_names: Y names, or empty for 0 .. Y - 1.
        title: Above the picture, may be empty.
    """
    table, path = np.asarray(counts), Path(path)
    names = list(class_names) or [str(label) for label in range(table.shape[1])]
    with sns.axes_style("white"):
        figure = _bubbles(table, names) if kind == "bubble" else _bars(table, names)
    if title:
        figure.suptitle(title, fontsize=11)
    return save(figure, path.with_suffix(""), [path.suffix]) if path.suffix in FORMATS else save(figure, path)


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write ``stem``.png and .pdf without a date, so that the same figure gives the same bytes."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(stem.name + suffix) for suffix in formats]
    for file in files:
        metadata = {"CreationDate": None} if file.suffix == ".pdf" else {"Software": None}
        figure.savefig(file, dpi=150, bbox_inches="tight", metadata=metadata)
    return files


def _bubbles(table: NDArray, names: list[str]) -> Figure:
    clients, classes = table.shape
    wide, high = min(0.5, 13.0 / clients), min(0.5, 10.0 / classes)  # inches of a client and of a class
    height = max(classes * high + 1.0, 3.2)  # 3.2: room for the legend
    figure = Figure(figsize=(clients * wide + 2.4, height), layout="constrained")
    draw_bubbles(figure.add_subplot(), table, names, wide, high)
    return figure


def draw_bubbles(axes: Axes, table: NDArray, names: Sequence[str], wide: float, high: float) -> None:
    """Draw one bubble per client (x) and class (y) of ``table`` [K, Y], area proportional to the count.

    ``wide``, ``high``: inches of a cell; the largest bubble just fits into it. The legend is to the right of the axes.
    """
    clients, classes = table.shape
    client, label = np.nonzero(table)
    cells = pd.DataFrame({"client": client, "class": label, "samples": table[client, label]})
    diameter = 0.92 * 72 * min(wide, high)  # points
    steps = _round_steps(int(table.max()))
    # One sample among thousands must still be seen: 1.6 points at least.
    areas = {int(count): max(diameter**2 * count / table.max(), 2.5) for count in {*cells["samples"], *steps}}
    blue = sns.color_palette("colorblind")[0]
    sns.scatterplot(
        cells, x="client", y="class", size="samples", sizes=areas, color=blue, alpha=0.85, linewidth=0,
        legend=False, ax=axes, zorder=2,
    )  # fmt: skip
    axes.set(xlim=(-0.6, clients - 0.4), ylim=(classes - 0.4, -0.6), xlabel="client", ylabel="class")
    axes.grid(**_GRID, zorder=0)
    _label_axis(axes, "x", [str(number) for number in range(clients)], wide)
    _label_axis(axes, "y", list(names), high)
    for step in steps:
        axes.scatter([], [], s=areas[step], color=blue, alpha=0.85, linewidth=0, label=f"{step:,}")
    space = max(0.6, diameter / 14 - 0.3)  # in units of the font size, so that large bubbles do not touch
    axes.legend(
        title="samples", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, labelspacing=space,
        handletextpad=max(0.8, diameter / 20), borderpad=max(0.4, diameter / 20),
    )  # fmt: skip
    sns.despine(ax=axes, left=True, bottom=True)


def _bars(table: NDArray, names: list[str]) -> Figure:
    clients, classes = table.shape
    wide = min(0.5, 13.0 / clients)
    figure = Figure(figsize=(clients * wide + 2.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    colours = sns.color_palette("colorblind" if classes <= MOST_KEYS else "viridis", classes)
    # A white line parts neighbours whose colours are alike; bars of many clients are too thin for it.
    line = 0.4 if wide > 0.2 and classes <= 30 else 0.0
    tops = np.cumsum(table, axis=1)
    for label, name in enumerate(names):
        held = np.flatnonzero(table[:, label])
        top = tops[held, label]
        sides, ends = (held - 0.43, held + 0.43), (top - table[held, label], top)
        corners = [(sides[i], ends[j]) for i, j in ((0, 0), (0, 1), (1, 1), (1, 0))]
        boxes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
        # One collection per class: 100 clients x 100 classes as single patches take ten seconds.
        axes.add_collection(
            PolyCollection(
                list(boxes), label=name, facecolor=colours[label], edgecolor="white" if line else "face",
                linewidth=line or 0.1, zorder=2,
            )
        )  # fmt: skip
    axes.set_ylim(0, 1.03 * tops.max())
    axes.set(xlim=(-0.6, clients - 0.4), xlabel="client", ylabel="samples")
    axes.grid(axis="y", **_GRID, zorder=0)
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    _label_axis(axes, "x", [str(number) for number in range(clients)], wide)
    if classes <= MOST_KEYS:
        axes.legend(title="class", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, reverse=True)
    else:
        _class_bar(figure, axes, colours, names)
    sns.despine(ax=axes, left=True)
    return figure


def _class_bar(figure: Figure, axes: Axes, colours: Sequence[Colour], names: list[str]) -> None:
    """Draw the key of many classes as a colour bar, one block per class, in the order of the stack."""
    classes = len(names)
    norm = BoundaryNorm(np.arange(classes + 1) - 0.5, classes)
    mappable = ScalarMappable(norm, ListedColormap(list(colours)))
    bar = figure.colorbar(mappable, ax=axes, label="class", pad=0.02, aspect=25)
    shown = range(0, classes, _round_stride(-(-classes // MOST_TICKS)))
    bar.set_ticks(list(shown), labels=[names[label] for label in shown])
    bar.ax.tick_params(labelsize=7, length=0)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


def _label_axis(axes: Axes, which: Literal["x", "y"], names: list[str], cell: float) -> None:
    """Put a tick at every name, or at every n-th where there is no room."""
    room = max(MOST_TICKS, int(len(names) * cell / 0.22))  # 0.22 inch: a line of text
    shown = range(0, len(names), _round_stride(-(-len(names) // room)))
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(list(shown), labels=[names[number] for number in shown], fontsize=8)
    axis.set_tick_params(length=0)


def _round_stride(least: int) -> int:
    """The next of 1, 2, 5, 10, 20, .. from `least` on: 0, 5, 10 reads better than 0, 4, 8."""
    strides = (factor * 10**power for power in range(9) for factor in (1, 2, 5))
    return next(stride for stride in strides if stride >= least)


def _round_steps(largest: int) -> list[int]:
    """Up to three round sample numbers up to `largest`, ascending, for the size legend."""
    steps = set()
    for share in (0.1, 0.4, 1.0):
        count = max(largest * share, 1)
        magnitude = 10 ** int(np.log10(count))
        steps.add(int(count / magnitude) * magnitude)
    return sorted(steps)
