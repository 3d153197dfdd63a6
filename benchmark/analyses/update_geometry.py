"""How the updates of a round lie to each other, and what FedLD's principal gradients make of them.

Zeng et al., FedLD, MICCAI 2024, https://arxiv.org/abs/2408.12300, Eqs. 4-7

Trains the FedAvg row of a table's column, one seed, and looks at the updates of every round. Principal gradients keep
the sign of each update's projection on each axis and forget its size: they stay close to the mean as long as updates
agree, and follow chance where they are orthogonal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from benchmark.analyses.registry import Report, analysis
from benchmark.cli.arguments import positive, preset_of
from benchmark.errors import ConfigError
from benchmark.experiments.plan import plan
from benchmark.experiments.spec import spec_called
from benchmark.runs.execute import build_run, load_data
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
    """The mean, with a note of what the updates looked like."""

    seen: Any

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(Dbar [d], state) of FedAvg."""
        mean, _ = MeanDirection().direction(updates, p, view, {})
        self.seen.append({"round": view.round + 1, **geometry(updates, p, mean, view)})
        return mean, state


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


@analysis(
    "update-geometry",
    {
        "preset": "quick|small|paper",
        "name": "FILE of conf/table with a row fedavg",
        "column": "COLUMN of it",
        "rounds": "NUMBER",
        "results": "FOLDER",
    },
)
def update_geometry(values: Mapping[str, str]) -> Report:
    """How much the updates of a round agree, and what FedLD's principal gradients make of them, round by round."""
    preset, name = preset_of(values), values.get("name", "fedld_table1")
    spec = spec_called(name)
    spec.row("fedavg")
    column = values.get("column", spec.run_columns[0].key)
    cell = plan(spec.cut(["fedavg"], [spec.column(column).key]), preset, range(1))["fedavg", column]
    if not cell.runs:
        raise ConfigError(f"table {name}, column {column}, preset {preset}: {cell.state}.")
    config = cell.runs[0]
    seen: list[dict[str, float]] = []
    torch.set_num_threads(config.runtime.threads)
    run = build_run(config, load_data(config))
    run = replace(run, method=replace(run.method, direction=_Watch(seen=seen)))
    state = run.initial_state()
    for _ in range(min(positive(values, "rounds") or run.schedule.rounds, run.schedule.rounds)):
        state, _ = run.step(state)
    label = spec.column(column).label
    title = (
        f"Updates of a round and their principal gradients: {spec.title}, {label}, preset {preset}, seed 0"
    )
    return Report(f"update_geometry_{name}", title, pd.DataFrame(seen), NOTES, decimals=2)
