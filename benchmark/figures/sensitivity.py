"""How FedDiverse's estimate depends on its hyper-parameters (FedDiverse, Fig. 4): one heat map for each q."""

from __future__ import annotations

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import panels

METRICS = {"dht_error_max": "largest error over clients", "dht_error": "mean error over clients"}


@kind("sensitivity")
def sensitivity(request: Request) -> Drawing:
    """Distance between estimated and true triplets over (tau_b, tau_a), columns of panels by q, means over seeds.

    Above the largest distance over clients (the paper's), below the mean. The values come from the runs' own selection
    settings. Options: ``chosen``, {q, tau_b, tau_a} to be framed.
    """
    data = _values(request)
    chosen = request.option("chosen", {})
    steps = data.groupby(["metric", "q", "tau_b", "tau_a"], as_index=False)["value"].mean()
    qs = sorted(steps["q"].unique())
    figure, axes = panels(2, len(qs), width=2.3, height=2.4)
    for i, (metric, title) in enumerate(METRICS.items()):
        of_metric = steps[steps["metric"] == metric]
        low, high = of_metric["value"].min(), of_metric["value"].max()
        for j, q in enumerate(qs):
            axis = axes[i * len(qs) + j]
            grid = of_metric[of_metric["q"] == q].pivot(index="tau_b", columns="tau_a", values="value")
            sns.heatmap(
                grid.iloc[::-1], ax=axis, vmin=low, vmax=high, cmap="viridis_r", annot=True, fmt=".2f",
                annot_kws={"fontsize": 7}, cbar=False, linewidths=0.5,
            )  # fmt: skip
            axis.set_title(f"q = {q:g}" if i == 0 else "", fontsize=10)
            axis.set_xlabel("attribute steps" if i == 1 else "")
            axis.set_ylabel(f"{title}\nbiased steps" if j == 0 else "", fontsize=9)
            axis.tick_params(labelsize=8, rotation=0)
            if chosen and chosen.get("q") == q:
                _frame(axis, grid.iloc[::-1], chosen)
    remark = f"{_best(steps, 'dht_error_max')}. {_best(steps, 'dht_error')}. Seeds: {data['seed'].nunique()}."
    framed = "Framed: the values that the paper chose." if chosen else ""
    return Drawing(figure, data, tuple(text for text in (framed, remark) if text))


def _best(steps: pd.DataFrame, metric: str) -> str:
    """Where an error is smallest, the first place of equal ones."""
    found = steps[steps["metric"] == metric].sort_values("value", kind="stable").iloc[0]
    where = f"q = {found['q']:g}, {found['tau_b']:g} biased and {found['tau_a']:g} attribute steps"
    return f"Smallest {METRICS[metric]} {found['value']:.2f} at {where}"


def _frame(axis: Axes, grid: pd.DataFrame, chosen: dict[str, float]) -> None:
    """A frame around the cell of the chosen numbers of steps, if it is in the grid."""
    if chosen.get("tau_b") in grid.index and chosen.get("tau_a") in grid.columns:
        corner = (list(grid.columns).index(chosen["tau_a"]), list(grid.index).index(chosen["tau_b"]))
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="red", linewidth=2, clip_on=False))


def _values(request: Request) -> pd.DataFrame:
    """Long form: q, tau_b, tau_a, seed, metric, value."""
    rows = []
    for _, _, run in request.finished():
        final = request.final(run, "selection")
        values = [run.selection[name] for name in ("q", "tau_b", "tau_a")]
        rows += [(*values, run.seed, metric, final[metric]) for metric in METRICS if metric in final]
    return request.frame(rows, ["q", "tau_b", "tau_a", "seed", "metric", "value"])
