"""What client selection costs on top of uniform selection: FedDiverse's Table 2, printed formulas and measured numbers.

Nemeth et al., FedDiverse, 2025, https://arxiv.org/abs/2504.11216, section 5.4

Read from the finished runs of the paper's Table 1. The server's computation is not measured; only its formula is given.
"""

from collections import Counter
from collections.abc import Mapping

import pandas as pd

from benchmark.config.schema import RunConfig
from benchmark.experiments.selection import TableQuery, plan_cells
from benchmark.experiments.tables import spec_called
from benchmark.paths import PUBLISHED
from benchmark.reports.collect import recorded
from benchmark.reports.published import read_published
from benchmark.reports.tables import Table, text_table
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState

ROWS = ("feddiverse", "round_robin", "fednova", "powd", "fedpns", "hcsfed", "uniform")
"""Methods of Table 2 in its order; uniform selection, which they are compared to, has no row there."""

COLUMN = "cmnist_gsc"
"""The column of the paper's Table 1 whose runs are read."""

PRINTED = {
    "printed when": "frequency",
    "printed up": "communication_overhead",
    "printed clients": "client_computation",
    "printed server": "server_computation",
}
"""Columns of formulas and their names in the published file."""

NOTES = (
    "Printed: formulas of Table 2 for K = 24 to 100, r = 1e-5 and |theta| = 2.2 million, so r |theta| is 22 numbers. "
    "Bars and primes are lost in the text copy: K in 'not in K' must mean the clients of the round.",
    "Measured, mean over seeds, in all rounds together (once) or in each (per round). scalars: numbers sent to the "
    "server beyond updates, per client of the federation. clients: how many more take part than with uniform "
    "selection; each of them receives the model, trains, sends an update. forward: samples that pass through a model "
    "for the selection, trained: samples that its own training goes through, both in passes over all clients' data.",
    "What happens in at most half of the rounds counts as once. POW-D also sends the model to the clients that it "
    "asks. FedNova's step counts travel with the update and are not counted. The server's computation is not measured.",
)

COSTS = [
    f"{cost} {when}"
    for cost in ("scalars", "clients", "forward", "trained")
    for when in ("once", "per round")
]
"""Measured columns."""


def overhead(options: TableQuery) -> Table:
    """What each client selection costs beyond uniform selection (FedDiverse, Table 2): printed and measured."""
    preset = options.preset
    whole = spec_called("feddiverse_table1")
    whole.check_preset(preset)
    spec = whole.cut([row.key for row in whole.rows], [COLUMN])
    index = RunIndex(ResultsFolder(options.results, options.stale).existing())
    cells = plan_cells(whole, spec, options)
    printed = read_published(PUBLISHED / "feddiverse_table2.csv").set_index("method")
    rows: list[dict[str, object]] = []
    lacking = False
    for key in ROWS:
        cell = cells[key, COLUMN]
        done = [run for run in cell.runs if index.state(run.key) is RunState.DONE]
        line: dict[str, object] = {"method": spec.row(key).label}
        for head, name in PRINTED.items():
            line[head] = str(printed.loc[key, name]) if key in printed.index else ""
        line["runs"] = f"{len(done)} of {len(cell.runs)}" if cell.state == "ok" else cell.state
        costs = [_costs(index, run, cells["uniform", COLUMN].runs[0]) for run in done]
        rows.append(line | pd.DataFrame(costs, columns=COSTS, dtype=float).mean().to_dict())
        lacking |= cell.state == "ok" and not done
    command = options.command(f"table paper=feddiverse table=1 preset={preset} columns={COLUMN}")
    missing = [f"Make the runs that are missing with: {command}"] if lacking else []
    label = whole.column(COLUMN).label
    title = f"FedDiverse (2025), Table 2: overhead of client selection on {label}, preset {preset}"
    notes = (*NOTES, *missing, *options.remarks)
    return text_table("feddiverse_table2", title, pd.DataFrame(rows), notes, decimals=2)


def _costs(index: RunIndex, run: RunConfig, uniform: RunConfig) -> dict[str, float]:
    """What a finished run cost, by `COSTS`."""
    sizes, rounds = _sizes(index, run), run.train.rounds
    records = index.records(run.key)
    present = Counter(record.round for record in records if record.split == "participation")
    # Participation is recorded only in rounds in which some clients are left out.
    plain = uniform.train.clients_per_round or len(sizes)
    extra = {t: float(present.get(t, len(sizes)) - plain) for t in range(1, rounds + 1)}
    up, forward, trained = (recorded(records, "cost", name) for name in ("scalars_up", "forward", "trained"))
    # A measure, the same number for each client at every evaluation.
    sent = max(recorded(records, "selection", "compressed_scalars").values(), default=0.0)
    up[0] = up.get(0, 0.0) + sent * len(sizes)
    parts = ((up, len(sizes)), (extra, 1), (forward, sum(sizes)), (trained, sum(sizes)))
    costs = [value for values, unit in parts for value in split(values, rounds, unit)]
    return dict(zip(COSTS, costs, strict=True))


def split(values: Mapping[int, float], rounds: int, unit: float = 1.0) -> tuple[float, float]:
    """``values`` by finished round (0: before training), in units of ``unit``: (once, in every round).

    What occurs in at most half of the rounds counts as once.
    """
    start = values.get(0, 0.0)
    later = [values.get(t, 0.0) for t in range(1, rounds + 1)]
    if sum(value != 0 for value in later) * 2 <= rounds:
        return (start + sum(later)) / unit, 0.0
    return start / unit, sum(later) / rounds / unit


def _sizes(index: RunIndex, run: RunConfig) -> list[int]:
    """Training samples of each client of a finished run."""
    result = index.folder(run.key).result()
    assert result is not None
    share, counts = run.evaluation.validation, result.made["clients"]["counts"]
    return [n - min(int(share * n), n - 1) for n in map(sum, counts)]
