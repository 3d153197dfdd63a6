"""What clients hold, and who is selected.

Without runs: samples per class (FedSDC, Fig. 3), metrics of heterogeneity (FedDiverse, Fig. 3). Of runs: the estimate
of FedDiverse's selection over its settings (Fig. 4), and the clients that are selected (Figs. 5 to 9).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from benchmark.config.schema import RunConfig
from benchmark.errors import wrong
from benchmark.experiments.parts import Column
from benchmark.experiments.plan import plan
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.heterogeneity import class_counts, six_metrics, triplets
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


ERRORS = {"dht_error_max": "largest error over clients", "dht_error": "mean error over clients"}

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
        rows += [(*values, run.seed, metric, final[metric]) for metric in ERRORS if metric in final]
    data = request.frame(rows, ["q", "tau_b", "tau_a", "seed", "metric", "value"])
    papers_choice = request.option("chosen", {})
    steps = data.groupby(["metric", "q", "tau_b", "tau_a"], as_index=False)["value"].mean()
    qs = sorted(steps["q"].unique())
    figure, axes = panels(2, len(qs), width=2.3, height=2.4)
    for i, (metric, title) in enumerate(ERRORS.items()):
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
        raise request.nothing("no run of it is done; nothing to draw.")
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
    values = triplets(partition.matrices())[:, order]
    largest = (values >= values.max(1, keepdims=True) - 1e-9).argmax(1)
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
