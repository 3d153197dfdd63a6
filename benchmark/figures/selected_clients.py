"""Who is selected over the rounds, by type of client (FedDiverse, Figs. 5-9), from the runs' participation records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from benchmark.config.schema import RunConfig
from benchmark.errors import wrong
from benchmark.experiments.spec import Column, Row
from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import panels
from partitions import make, triplet

TYPES = ("CI", "AI", "SC")


@kind("selected_clients")
def selected_clients(request: Request) -> Drawing:
    """One panel per row and column: dots where a client takes part, by round; clients sorted by type.

    A client's type is the largest value of its true triplet, ties between CI and AI are AI (so the paper's shares of
    Fig. 7). The bands carry each type's share of all places, over all seeds and shown rounds, and its share of the
    clients, which is what uniform selection would give. Dots are the first seed's. Options: ``rounds`` shown (20).
    """
    spec = request.runs
    cells = [
        (row, column, runs)
        for row in spec.rows
        for column in spec.run_columns
        if (runs := request.done(row, column))
    ]
    if not cells:
        raise request.error("no run of it is done; nothing to draw.")
    figure, axes = panels(1, len(cells), width=5.0, height=4.2)
    frames = []
    for axis, (row, column, runs) in zip(axes, cells, strict=True):
        data = _values(request, row, column, runs)
        _draw(axis, data, _types(request, runs[0]))
        axis.set_title(row.label if len(spec.run_columns) == 1 else f"{row.label}, {column.label}")
        frames.append(data)
    data = pd.concat(frames, ignore_index=True)
    return Drawing(figure, data, (_summary(request, cells, frames),))


def _types(request: Request, run: RunConfig) -> np.ndarray:
    """Index into TYPES of each client [K]."""
    if run.partition.name != "interaction":
        expected = "'interaction', the only partition whose clients have types (conf/figure/)"
        raise request.error(wrong("partition", run.partition.name, expected))
    partition: Any = make("interaction", run.partition.parameters)
    triplets = np.array([triplet(matrix) for matrix in partition.matrices()])
    preferred = triplets[:, [1, 0, 2]]  # the first of equal ones counts: AI before CI
    return np.array([1, 0, 2])[(preferred >= preferred.max(1, keepdims=True) - 1e-9).argmax(1)]


def _values(request: Request, row: Row, column: Column, runs: list[RunConfig]) -> pd.DataFrame:
    """Long form: row, column, seed, round, client, type, place (of the client, sorted by type)."""
    types = _types(request, runs[0])
    places = np.argsort(np.argsort(types, kind="stable"))
    shown = int(request.option("rounds", 20))
    lines = []
    for run in runs:
        taken = [record for record in request.records(run) if record.split == "participation"]
        found = [(record.round, int(record.group.removeprefix("client="))) for record in taken]
        # Rounds with everybody (pre-training) have no such records.
        last = min((t for t, _ in found), default=0) + shown
        lines += [
            (row.label, column.key, run.seed, t, k, TYPES[types[k]], int(places[k]))
            for t, k in found
            if t < last
        ]
    return pd.DataFrame(lines, columns=["row", "column", "seed", "round", "client", "type", "place"])


def _draw(axis: Axes, data: pd.DataFrame, types: np.ndarray) -> None:
    colours = dict(zip(TYPES, sns.color_palette("colorblind", 3), strict=True))
    axis.grid(False)
    start = 0
    first = data[data["seed"] == data["seed"].min()]
    rounds = first["round"].min(), first["round"].max()
    for i, name in enumerate(TYPES):
        size = int((types == i).sum())
        if size:
            axis.axhspan(start - 0.5, start + size - 0.5, color=colours[name], alpha=0.25, linewidth=0)
            share, even = (data["type"] == name).mean(), size / len(types)
            axis.text(
                1.02, start + size / 2 - 0.5, f"{name} {100 * share:.1f} % ({100 * even:.1f} %)",
                va="center", fontsize=8, transform=axis.get_yaxis_transform(),
            )  # fmt: skip
        start += size
    axis.scatter(first["round"], first["place"], s=14, color="0.15", zorder=3)
    axis.set_xlim(rounds[0] - 0.7, rounds[1] + 0.7)
    axis.set_ylim(-0.5, len(types) - 0.5)
    axis.text(1.02, 1.01, "share of places\n(of clients)", va="bottom", fontsize=8, transform=axis.transAxes)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("round")
    axis.set_ylabel("client, sorted by type")


def _summary(
    request: Request, cells: list[tuple[Row, Column, list[RunConfig]]], frames: list[pd.DataFrame]
) -> str:
    types = _types(request, cells[0][2][0])
    there = ", ".join(f"{int((types == i).sum())} {name}" for i, name in enumerate(TYPES))
    shares = "; ".join(
        f"{row.label} "
        + ", ".join(f"{name} {100 * (frame['type'] == name).mean():.1f} %" for name in TYPES)
        + f" (seeds: {frame['seed'].nunique()})"
        for (row, _, _), frame in zip(cells, frames, strict=True)
    )
    return f"Clients: {there}. Share of places: {shares}."
