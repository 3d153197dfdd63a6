"""Client selection of FedDiverse: its estimate over its settings (Fig. 4), and who is selected (Figs. 5-9)."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from benchmark.config.schema import RunConfig
from benchmark.errors import wrong
from benchmark.heterogeneity import triplets as triplets_of
from benchmark.papers.figures import Drawing, Request, panels
from partitions import make

METRICS = {"dht_error_max": "largest error over clients", "dht_error": "mean error over clients"}

TYPES = ("CI", "AI", "SC")


def sensitivity(request: Request) -> Drawing:
    """Distance between estimated and true triplets over (tau_b, tau_a), columns of panels by q, means over seeds.

    Above the largest distance over clients (the paper's), below the mean. The values come from the runs' own selection
    settings. Options: ``chosen``, {q, tau_b, tau_a} to be framed.
    """
    rows = []
    for _, _, run in request.finished():
        final = request.final(run, "selection")
        values = [run.selection[name] for name in ("q", "tau_b", "tau_a")]
        rows += [(*values, run.seed, metric, final[metric]) for metric in METRICS if metric in final]
    data = request.frame(rows, ["q", "tau_b", "tau_a", "seed", "metric", "value"])
    papers_choice = request.option("chosen", {})
    steps = data.groupby(["metric", "q", "tau_b", "tau_a"], as_index=False)["value"].mean()
    qs = sorted(steps["q"].unique())
    figure, axes = panels(2, len(qs), width=2.3, height=2.4)
    for i, (metric, title) in enumerate(METRICS.items()):
        of_metric = steps[steps["metric"] == metric]
        for j, q in enumerate(qs):
            axis = axes[i * len(qs) + j]
            of_panel = of_metric[of_metric["q"] == q]
            grid = of_panel.pivot(index="tau_b", columns="tau_a", values="value").iloc[::-1]
            sns.heatmap(
                grid, ax=axis, vmin=of_metric["value"].min(), vmax=of_metric["value"].max(), cmap="viridis_r",
                annot=True, fmt=".2f", annot_kws={"fontsize": 7}, cbar=False, linewidths=0.5,
            )  # fmt: skip
            axis.set_title(f"q = {q:g}" if i == 0 else "", fontsize=10)
            axis.set_xlabel("attribute steps" if i == 1 else "")
            axis.set_ylabel(f"{title}\nbiased steps" if j == 0 else "", fontsize=9)
            axis.tick_params(labelsize=8, rotation=0)
            b, a = papers_choice.get("tau_b"), papers_choice.get("tau_a")
            if papers_choice.get("q") == q and b in grid.index and a in grid:
                corner = grid.columns.get_loc(a), grid.index.get_loc(b)
                axis.add_patch(Rectangle(corner, 1, 1, fill=False, color="red", linewidth=2, clip_on=False))
    framed = ["Framed: the values that the paper chose."] if papers_choice else []
    return Drawing(figure, data, (f"Means over seeds ({data['seed'].nunique()}).", *framed))


def selected_clients(request: Request) -> Drawing:
    """One panel per row and column: dots where a client takes part, by round; clients sorted by type.

    A client's type is the largest value of its true triplet, ties between CI and AI are AI (so the paper's shares of
    Fig. 7). The bands carry each type's share of all places, over all seeds and shown rounds, and its share of the
    clients, which is what uniform selection would give. Dots are the first seed's. Options: ``rounds`` shown (20).
    """
    spec = request.runs
    every = [(row, column, request.done(row, column)) for row in spec.rows for column in spec.run_columns]
    cells = [cell for cell in every if cell[2]]
    if not cells:
        raise request.error("no run of it is done; nothing to draw.")
    figure, axes = panels(-(-len(cells) // 2), min(2, len(cells)), width=5.0, height=4.2)
    for unused in axes[len(cells) :]:
        unused.set_visible(False)
    frames, shares = [], []
    for axis, (row, column, runs) in zip(axes, cells, strict=False):
        types = _types(request, runs[0])
        lines = [(row.label, column.key, *line) for run in runs for line in _places(request, run, types)]
        data = pd.DataFrame(lines, columns=["row", "column", "seed", "round", "client", "type", "place"])
        share = {name: 100 * (data["type"] == name).mean() for name in TYPES}
        _draw(axis, data, types, share)
        axis.set_title(row.label if len(spec.run_columns) == 1 else f"{row.label}, {column.label}")
        frames.append(data)
        words = ", ".join(f"{name} {value:.1f} %" for name, value in share.items())
        shares.append(f"{row.label} {words} (seeds: {data['seed'].nunique()})")
    there = ", ".join(f"{(_types(request, cells[0][2][0]) == name).sum()} {name}" for name in TYPES)
    remark = f"Clients: {there}. Share of places: {'; '.join(shares)}."
    return Drawing(figure, pd.concat(frames, ignore_index=True), (remark,))


def _types(request: Request, run: RunConfig) -> np.ndarray:
    """The type of each client [K]."""
    if run.partition.name != "interaction":
        expected = "'interaction', the only partition whose clients have types (conf/figure/)"
        raise request.error(wrong("partition", run.partition.name, expected))
    partition: Any = make("interaction", run.partition.parameters)
    order = [1, 0, 2]  # the first of equal ones counts: AI before CI
    triplets = triplets_of(partition.matrices())[:, order]
    largest = (triplets >= triplets.max(1, keepdims=True) - 1e-9).argmax(1)
    return np.array(TYPES)[order][largest]


def _places(request: Request, run: RunConfig, types: np.ndarray) -> list[tuple[int, int, int, str, int]]:
    """(seed, round, client, type, place of the client sorted by type) in the rounds that are shown."""
    places = np.argsort(np.argsort([TYPES.index(name) for name in types], kind="stable"))
    taken = [record for record in request.index.records(run.key) if record.split == "participation"]
    pairs = [(record.round, int(record.group.removeprefix("client="))) for record in taken]
    # Rounds with everybody (pre-training) have no such records.
    last = min((t for t, _ in pairs), default=0) + int(request.option("rounds", 20))
    return [(run.seed, t, k, str(types[k]), int(places[k])) for t, k in pairs if t < last]


def _draw(axis: Axes, data: pd.DataFrame, types: np.ndarray, shares: dict[str, float]) -> None:
    axis.grid(False)
    start = 0
    for name, colour in zip(TYPES, sns.color_palette("colorblind", 3), strict=True):
        size = int((types == name).sum())
        if size:
            axis.axhspan(start - 0.5, start + size - 0.5, color=colour, alpha=0.25, linewidth=0)
            axis.text(
                1.02, start + size / 2 - 0.5, f"{name} {shares[name]:.1f} % ({100 * size / len(types):.1f} %)",
                va="center", fontsize=8, transform=axis.get_yaxis_transform(),
            )  # fmt: skip
        start += size
    first = data[data["seed"] == data["seed"].min()]
    axis.scatter(first["round"], first["place"], s=14, color="0.15", zorder=3)
    axis.set(xlim=(first["round"].min() - 0.7, first["round"].max() + 0.7), ylim=(-0.5, len(types) - 0.5))
    axis.text(1.02, 1.01, "share of places\n(of clients)", va="bottom", fontsize=8, transform=axis.transAxes)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="round", ylabel="client, sorted by type")
