"""Who has what: the samples per client and class of a table's columns, one panel each (FedSDC, Fig. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmark.experiments.plan import plan
from benchmark.experiments.spec import Column, TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.figures.registry import Drawing, Request, kind
from benchmark.figures.style import panels
from benchmark.reports.pictures import draw_bubbles

CELL = 0.27
"""Inches of a client and of a class."""


class _Scenario(NamedTuple):
    """One panel: column, samples per client and class [K, Y], names of the classes."""

    column: Column
    counts: np.ndarray
    classes: Sequence[str]

    def long(self) -> pd.DataFrame:
        """Long form: column, client, class, samples."""
        client, label = np.indices(self.counts.shape)
        classes = np.asarray(self.classes)[label.ravel()]
        samples = {"client": client.ravel(), "class": classes, "samples": self.counts.ravel()}
        return pd.DataFrame({"column": self.column.key, **samples})


@kind("partitions")
def partitions(request: Request) -> Drawing:
    """One bubble per client and class; the split of seed 0, before anything is held out. Nothing is trained.

    Options: ``of`` the table whose columns are drawn.
    """
    table = spec_called(str(request.option("of")), f"figure {request.spec.name}: options.of")
    columns = [table.column(key) for key in request.spec.columns] or table.run_columns
    scenarios = [_scenario(request, table, column) for column in columns]
    classes = [len(s.classes) for s in scenarios]
    clients = max(len(s.counts) for s in scenarios)
    rows = len(scenarios)
    figure, axes = panels(rows, 1, clients * CELL + 2.9, CELL * sum(classes) / rows + 0.75)
    grid = axes[0].get_gridspec()
    assert grid is not None
    grid.set_height_ratios([number + 1.5 for number in classes])
    for axis, scenario in zip(axes, scenarios, strict=True):
        draw_bubbles(axis, scenario.counts, scenario.classes, CELL, CELL)
        total = int(scenario.counts.sum())
        axis.set_title(f"{scenario.column.label}: {total:,} samples", fontsize=10)
        axis.set_ylabel("")
        axis.set_xlabel("client" if axis is axes[-1] else "")
    remark = "Area: samples of a class at a client, on a scale of each panel's own. Split of seed 0."
    return Drawing(figure, pd.concat([s.long() for s in scenarios]), (remark,))


def _scenario(request: Request, table: TableSpec, column: Column) -> _Scenario:
    """The split of one column, as every run of it with seed 0 makes it."""
    row = table.rows[0].key
    cell = plan(table.cut([row], [column.key]), request.preset, (0,), request.extra)[row, column.key]
    if not cell.runs:
        raise request.error(f"column {column.key} of {table.name}: {cell.state}.")
    from benchmark.runs.data import load_data  # imports torch, which drawing finished runs does not need

    data = load_data(cell.runs[0])
    labels, names = np.asarray(data.train.labels), data.dataset.classes
    counts = [np.bincount(labels[client], minlength=len(names)) for client in data.partition.clients]
    return _Scenario(column, np.stack(counts), names)
