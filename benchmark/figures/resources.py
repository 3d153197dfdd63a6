"""Bars of what each method costs a client and what it reaches (FedMR, Fig. 4)."""

from __future__ import annotations

import pandas as pd
import seaborn as sns

from benchmark.analyses.resources import NOTES, measure
from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import panels


@kind("resources")
def resources(request: Request) -> Drawing:
    """Numbers held by a client and seconds per round, both over FedAvg's, and the table's metric; means over columns.

    The first row is what the others are divided by; methods that do not exist yet are left out. Options: ``repeats``
    of the timing.
    """
    spec = request.runs
    measured = measure(spec, request.cells, int(request.option("repeats", 3)))
    if measured.empty:
        raise request.error("none of its methods can run; nothing to draw.")
    first = spec.rows[0].label
    over = measured.set_index(["column", "method"])[["held", "seconds"]]
    over = over / over.xs(first, level="method").reindex(over.index, level="column")
    shown, reached = spec.metric_format, _reached(request)
    unit = f" ({shown.unit})" if shown.unit else ""
    parts = [
        ("numbers held by a client", f"over {first}'s", over["held"].reset_index(name="value")),
        ("time of a client's round", f"over {first}'s", over["seconds"].reset_index(name="value")),
        (shown.label, f"mean over columns{unit}", reached),
    ]
    order = [row.label for row in spec.rows if row.label in set(measured["method"])]
    figure, axes = panels(1, len(parts), width=3.4, height=0.55 + 0.28 * len(order))
    for axis, (title, label, data) in zip(axes, parts, strict=True):
        # Held numbers and times are spread over data sets, what is reached over seeds.
        sns.barplot(
            data, y="method", x="value", order=order, hue="method", hue_order=order, palette="colorblind",
            errorbar=("sd" if data is reached else None), err_kws={"linewidth": 1}, ax=axis, legend=False,
        )  # fmt: skip
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(label)
        axis.set_ylabel("")
        axis.tick_params(labelsize=8)
        if axis is not axes[0]:
            axis.set_yticklabels([])
    long = [
        measured.melt(["column", "method"], ["held", "seconds"], "measure"),
        reached.assign(measure=spec.metric, column="mean"),
    ]
    remarks = (
        f"Left and middle: means over columns of the quotient by {first}. Right: mean over seeds of the mean over "
        "columns; line: one sample standard deviation.",
        *NOTES,
    )
    return Drawing(figure, pd.concat(long, ignore_index=True), remarks)


def _reached(request: Request) -> pd.DataFrame:
    """method, seed, value: mean over the columns of each seed that is done in all of them."""
    spec, shown = request.runs, request.runs.metric_format
    found: dict[tuple[str, int], list[float]] = {}
    for row, _, run in request.finished():
        final = request.final(run, shown.split)
        if spec.metric in final:
            found.setdefault((row.label, run.seed), []).append(final[spec.metric] * shown.scale)
    wanted = len(spec.run_columns)
    rows = [(*key, sum(values) / wanted) for key, values in found.items() if len(values) == wanted]
    return pd.DataFrame(rows, columns=["method", "seed", "value"])
