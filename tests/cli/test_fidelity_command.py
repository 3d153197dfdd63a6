"""``fidelity``: writes its page, notices an old one, and measures what a switch changes."""

import csv
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ledgers import ENTRY, write_ledger

from benchmark.experiments.tables import spec_called
from benchmark.fidelity import effects
from benchmark.fidelity.ledger import load, table

TOY: dict[str, Any] = ENTRY | {
    "id": "toy-rate",
    "base": {"method": "fedavg"},
    "switch": {"train.lr": [0.05, 0.9]},
    "effect": {
        "overrides": {"train.lr": 0.9},
        "cells": {"quick": {"table": "toy_table1", "row": "fedavg", "column": "dir"}},
    },
}
EFFECTS = ("fidelity", "effects", "preset=quick", "launcher=inline", "out=measured", "tuned=off")


@pytest.fixture(autouse=True)
def ledger(toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a ledger with one entry about the toy table."""
    folder = tmp_path / "ledger"
    folder.mkdir()
    for reader in ("benchmark.cli.fidelity", "benchmark.fidelity.document"):
        monkeypatch.setattr(f"{reader}.load", partial(load, folder))
    named = partial(spec_called, folder=tmp_path / "conf")
    monkeypatch.setattr("benchmark.fidelity.ledger.spec_called", named)
    table.cache_clear()
    yield write_ledger(folder, TOY)
    table.cache_clear()


def measured() -> dict[str, dict[str, str]]:
    with Path("measured/quick.csv").open() as stream:
        return {line["id"]: line for line in csv.DictReader(stream)}


def final(rate: float) -> dict[int, float]:
    """Seed -> accuracy in percent of the runs with this client rate, read from their files."""
    found = {}
    for path in Path("results/runs").glob("*/seed*/result.json"):
        config = yaml.safe_load((path.parent / "config.yaml").read_text())
        if config["train"]["lr"] == rate:
            result = json.loads(path.read_text())
            found[config["seed"]] = 100 * result["final"]["test"]["accuracy"]
    return found


def test_an_effect_is_the_difference_of_two_cells_seed_by_seed(
    cli: Any, toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy(overrides=[{"train": {"rounds": 3, "batch_size": 4, "lr": 0.1}, "evaluation": {"every": 1}}])
    answer = cli(*EFFECTS, "seeds=2")
    assert answer.code == 0, answer.err
    (line,) = measured().values()
    default, switched = final(0.1), final(0.9)
    assert default.keys() == switched.keys() == {0, 1}
    each = [switched[seed] - default[seed] for seed in (0, 1)]
    assert any(each), "the toy's two rates must differ"
    assert float(line["default_mean"]) == pytest.approx(np.mean(list(default.values())), abs=1e-6)
    assert float(line["default_sd"]) == pytest.approx(np.std(list(default.values()), ddof=1), abs=1e-6)
    assert float(line["switched_mean"]) == pytest.approx(np.mean(list(switched.values())), abs=1e-6)
    assert float(line["difference"]) == pytest.approx(np.mean(each), abs=1e-6)
    assert [float(value) for value in line["differences"].split()] == pytest.approx(each, abs=1e-4)
    assert (line["id"], line["default_n"], line["switched_n"], line["seeds"]) == ("toy-rate", "2", "2", "0 1")
    assert (line["metric"], line["diverged"]) == ("accuracy", "")
    assert json.loads(line["overrides"]) == {"train.lr": 0.9}
    before = Path("measured/quick.csv").read_bytes()
    monkeypatch.setattr("benchmark.launch.launch.carry_out", None)
    assert cli(*EFFECTS, "seeds=2").code == 0, "nothing is missing"
    assert Path("measured/quick.csv").read_bytes() == before


def test_tuned_values_stay_on_both_sides(cli: Any, ledger: Path) -> None:
    tuned = Path("tuned/quick")
    tuned.mkdir(parents=True)
    cell = {"method": "fedavg", "chosen": {"train.momentum": 0.25}, "metric": "accuracy"}
    cell |= {"which_round": "last", "split": 0.1, "seeds": 1}
    content = {"table": "toy_table1", "preset": "quick", "cells": {"fedavg": {"dir": cell}}}
    (tuned / "toy_table1.yaml").write_text(yaml.safe_dump(content))
    words = [word for word in EFFECTS if not word.startswith("tuned")]
    assert cli(*words, "seeds=1", "tuned=tuned").code == 0
    configs = [yaml.safe_load(path.read_text()) for path in Path("results/runs").glob("*/seed*/config.yaml")]
    assert sorted((c["train"]["lr"], c["train"]["momentum"]) for c in configs) == [(0.05, 0.25), (0.9, 0.25)]


def test_numbers_of_entries_that_were_not_chosen_stay(cli: Any, ledger: Path) -> None:
    """Those of entries that are no more do not."""
    effect = TOY["effect"] | {"overrides": {"train.epochs": 2}}
    write_ledger(ledger, TOY, TOY | {"id": "toy-epochs", "effect": effect})
    cli(*EFFECTS, "seeds=1")
    path = Path("measured/quick.csv")
    path.write_text(
        path.read_text() + path.read_text().splitlines()[1].replace("toy-rate", "toy-gone") + "\n"
    )
    cli(*EFFECTS, "seeds=2", "ids=toy-e*")
    lines = measured()
    assert {name: line["default_n"] for name, line in lines.items()} == {"toy-rate": "1", "toy-epochs": "2"}
    assert tuple(lines["toy-rate"]) == effects.COLUMNS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fidelity effects ids=toy-rat", "'toy-rate'"),
        ("fidelity effects ids=fedmr-none", "toy-rate"),
        ("fidelity effects preset=small", "preset small"),
        ("fidelity out=ledger/fedld.yaml/page.md", "cannot be written"),
    ],
)
def test_mistakes_are_one_message(refusal: Any, words: str, message: str) -> None:
    refusal(words.split(), message)


def test_a_cell_that_has_no_runs_is_named(refusal: Any, ledger: Path, toy: Any) -> None:
    late = {"key": "late", "label": "Late", "presets": ["paper"]}
    toy(presets=["quick", "paper"], columns=[late])
    cell = {"quick": {"table": "toy_table1", "row": "fedavg", "column": "late"}}
    write_ledger(ledger, TOY | {"effect": TOY["effect"] | {"cells": cell}})
    refusal(EFFECTS, "toy-rate, preset quick: toy_table1, fedavg, late: not in this preset")
