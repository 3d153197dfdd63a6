"""FedDiverse's Table 2 from records written by hand: 24 clients of 10 samples, 9 per round, in the quick preset."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from finished_runs import finish

from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.experiments.plan import plan
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.tables import spec_called
from benchmark.papers.overhead import COSTS, overhead, split
from benchmark.reports.tables import Table
from benchmark.runs.folder import ResultsFolder

K, KAPPA, ROUNDS, SIZES = 24, 9, 25, [10] * 24


@lru_cache
def runs(row: str) -> tuple[RunConfig, ...]:
    return plan(spec_called("feddiverse_table1").cut([row], ["cmnist_gsc"]), "quick")[row, "cmnist_gsc"].runs


EVERY = tuple(range(1, ROUNDS + 1))


def participants(rounds: Iterable[int] = EVERY) -> list[Record]:
    """``KAPPA`` clients in each of ``rounds``; nobody is written down where everybody takes part."""
    clients = [f"client={k}" for k in range(KAPPA)]
    return [Record(t, "participation", client, "weight", 1 / KAPPA) for t in rounds for client in clients]


def cost(rounds: Iterable[int], **values: float) -> list[Record]:
    return [Record(t, "cost", "all", metric, value) for t in rounds for metric, value in values.items()]


MADE = {"clients": {"counts": [[size] for size in SIZES]}}


def write(
    folder: Path, row: str, records: Sequence[Record], seeds: Sequence[int] = (0, 1, 2), state: str = "done"
) -> None:
    """Ended runs of one row."""
    for config in (runs(row)[seed] for seed in seeds):
        assert config.train.rounds == ROUNDS
        everything = [Record(ROUNDS, "test", "all", "loss", 1.0), *records]
        finish(ResultsFolder(folder).open(), config, everything, state=state, made=MADE)


def report(folder: Path, **values: Any) -> tuple[Table, pd.DataFrame]:
    """The table, and its lines by method."""
    table = overhead(TableQuery(results=folder, tuned="off", **values))
    return table, table.data.set_index("method")


def numbers(row: pd.Series) -> dict[str, float]:
    """The costs that are not 0."""
    return {name: float(row[name]) for name in COSTS if pd.notna(row[name]) and row[name] != 0}


LATER = range(2, ROUNDS + 1)
EACH_ROW: dict[str, tuple[str, list[Record], dict[str, float]]] = {
    # Everybody in the pre-training of round 1. In round 2: 3 scalars, 2 passes, 60 steps of 10.
    "feddiverse": (
        "FedDiverse",
        participants(LATER) + cost([2], scalars_up=3 * K, forward=2 * 240, trained=60 * 10 * K),
        {"scalars once": 3.0, "clients once": 15.0, "forward once": 2.0, "trained once": 60.0},
    ),
    "round_robin": ("Round robin", participants(), {}),
    # Everybody in every round.
    "fednova": ("FedNova", [], {"clients per round": 15.0}),
    # 24 losses and a pass over all 240 samples in every round, and 5 scalars of a client before the first.
    "powd": (
        "POW-D",
        participants() + cost([0], scalars_up=5 * K) + cost(EVERY, scalars_up=K, forward=240),
        {"scalars once": 5.0, "scalars per round": 1.0, "forward per round": 1.0},
    ),
    "fedpns": ("FedPNS", participants(), {}),
    # Compressed updates are a measure, recorded at every evaluation, and counted once.
    "hcsfed": (
        "HCSFed",
        participants(LATER)
        + [Record(t, "selection", "all", "compressed_scalars", 7.0) for t in (4, 8, ROUNDS)],
        {"scalars once": 7.0, "clients once": 15.0},
    ),
    "uniform": ("Uniform random", participants(), {}),
}


def test_costs(tmp_path: Path) -> None:
    """Of every row; as none lacks runs, no command is named that makes them."""
    for row, (_, records, _) in EACH_ROW.items():
        write(tmp_path, row, records)
    table, lines = report(tmp_path)
    for label, _, said in EACH_ROW.values():
        assert numbers(lines.loc[label]) == said
    assert set(lines["runs"]) == {"3 of 3"} and lines["scalars once"].notna().all()
    assert not any("python -m benchmark" in note.lines[0] for note in table.notes)


def test_once_and_per_round() -> None:
    assert (split({}, 4), split({0: 5, 3: 7}, 4)) == ((0, 0), (12, 0))
    assert split({2: 1, 3: 1}, 4) == (2, 0)
    assert split({0: 5, 1: 1, 2: 1, 4: 2}, 4, 2) == (2.5, 0.5)
