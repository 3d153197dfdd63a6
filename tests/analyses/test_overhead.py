"""FedDiverse's Table 2 from records written by hand: 24 clients of 10 samples, 9 per round, in the quick preset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import pandas as pd
import pytest
from finished_runs import finish

from benchmark.analyses.overhead import OverheadOptions, Split, overhead
from benchmark.engine.records import Record
from benchmark.errors import ConfigError, StorageError
from benchmark.experiments.plan import Cells, PlannedCell, plan
from benchmark.experiments.tables import TABLE_FOLDER, load_spec
from benchmark.reports.tables import Table
from benchmark.runs.store import Results

K, KAPPA, ROUNDS, SIZES = 24, 9, 40, [10] * 24


@lru_cache(maxsize=1)
def cells() -> Cells:
    spec = load_spec(TABLE_FOLDER / "feddiverse_table1.yaml")
    return plan(spec.cut([row.key for row in spec.rows], ["cmnist_gsc"]), "quick")


def cell(row: str) -> PlannedCell:
    return cells()[row, "cmnist_gsc"]


def participants(count: int, rounds: Iterable[int] = range(1, ROUNDS + 1)) -> list[Record]:
    """``count`` clients in each of ``rounds``; nobody is written down where everybody takes part."""
    return [
        Record(t, "participation", f"client={k}", "weight", 1 / count) for t in rounds for k in range(count)
    ]


def cost(metric: str, value: float, *rounds: int) -> list[Record]:
    return [Record(t, "cost", "all", metric, value) for t in rounds]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., None]:
    """``write(row, records, seeds, state)``: ended runs of one row."""

    def run(
        row: str, records: Sequence[Record], seeds: Sequence[int] = (0, 1, 2), state: str = "done"
    ) -> None:
        for config in (run for run in cell(row).runs if run.seed in seeds):
            assert config.train.rounds == ROUNDS
            name = f"interaction-{config.seed}"
            everything = [Record(ROUNDS, "test", "all", "loss", 1.0), *records]
            finish(Results(tmp_path).open(), config, everything, state=state, meta={"partition": name})
            place = tmp_path / "partitions" / name / "statistics.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps({"sizes": SIZES}))

    return run


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Table]:
    return lambda **values: overhead(OverheadOptions(results=tmp_path, tuned="off", **values))


def line(found: Table, label: str) -> pd.Series:
    return found.data.set_index("method").loc[label]


def numbers(found: Table, label: str) -> dict[str, float]:
    row = line(found, label)
    names = [f"{n} {w}" for n in ("scalars", "clients", "forward", "trained") for w in ("once", "per round")]
    return {name: float(row[name]) for name in names if pd.notna(row[name]) and row[name] != 0}


EVERY = tuple(range(1, ROUNDS + 1))


LATER = range(2, ROUNDS + 1)
COSTS: dict[str, tuple[str, list[Record], dict[str, float]]] = {
    "24 losses and a pass over all 240 samples in every round": (
        "powd",
        participants(KAPPA) + cost("scalars_up", K, *EVERY) + cost("forward", 240, *EVERY),
        {"scalars per round": 1.0, "forward per round": 1.0},
    ),
    "in round 2, after one of pre-training with everybody, 3 scalars, 2 passes, 60 steps of 10": (
        "feddiverse",
        participants(KAPPA, LATER)
        + cost("scalars_up", 3 * K, 2)
        + cost("forward", 2 * 240, 2)
        + cost("trained", 60 * 10 * K, 2),
        {"scalars once": 3.0, "clients once": 15.0, "forward once": 2.0, "trained once": 60.0},
    ),
    "round 0 of the records is the set-up, beside what each round costs": (
        "powd",
        participants(KAPPA) + cost("scalars_up", 5 * K, 0) + cost("scalars_up", K, *EVERY),
        {"scalars once": 5.0, "scalars per round": 1.0},
    ),
    "compressed updates are a measure, recorded at every evaluation, and counted once": (
        "hcsfed",
        participants(KAPPA, LATER)
        + [Record(t, "selection", "all", "compressed_scalars", 7.0) for t in (4, 8, 40)],
        {"scalars once": 7.0, "clients once": 15.0},
    ),
    "everybody in every round": ("fednova", [], {"clients per round": 15.0}),
    "nothing beyond uniform selection": ("fedpns", participants(KAPPA), {}),
    "uniform selection itself": ("uniform", participants(KAPPA), {}),
}
LABELS = {
    "powd": "POW-D",
    "feddiverse": "FedDiverse",
    "hcsfed": "HCSFed",
    "fednova": "FedNova",
    "fedpns": "FedPNS",
    "uniform": "Uniform random",
}


@pytest.mark.parametrize("case", COSTS)
def test_costs(case: str, write: Callable, report: Callable) -> None:
    row, records, expected = COSTS[case]
    write(row, records)
    found = report()
    assert numbers(found, LABELS[row]) == expected
    assert line(found, LABELS[row])["runs"] == "3 of 3"
    assert pd.notna(line(found, LABELS[row])["scalars once"])


def test_mean_over_the_seeds_that_are_done(write: Callable, report: Callable) -> None:
    write("powd", participants(KAPPA) + cost("scalars_up", K, *EVERY), seeds=(0,))
    write("powd", participants(KAPPA) + cost("scalars_up", K / 2, *EVERY), seeds=(1,))
    write("powd", participants(KAPPA) + cost("scalars_up", 100 * K, *EVERY), seeds=(2,), state="diverged")
    found = report()
    assert numbers(found, "POW-D") == {"scalars per round": 0.75}
    assert line(found, "POW-D")["runs"] == "2 of 3, 1 diverged"
    assert line(report(seeds=1), "POW-D")["runs"] == "1 of 1"
    assert numbers(report(seeds=1), "POW-D") == {"scalars per round": 1.0}


def test_without_runs(tmp_path: Path, report: Callable) -> None:
    """The rows say so, the formulas stand, the command that makes the runs is named, and nothing is trained."""
    found = report(seeds=2)
    assert found.name == "feddiverse_table2"
    assert list(found.data["method"]) == [
        "FedDiverse", "Round robin", "FedNova", "POW-D", "FedPNS", "HCSFed", "Uniform random",
    ]  # fmt: skip
    for label in found.data["method"]:
        assert line(found, label)["runs"] == "0 of 2"
        assert numbers(found, label) == {}
    assert line(found, "Uniform random")["printed up"] == ""
    row = line(found, "HCSFed")
    assert (row["printed when"], row["printed up"]) == ("t=1", "r*theta_k")
    assert row["printed clients"] == "r*|theta|^2"
    assert row["printed server"] == "t=1: O(K*r*|theta|); t!=1: O(K)"
    command = "python -m benchmark table paper=feddiverse table=1 preset=quick columns=cmnist_gsc"
    assert found.notes[-1].lines[0].endswith(f"{command} seeds=2 results={tmp_path} tuned=off")
    assert list(tmp_path.iterdir()) == []


def test_no_command_where_all_rows_have_runs(write: Callable, report: Callable) -> None:
    for row in ("feddiverse", "round_robin", "fednova", "powd", "fedpns", "hcsfed", "uniform"):
        write(row, participants(KAPPA))
    assert not any("python -m benchmark" in note.lines[0] for note in report().notes)


def test_parts_that_do_not_exist_yet(monkeypatch: pytest.MonkeyPatch, report: Callable) -> None:
    import benchmark.experiments.plan as planning

    names = planning.group_names

    def without(group: str) -> Sequence[str]:
        return [name for name in names(group) if name != "hcsfed"]

    monkeypatch.setattr(planning, "group_names", without)
    assert line(report(), "HCSFed")["runs"] == "selection not available yet"


def test_other_columns_and_presets(report: Callable) -> None:
    found = report(column="spawrious_gci100")
    assert "Spawrious GCI-100" in found.title
    assert "columns=spawrious_gci100" in found.notes[-1].lines[0]
    assert set(report(preset="small", column="waterbirds_dist").data["runs"]) == {"not in this preset"}
    with pytest.raises(ConfigError, match=r"'cmnist'.*'cmnist_gsc'"):
        report(column="cmnist")
    with pytest.raises(ConfigError, match="quik"):
        report(preset="quik")


def test_a_lost_partition_is_named(write: Callable, report: Callable, tmp_path: Path) -> None:
    write("powd", participants(KAPPA))
    (tmp_path / "partitions" / "interaction-1" / "statistics.json").unlink()
    with pytest.raises(StorageError, match=r"interaction-1/statistics\.json"):
        report()


def test_once_and_per_round() -> None:
    assert Split.of({}, 4) == Split(0, 0)
    assert Split.of({0: 5, 3: 7}, 4) == Split(12, 0)
    assert Split.of({2: 1, 3: 1}, 4) == Split(2, 0)
    assert Split.of({0: 5, 1: 1, 2: 1, 4: 2}, 4, 2) == Split(2.5, 0.5)
