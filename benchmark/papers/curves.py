"""How the finished runs of a table come on over their rounds, and so whether its budget is large enough.

The CSV holds the curves. The printed table holds the fifths of each curve; the FedAvg row alone decides on a budget.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from benchmark.errors import ConfigError, wrong
from benchmark.experiments.plan import PlannedCell
from benchmark.experiments.selection import TableQuery, plan_table
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.reports.collect import recorded
from benchmark.reports.tables import Table, text_table
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState

PARTS = 5
"""Into how many parts of equal length a training is cut."""

NOTES = (
    "1 to 5: the mean of each fifth of the training, over its evaluated rounds and over seeds; empty if no round of it "
    "was evaluated. gain: the mean of the last five evaluated rounds of the last fifth minus the last value before it; "
    "gain sd: its standard deviation over seeds. The CSV has mean and standard deviation over seeds, round by round.",
)


def curves(options: TableQuery) -> Table:
    """How the runs of a table come on: the mean of each fifth of their rounds, and all curves as CSV."""
    if options.name is None:
        raise ConfigError(wrong("name", "curves", "the name of a table, with --curves beside it"))
    spec, cells = plan_table(spec_called(options.name), options)
    if spec.metric_format.of:
        raise ConfigError(f"name: {spec.name} shows {spec.metric}, which has no curve; choose another table.")
    index = RunIndex(ResultsFolder(options.results, options.stale).existing())
    lines, points, missing = [], [], 0
    for (row, column), cell in cells.items():
        curve = curve_of(spec, cell, index)
        missing += len(cell.runs) - len(curve.columns)
        if not curve.empty:
            lines.append({"row": row, "column": column, "seeds": len(curve.columns), **fifths(curve)})
            points.append(over_seeds(row, column, curve))
    if not points:
        words = f"table name={spec.name} preset={options.preset}"
        raise ConfigError(f"curves: no run has finished. Make them with: {options.command(words)}")
    remarks = (f"Runs that are missing or diverged: {missing}.",) if missing else ()
    title = f"{spec.title}: {spec.metric_format.label} in the fifths of the training, preset {options.preset}"
    notes = (*NOTES, *remarks, *options.remarks)
    printed = text_table(f"{spec.name}_curves", title, pd.DataFrame(lines), notes, decimals=2)
    return replace(printed, data=pd.concat(points))


def curve_of(spec: TableSpec, cell: PlannedCell, index: RunIndex) -> pd.DataFrame:
    """The metric of the cell's column in its finished runs [round x seed]; empty without one."""
    spec = spec.of_column(cell.column)
    shown, done = spec.metric_format, [run for run in cell.runs if index.state(run.key) is RunState.DONE]
    values = {run.seed: recorded(index.records(run.key), shown.split, spec.metric) for run in done}
    return pd.DataFrame(values).sort_index() * shown.scale


def over_seeds(row: str, column: str, curve: pd.DataFrame) -> pd.DataFrame:
    """The lines of a cell in the CSV."""
    over = {"mean": curve.mean(axis=1), "std": curve.std(axis=1), "seeds": curve.count(axis=1)}
    return pd.DataFrame({"row": row, "column": column, "round": curve.index, **over})


def fifths(curve: pd.DataFrame) -> dict[str, float]:
    """What `NOTES` says of a curve [round x seed]; round 0 is the untrained model, the last round ends the training."""
    part = np.ceil(curve.index * PARTS / curve.index.max())
    means = curve.groupby(part).mean().reindex(range(1, PARTS + 1))
    gain = curve[part == PARTS].iloc[-5:].mean() - curve[part < PARTS].iloc[-1]
    parts = means.mean(axis=1).rename(str)
    return dict(parts) | {"gain": gain.mean(), "gain sd": gain.std()}
