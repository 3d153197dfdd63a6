"""How much the updates of a round agree, and what FedLD's principal gradients make of them.

Zeng et al., FedLD, MICCAI 2024, https://arxiv.org/abs/2408.12300, Eqs. 4-7

Trains the FedAvg row of a table's column, one seed, and looks at the updates of every round. Principal gradients keep
the sign of each update's projection on each axis and forget its size: they stay close to the mean as long as updates
agree, and follow chance where they are orthogonal.
"""

from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from benchmark.analyses.registry import UpdateGeometryOptions
from benchmark.errors import ConfigError
from benchmark.experiments.plan import plan
from benchmark.experiments.tables import spec_called
from benchmark.reports.tables import Table, text_table
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data
from methods.core.contexts import RoundView, State
from methods.core.rules import Aggregator
from methods.core.vectors import gram
from methods.fedavg import MeanDirection
from methods.fedld import Principal

NOTES = (
    "cosine: mean over pairs of clients. first, second: shares of the eigenvalues of G G' that the two largest are. "
    "length, angle: those of the principal aggregate (paper's form, L = 0.8 m) against the weighted mean: ||a||/||b||, "
    "cos(a, b). Training goes on with the mean.",
)


class _Watch(Aggregator):
    """The mean of FedAvg; its state is the geometry of the round's updates."""

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """Return (Dbar [d] of FedAvg, a line of the table)."""
        mean, _ = MeanDirection().direction(updates, p, view, {})
        return mean, {"round": view.round + 1, **geometry(updates, p, mean, view)}


def geometry(updates: Tensor, p: Tensor, mean: Tensor, view: RoundView) -> dict[str, float]:
    """The columns of the report for updates [m, d] with weights p [m] and their mean [d]."""
    products = gram(updates)
    lengths = products.diagonal().sqrt()
    m = len(updates)
    cosines = products / lengths[:, None] / lengths
    shares = torch.linalg.eigvalsh(products).flip(0) / products.trace()
    principal, _ = Principal(proportion=0.8).direction(updates, p, view, {})
    a, b = principal.double(), mean.double()
    return {
        "cosine": float((cosines.sum() - m) / (m * (m - 1))) if m > 1 else float("nan"),
        "first": float(shares[0]),
        "second": float(shares[1]) if m > 1 else 0.0,
        "length": float(a.norm() / b.norm()),
        "angle": float(torch.dot(a, b) / a.norm() / b.norm()),
    }


def update_geometry(options: UpdateGeometryOptions) -> Table:
    """How much the updates of a round agree, and what FedLD's principal gradients make of them, round by round."""
    spec, preset = spec_called(options.name), options.preset
    column = spec.run_columns[0] if options.column is None else spec.column(options.column)
    cell = plan(spec.cut(["fedavg"], [column.key]), preset, range(1))["fedavg", column.key]
    if not cell.runs:
        raise ConfigError(f"table {spec.name}, column {column.key}, preset {preset}: {cell.state}.")
    config = cell.runs[0]
    torch.set_num_threads(config.runtime.threads)
    run = build_run(config, load_data(config))
    run = replace(run, method=replace(run.method, direction=_Watch()))
    state, rounds, lines = run.initial_state(), run.schedule.rounds, []
    for _ in range(min(options.rounds or rounds, rounds)):
        state, _ = run.run_round(state)
        lines.append(state.direction)
    what = "Updates of a round and their principal gradients"
    title = f"{what}: {spec.title}, {column.label}, preset {preset}, seed 0"
    return text_table(f"update_geometry_{spec.name}", title, pd.DataFrame(lines), NOTES, decimals=2)
