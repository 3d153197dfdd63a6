"""What client selection costs on top of uniform selection: FedDiverse's Table 2, printed formulas and measured numbers.

Nemeth et al., FedDiverse, 2025, https://arxiv.org/abs/2504.11216, section 5.4

Read from the finished runs of the paper's Table 1. The server's computation is not measured: its formula stands alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmark.analyses.registry import Report, analysis
from benchmark.cli.arguments import preset_of
from benchmark.cli.planning import command, planned
from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.errors import StorageError
from benchmark.experiments.plan import PlannedCell
from benchmark.experiments.spec import TABLE_FOLDER, TableSpec, load_spec
from benchmark.launch.overview import run_state
from benchmark.reports.published import PUBLISHED_FOLDER, read_published
from benchmark.runs.store import Results, read_json

ROWS = ("feddiverse", "round_robin", "fednova", "powd", "fedpns", "hcsfed", "uniform")
"""Methods of Table 2 in its order; uniform selection, which they are compared to, has no row there."""

PRINTED = {
    "printed when": "frequency",
    "printed up": "communication_overhead",
    "printed clients": "client_computation",
    "printed server": "server_computation",
}
"""Columns of formulas, and what they are called in the published file."""

MEASURED = ("scalars", "clients", "forward", "trained")
"""Pairs of columns of numbers: once, per round."""

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


@dataclass(frozen=True)
class Split:
    """A cost that occurs once and one that occurs in every round."""

    once: float = 0.0
    per_round: float = 0.0

    @classmethod
    def of(cls, values: Mapping[int, float], rounds: int) -> Split:
        """From ``values`` by finished round (0: before training). In at most half of the rounds is once."""
        start = values.get(0, 0.0)
        later = [values.get(t, 0.0) for t in range(1, rounds + 1)]
        if sum(value != 0 for value in later) * 2 <= rounds:
            return cls(start + sum(later), 0.0)
        return cls(start, sum(later) / rounds)

    def __truediv__(self, number: float) -> Split:
        """Both parts divided."""
        return Split(self.once / number, self.per_round / number)


@dataclass(frozen=True)
class Measured:
    """What one run or the mean of several cost."""

    scalars: Split
    clients: Split
    forward: Split
    trained: Split


@analysis(
    "overhead",
    {
        "preset": "quick|small|paper",
        "results": "FOLDER",
        "seeds": "NUMBER",
        "column": "COLUMN of feddiverse_table1",
        "tuned": "FOLDER|off",
    },
)
def overhead(values: Mapping[str, str]) -> Report:
    """What each client selection costs beyond uniform selection (FedDiverse, Table 2): printed and measured."""
    preset, column = preset_of(values), values.get("column", "cmnist_gsc")
    whole = load_spec(TABLE_FOLDER / "feddiverse_table1.yaml")
    whole.preset(preset)
    label = whole.column(column).label
    spec = whole.cut([row.key for row in whole.rows], [column])
    results = Results(Path(values.get("results", "results"))).existing()
    cells = planned(whole, spec, values, preset)
    kappa = _clients_per_round(cells["uniform", column])
    rows, missing = [], False
    for key in ROWS:
        cell = cells[key, column]
        state, measured = _measure(results, cell, kappa)
        missing |= cell.state == "ok" and measured is None
        rows.append(_row(spec, key, state, measured))
    notes = list(NOTES)
    if missing:
        words = f"table paper=feddiverse table=1 preset={preset} columns={column}"
        notes.append(f"Make the runs that are missing with: {command(words, values)}")
    title = f"FedDiverse (2025), Table 2: overhead of client selection on {label}, preset {preset}"
    return Report("feddiverse_table2", title, pd.DataFrame(rows), tuple(notes), decimals=2)


def _clients_per_round(cell: PlannedCell) -> int | None:
    return cell.runs[0].train.clients_per_round if cell.runs else None


def _row(spec: TableSpec, key: str, state: str, measured: Measured | None) -> dict[str, object]:
    """One line: printed formulas, how many runs there are, measured numbers (empty without runs)."""
    printed = read_published(PUBLISHED_FOLDER / "feddiverse_table2.csv").set_index("method")
    line: dict[str, object] = {"method": spec.row(key).label}
    for column, name in PRINTED.items():
        line[column] = str(printed.loc[key, name]) if key in printed.index else ""
    line["runs"] = state
    for name in MEASURED:
        found = getattr(measured, name) if measured else Split(np.nan, np.nan)
        line[f"{name} once"] = float(found.once)
        line[f"{name} per round"] = float(found.per_round)
    return line


# From folders to numbers -----------------------------------------------------------------------------------------


def _measure(results: Results, cell: PlannedCell, kappa: int | None) -> tuple[str, Measured | None]:
    """(what there is of the cell's runs in words, the mean over those that are done)."""
    if cell.state != "ok":
        return cell.state, None
    states: Counter[str] = Counter()
    found: list[Measured] = []
    for run in cell.runs:
        folder = results.run(run.key)
        state = run_state(folder, folder.status())
        states[state] += 1
        if state == "done":
            found.append(_of_run(results, run, kappa))
    others = [f"{number} {state}" for state, number in states.items() if state not in ("done", "missing")]
    words = ", ".join([f"{states['done']} of {len(cell.runs)}", *others])
    return words, _mean(found) if found else None


def _of_run(results: Results, run: RunConfig, kappa: int | None) -> Measured:
    records = results.run(run.key).read_records()
    sizes, rounds = _sizes(results, run), run.train.rounds
    present = Counter(record.round for record in records if record.split == "participation")
    # Who took part is recorded where not everybody did.
    extra = {t: float(present.get(t, len(sizes)) - (kappa or len(sizes))) for t in range(1, rounds + 1)}
    scalars = Split.of(_costs(records, "scalars_up"), rounds) / len(sizes)
    sent = [r.value for r in records if (r.split, r.metric) == ("selection", "compressed_scalars")]
    return Measured(
        scalars=Split(scalars.once + (sent[-1] if sent else 0.0), scalars.per_round),
        clients=Split.of(extra, rounds),
        forward=Split.of(_costs(records, "forward"), rounds) / sum(sizes),
        trained=Split.of(_costs(records, "trained"), rounds) / sum(sizes),
    )


def _costs(records: Iterable[Record], metric: str) -> dict[int, float]:
    return {r.round: r.value for r in records if (r.split, r.metric) == ("cost", metric)}


def _sizes(results: Results, run: RunConfig) -> list[int]:
    """n_k of a finished run, from its partition on disk; `StorageError` if that is gone."""
    folder = results.run(run.key).path
    name = str((read_json(folder / "meta.json") or {}).get("partition", ""))
    path = results.root / "partitions" / name / "statistics.json"
    stored = read_json(path) if name else None
    if stored is None or "sizes" not in stored:
        raise StorageError(
            f"{path.absolute()}: the partition of the finished run {folder} is not there, so the sizes of its clients "
            "are unknown. Put it back, or delete the run's folder to run it again."
        )
    share = run.evaluation.validation
    return [n - min(int(share * n), n - 1) if share else n for n in stored["sizes"]]


def _mean(found: Sequence[Measured]) -> Measured:
    def mean(name: str) -> Split:
        parts = [getattr(one, name) for one in found]
        return Split(
            float(np.mean([part.once for part in parts])), float(np.mean([part.per_round for part in parts]))
        )

    return Measured(**{name: mean(name) for name in MEASURED})
