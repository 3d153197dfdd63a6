"""The leaderboard: all methods on one suite, ranked over its columns and seeds, beside what each of them costs.

Reads the finished runs of conf/table/leaderboard.yaml. Costs are counted and timed on the first client of the first
column, as in FedMR's Fig. 4a (``analyse resources``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmark.analyses.registry import Report, analysis
from benchmark.analyses.resources import Trainee, numbers, timed
from benchmark.cli.arguments import preset_of
from benchmark.cli.planning import command, planned
from benchmark.experiments.plan import Cells
from benchmark.experiments.spec import TableSpec, spec_called
from benchmark.reports.collect import collect
from benchmark.reports.ranking import Ranking, ranking
from benchmark.reports.tables import Table
from benchmark.runs.store import Results

REPEATS, WARM, ROUNDS = 3, 2, 5
"""Each method is timed so often, in turn; first rounds that are not timed; rounds that are."""

NOTES = (
    "rank: mean over all columns and seeds of the method's rank (1 is best, ties share), with a 95 % bootstrap "
    "interval over columns and seeds. A run that diverged comes last. Columns of the table: means over seeds.",
    "Costs, counted for one client of the first column that takes part again: up and down, what it sends and receives "
    "in a round, in sizes of the model (1 is all of it); client, what it keeps between rounds; server, what the "
    "server keeps beside the model, for that one client. Time: its round over FedAvg's, mean over rounds 3 to 7, "
    "median of three; what happens once before them (FedDiverse's set-up) is not in it.",
)


class Board(NamedTuple):
    """What is ranked: the table, the values by block and method, and who is left out."""

    table: Table
    values: pd.DataFrame
    columns: list[str]
    incomplete: list[str]

    @property
    def ranking(self) -> Ranking:
        """The ranking of the methods with all runs ended."""
        return ranking(self.values, self.columns)


def board(table: Table) -> Board:
    """Values [column x seed, method] of the rows of ``table`` whose runs have all ended."""
    seeds: dict[str, dict[tuple[str, int], float]] = {}
    incomplete = []
    sign = 1.0 if table.spec.metric_format.higher_is_better else -1.0
    for row in table.spec.rows:
        found: dict[tuple[str, int], float] = {}
        complete = True
        for column in table.spec.run_columns:
            cell = table.cells[row.key, column.key]
            complete &= bool(cell.runs)
            for run in cell.runs:
                complete &= run.status in ("done", "diverged")
                value = -math.inf if run.status == "diverged" or run.value is None else sign * run.value
                found[column.key, run.seed] = value
        if complete:
            seeds[row.label] = found
        else:
            incomplete.append(row.label)
    values = pd.DataFrame(seeds)
    return Board(table, values, [column for column, _ in values.index], incomplete)


def _leaderboard(values: Mapping[str, str]) -> tuple[TableSpec, Cells, Table]:
    preset = preset_of(values)
    spec = spec_called("leaderboard")
    results = Results(Path(values.get("results", "results"))).existing()
    cells = planned(spec, spec, values, preset)
    return spec, cells, collect(spec, preset, cells, results)


@analysis(
    "leaderboard",
    {"preset": "quick|small|paper", "results": "FOLDER", "seeds": "NUMBER", "tuned": "FOLDER|off"},
)
def leaderboard(values: Mapping[str, str]) -> Report:
    """All methods on one suite: mean ranks with intervals, and what each method costs."""
    spec, cells, table = _leaderboard(values)
    found = board(table)
    notes = list(NOTES)
    if found.incomplete:
        notes.append(
            f"Not ranked, as runs are missing: {', '.join(found.incomplete)}. Make them with: "
            + command(f"table name=leaderboard preset={table.preset}", values)
        )
    if found.values.shape[1] < 2:
        return Report(
            f"{spec.name}_ranks", spec.title, pd.DataFrame({"method": found.incomplete}), tuple(notes)
        )
    ranks = found.ranking
    notes.append(
        f"{ranks.blocks} blocks (column x seed). Friedman test of equal methods: p = {ranks.p:.2g}. Mean ranks that "
        f"differ by less than {ranks.critical:.2f} (Nemenyi, 5 %) cannot be told apart."
    )
    prices, shown = costs(spec, cells), spec.metric_format
    means = found.values.replace(-np.inf, np.nan).groupby(level=0, sort=False).mean()
    lines = []
    for method, line in ranks.table.iterrows():
        columns = {
            spec.column(key).label: means.loc[key, method]
            * shown.scale
            * (1 if shown.higher_is_better else -1)
            for key in means.index
        }
        lines.append({"method": method, **line.to_dict(), **columns, **prices.get(str(method), {})})
    title = f"{spec.title}, preset {table.preset}"
    return Report(f"{spec.name}_ranks", title, pd.DataFrame(lines), tuple(notes), decimals=2)


def costs(spec: TableSpec, cells: Cells) -> dict[str, dict[str, float]]:
    """Of each method: time, up, down, client, server, as `NOTES` says; methods whose cell has no runs are left out."""
    found = timed(spec, cells, spec.run_columns[0].key, REPEATS, warm=WARM, rounds=ROUNDS)
    _, fedavg = found.get(spec.row("fedavg").label, (None, math.nan))
    return {
        label: {"time": seconds / fedavg, **_counted(trainee)} for label, (trainee, seconds) in found.items()
    }


def _counted(trainee: Trainee) -> dict[str, float]:
    """Model sizes sent and received in a round, kept by the client and by the server."""
    state, run = trainee.state, trainee.run
    _, report = run.step(state)
    size = run.layout.size + len(run.model.buffers)
    server = (state.direction, state.optimizer, state.post, state.rules)
    return {
        "up": (run.exchanged + report.cost.scalars_up) / size,
        "down": (run.exchanged + report.cost.scalars_down) / size,
        "client": numbers(state.clients.get(0, {})) / size,
        "server": sum(numbers(part) for part in server) / size,
    }
