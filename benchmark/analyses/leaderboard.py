"""The leaderboard: all methods on one suite, ranked over its columns and seeds, beside what each of them costs.

Reads the finished runs of conf/table/leaderboard.yaml. Costs are counted and timed on the first client of the first
column, as in FedMR's Fig. 4a (``analyse resources``).
"""

import math

import numpy as np
import pandas as pd

from benchmark.analyses.resources import numbers, timed
from benchmark.experiments.plan import Cells
from benchmark.experiments.selection import RunQuery, plan_cells
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.reports.collect import collect
from benchmark.reports.results import board
from benchmark.reports.statistics import ranking
from benchmark.reports.tables import Table, text_table
from benchmark.runs.index import RunIndex
from benchmark.runs.store import ResultsFolder

REPEATS, WARM, ROUNDS = 3, 2, 5
"""How often each method is timed, in turn; first rounds that are not timed; rounds that are."""

TOGETHER = ("hcsfed",)
"""Rows without costs, which are counted for a single client: HCSFed puts its clients into clusters."""

NOTES = (
    "rank: mean over all columns and seeds of the method's rank (1 is best, ties share), with a 95 % bootstrap "
    "interval over columns and seeds. A run that diverged comes last. Columns of the table: means over seeds.",
    "Costs are counted for one client of the first column, in a round in which it takes part again. The unit is the "
    "size of the model. up, down: what the client sends and receives. client: what it keeps between rounds. server: "
    "what the server keeps for it beside the model. time: seconds of a round divided by FedAvg's, mean over rounds 3 "
    "to 7, median of three; computations before these rounds (FedDiverse's set-up) are left out. Empty: the method "
    "needs more than one client.",
)


def leaderboard(options: RunQuery) -> Table:
    """All methods on one suite: mean ranks with intervals, and what each method costs."""
    spec = spec_called("leaderboard")
    index = RunIndex(ResultsFolder(options.results, options.stale).existing())
    cells = plan_cells(spec, spec, options)
    values, incomplete = board(collect(spec, options.preset, cells, index))
    name, notes = f"{spec.name}_ranks", [*NOTES, *options.remarks]
    if incomplete:
        command = options.command(f"table name=leaderboard preset={options.preset}")
        notes.append(f"Not ranked, as runs are missing: {', '.join(incomplete)}. Make them with: {command}")
    if values.shape[1] < 2:
        return text_table(name, spec.title, pd.DataFrame({"method": incomplete}), tuple(notes))
    ranks = ranking(values)
    notes.append(
        f"{ranks.blocks} blocks (column x seed). Friedman test of equal methods: p = {ranks.p:.2g}. Mean ranks that "
        f"differ by less than {ranks.critical:.2f} (Nemenyi, 5 %) cannot be told apart."
    )
    # Means over the seeds that did not diverge, in the printed unit.
    scale = spec.metric_format.scale * (1 if spec.metric_format.higher_is_better else -1)
    means = scale * values.replace(-np.inf, np.nan).groupby(level=0, sort=False).mean()
    means = means.rename(index=lambda key: spec.column(key).label)
    data = ranks.table.join(means.T).join(pd.DataFrame(costs(spec, cells)).T)
    title = f"{spec.title}, preset {options.preset}"
    return text_table(name, title, data.rename_axis("method").reset_index(), tuple(notes), decimals=2)


def costs(spec: TableSpec, cells: Cells) -> dict[str, dict[str, float]]:
    """Method -> time, up, down, client, server, as `NOTES` says, but for `TOGETHER` and methods without runs."""
    column = spec.run_columns[0].key
    alone = spec.cut([row.key for row in spec.rows if row.key not in TOGETHER], [column])
    trainees = timed(alone, cells, column, REPEATS, warm=WARM, rounds=ROUNDS)
    _, fedavg = trainees.get(spec.row("fedavg").label, (None, math.nan))
    prices = {}
    for label, (trainee, seconds) in trainees.items():
        state, run = trainee.state, trainee.run
        _, report = run.run_round(state)
        size = run.layout.size + len(run.model.buffers)
        prices[label] = {
            "time": seconds / fedavg,
            "up": (run.exchanged + report.cost.scalars_up) / size,
            "down": (run.exchanged + report.cost.scalars_down) / size,
            "client": numbers(state.clients.get(0, {})) / size,
            "server": numbers((state.direction, state.optimizer, state.post, state.rules)) / size,
        }
    return prices
