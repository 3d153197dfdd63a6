"""``fidelity``: writes its page, notices an old one, and measures what a switch changes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmark.experiments.spec import load_spec
from benchmark.fidelity import effects, ledger
from benchmark.fidelity.ledger import PAPERS, load

ENTRY: dict[str, Any] = {
    "id": "toy-rate",
    "title": "Rate of the toy",
    "paper": "0.05.",
    "code": "0.9.",
    "default": "0.05.",
    "base": {"method": "fedavg"},
    "switch": {"train.lr": [0.05, 0.9]},
    "effect": {
        "overrides": {"train.lr": 0.9},
        "cells": {"quick": {"table": "toy_table1", "row": "fedavg", "column": "dir"}},
    },
}
EFFECTS = ("fidelity", "effects", "preset=quick", "launcher=inline", "out=measured", "tuned=off")


@pytest.fixture(autouse=True)
def toy_ledger(toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A ledger with one entry (or these) about the toy table."""
    folder = tmp_path / "ledger"
    folder.mkdir()

    def change(*entries: dict[str, Any]) -> None:
        for paper in PAPERS:
            own = list(entries) if paper == "fedld" else [{**ENTRY, "id": f"{paper}-rate", "effect": None}]
            content = {
                "paper": paper,
                "title": paper,
                "sources": [{"repository": "nobody/nothing", "commit": "1234567"}],
                "entries": own,
            }
            (folder / f"{paper}.yaml").write_text(yaml.safe_dump(content))

    change(ENTRY)
    monkeypatch.setattr("benchmark.cli.fidelity.load", partial(load, folder))
    monkeypatch.setattr(
        "benchmark.fidelity.ledger.spec_called",
        lambda name, where: load_spec(tmp_path / "conf" / f"{name}.yaml"),
    )
    ledger.table.cache_clear()
    yield change
    ledger.table.cache_clear()


def test_the_page_is_written_and_an_old_one_noticed(cli: Any, toy_ledger: Any) -> None:
    missing = cli("fidelity", "check", "out=page.md")
    assert (
        missing.code == 1 and "page.md: missing; write it with: python -m benchmark fidelity" in missing.err
    )
    assert not Path("page.md").exists()
    assert cli("fidelity", "out=page.md").code == 0
    fresh = cli("fidelity", "check", "out=page.md")
    assert fresh.code == 0 and "up to date" in fresh.out
    first = Path("page.md").read_bytes()
    toy_ledger(ENTRY | {"default": "0.06."})
    stale = cli("fidelity", "check", "out=page.md")
    assert stale.code == 1 and "page.md: out of date" in stale.err
    assert Path("page.md").read_bytes() == first
    cli("fidelity", "out=page.md")
    assert b"- *Here.* 0.06." in Path("page.md").read_bytes()


def final(rate: float) -> dict[int, float]:
    """Seed -> accuracy in percent of the runs with this client rate, read from their files."""
    found = {}
    for path in Path("results/runs").glob("*/seed*/status.json"):
        config = yaml.safe_load((path.parent / "config.yaml").read_text())
        if config["train"]["lr"] == rate:
            status = json.loads(path.read_text())
            found[config["seed"]] = 100 * status["final"]["test"]["accuracy"]
    return found


def test_an_effect_is_the_difference_of_two_cells_seed_by_seed(cli: Any, toy: Any) -> None:
    toy(overrides={"train": {"rounds": 8, "batch_size": 4, "lr": 0.1}, "evaluation": {"every": 1}})
    answer = cli(*EFFECTS, "seeds=2")
    assert answer.code == 0, answer.err
    with Path("measured/quick.csv").open() as stream:
        (line,) = csv.DictReader(stream)
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


def test_an_effect_runs_only_what_is_missing(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cli(*EFFECTS, "seeds=1")
    before = Path("measured/quick.csv").read_bytes()
    monkeypatch.setattr("benchmark.launch.local.launch", None)
    assert cli(*EFFECTS, "seeds=1").code == 0
    assert Path("measured/quick.csv").read_bytes() == before


def test_tuned_values_stay_on_both_sides(cli: Any, toy_ledger: Any) -> None:
    tuned = Path("tuned/quick")
    tuned.mkdir(parents=True)
    cell = {
        "method": "fedavg",
        "chosen": {"train.momentum": 0.25},
        "metric": "accuracy",
        "which_round": "last",
        "split": 0.1,
        "seeds": 1,
    }
    content = {"table": "toy_table1", "preset": "quick", "cells": {"fedavg": {"dir": cell}}}
    (tuned / "toy_table1.yaml").write_text(yaml.safe_dump(content))
    words = [word for word in EFFECTS if not word.startswith("tuned")]
    assert cli(*words, "seeds=1", "tuned=tuned").code == 0
    configs = [yaml.safe_load(path.read_text()) for path in Path("results/runs").glob("*/seed*/config.yaml")]
    assert sorted((c["train"]["lr"], c["train"]["momentum"]) for c in configs) == [(0.05, 0.25), (0.9, 0.25)]


def test_numbers_of_entries_that_were_not_chosen_stay(cli: Any, toy_ledger: Any) -> None:
    other = ENTRY | {"id": "toy-epochs", "effect": ENTRY["effect"] | {"overrides": {"train.epochs": 2}}}
    toy_ledger(ENTRY, other)
    cli(*EFFECTS, "seeds=1")
    cli(*EFFECTS, "seeds=2", "ids=toy-e*")
    with Path("measured/quick.csv").open() as stream:
        lines = {line["id"]: line for line in csv.DictReader(stream)}
    assert {name: line["default_n"] for name, line in lines.items()} == {"toy-rate": "1", "toy-epochs": "2"}
    assert tuple(lines["toy-rate"]) == effects.COLUMNS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("fidelity", "effects", "ids=toy-rat"),
            "'toy-rat' fits no entry with an effect. Did you mean 'toy-rate'?",
        ),
        (("fidelity", "effects", "ids=fedmr-rate"), "There are: toy-rate."),
        (("fidelity", "effects", "preset=small"), "no chosen entry says what to measure in preset small"),
        (("fidelity", "effects", "preset=tiny"), "tiny"),
        (("fidelity", "chek"), "came 'chek'"),
        (("fidelity", "check", "preset=quick"), "unknown key 'preset'"),
    ],
)
def test_mistakes_are_one_message(cli: Any, words: tuple[str, ...], message: str) -> None:
    answer = cli(*words)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err


def test_a_cell_that_has_no_runs_is_named(cli: Any, toy_ledger: Any) -> None:
    cell = {"quick": {"table": "toy_table1", "row": "fednix", "column": "dir"}}
    toy_ledger(ENTRY | {"effect": ENTRY["effect"] | {"cells": cell}})
    answer = cli(*EFFECTS)
    assert answer.code == 2
    assert "toy-rate, preset quick: toy_table1, fednix, dir: method not available yet" in answer.err
