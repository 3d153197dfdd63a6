"""Grids, the choice among their points, the file of chosen values, and what a plan makes of it."""

from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import own_conf

from benchmark.config.compose import group_names, load_group
from benchmark.errors import ConfigError, StorageError
from benchmark.experiments import tuning
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tuning import (
    Point,
    TunedCell,
    TunedFolder,
    TunedTable,
    drawn_trials,
    load_grid,
    ranked,
)
from benchmark.paths import CONF
from benchmark.reports.notes import tuning_lines
from methods.core.method import build

GRIDS = sorted(path.stem for path in (CONF / "tune").glob("*.yaml"))
MU = "method.client.fedprox.mu"

SPEC = TableSpec.model_validate(
    yaml.safe_load("""
        name: toy
        paper: toy
        title: Toy
        metric: accuracy
        seeds: 2
        presets: [quick]
        rows:
        - {key: fedavg, label: FedAvg, method: fedavg}
        - {key: prox, label: FedProx, method: fedprox}
        columns:
        - {key: iid, label: IID}
        - {key: two, label: Two}
        - {key: avg, label: Average, average_of: [iid, two]}
    """)
)


def tuned_cell(**changes: Any) -> TunedCell:
    fields = {
        "method": "fedprox", "chosen": {MU: 0.25}, "metric": "accuracy", "which_round": "last", "split": 0.1,
        "seeds": 1,
    }  # fmt: skip
    return TunedCell.model_validate(fields | changes)


@pytest.fixture
def grid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_conf(tmp_path, monkeypatch, "tune") / "tune" / "fedprox.yaml"


def test_a_grid_is_the_full_product_in_the_order_of_the_file(grid_file: Path) -> None:
    grid_file.write_text(f"method: fedprox\ngrid: {{{MU}: [1e-5, 0.1], train.lr: [1, 2.0, 1.0e-3]}}\n")
    points = load_grid("fedprox").points
    assert points == [
        {MU: 0.00001, "train.lr": 1}, {MU: 0.00001, "train.lr": 2.0}, {MU: 0.00001, "train.lr": 0.001},
        {MU: 0.1, "train.lr": 1}, {MU: 0.1, "train.lr": 2.0}, {MU: 0.1, "train.lr": 0.001},
    ]  # fmt: skip
    # YAML takes 1e-5 for text, and a run with the text would have another identity than one with the number.
    assert {type(values[MU]) for values in points} == {float}


@pytest.mark.parametrize("name", GRIDS)
def test_our_grids_fit_their_methods(name: str) -> None:
    assert name in group_names("method")
    grid = load_grid(name)
    for values in grid.points:
        plain: Any = {"method": load_group("method", name), "train": {"lr": None}}
        for key, value in values.items():
            *parents, last = key.split(".")
            node = reduce(dict.__getitem__, parents, plain)
            # The YAML of a method lists what it has: a misspelt name is not in it.
            assert last in node, key
            node[last] = value
        build(plain["method"])
    # Of equal points the smaller value is to win.
    assert all(list(of_key) == sorted(of_key) for of_key in grid.grid.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("method: fedprox", "grid: missing"),
        (f"method: fedprox\ngrid: {{{MU}: []}}", f"{MU}: got []"),
        (f"method: fedprox\ngrid: {{{MU}: [0.1, 1e-1]}}", f"{MU}: got [0.1, 0.1]"),
        ("method: fedprox\ngrid: {train.rounds: [1, 2]}", "train.rounds cannot be tuned"),
        (f"method: fedprox\ngird: {{{MU}: [0.1]}}", "gird: unknown key"),
        ("a: [", "cannot be read"),
    ],
)
def test_grids_that_cannot_be(grid_file: Path, text: str, said: str) -> None:
    grid_file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_grid("fedprox")
    assert f"grid file {grid_file}" in str(error.value) and said in str(error.value)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    grid = (
        Point(values={MU: 1e-5}, validation=0.1 + 0.2, runs=("runs/x/seed0",)),
        Point(values={MU: 1.0}, diverged=1),
    )
    first = tuned_cell(chosen={MU: 1e-5}, columns=["iid", "two"], grid=grid)
    empty = TunedTable(table="toy", preset="quick")
    path = tuning.write_tuned(tmp_path, empty, {("prox", "iid"): first, ("prox", "two"): tuned_cell()})
    assert path == tmp_path / "quick" / "toy.yaml"
    before = TunedFolder((tmp_path,)).read(SPEC, "quick")
    assert before.cells == {"prox": {"iid": first, "two": tuned_cell()}}
    loaded = TunedFolder((tmp_path,)).load(SPEC, "quick")
    assert {key: dict(chosen.values) for key, chosen in loaded.items()} == {
        ("prox", "iid"): {MU: 0.00001}, ("prox", "two"): {MU: 0.25}
    }  # fmt: skip
    assert loaded["prox", "iid"].source == f"{tmp_path.name}/quick/toy.yaml"
    assert (loaded["prox", "iid"].split, loaded["prox", "iid"].seeds) == (0.1, 1)
    # A row that rows= added is called like its method; SPEC lacks it.
    tuning.write_tuned(tmp_path, before, {("fedprox", "iid"): first})
    assert ("fedprox", "iid") in TunedFolder((tmp_path,)).load(SPEC, "quick")
    labels = f"{SPEC.column('iid').label}, {SPEC.column('two').label}"
    assert f", by the mean over {labels} ({tmp_path.name}/quick" in tuning_lines(SPEC, loaded)[0]


def test_the_first_folder_with_a_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, committed = tmp_path / "results", tmp_path / "project" / "tuned"
    monkeypatch.setattr(tuning, "COMMITTED", committed)

    def found(option: str | None, preset: str = "quick") -> Any:
        chosen = TunedFolder.of(option, results).load(SPEC, preset)
        return chosen["prox", "iid"].values[MU] if chosen else None

    empty = TunedTable(table="toy", preset="quick")
    assert found(None) is None
    tuning.write_tuned(committed, empty, {("prox", "iid"): tuned_cell(chosen={MU: 1.5})})
    assert found(None) == 1.5
    tuning.write_tuned(results / "tuned", empty, {("prox", "iid"): tuned_cell(chosen={MU: 2.5})})
    assert found(None) == 2.5
    assert found(str(committed)) == 1.5
    assert found("off") is None
    assert found(None, "small") is None
    with pytest.raises(ConfigError, match="tuned: got 'of'"):
        found("of")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"toy\.yaml: cannot be written"):
        tuning.write_tuned(tmp_path / "file", empty, {("prox", "iid"): tuned_cell()})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cells": {"prix": {"iid": 0}}}, r"row prix: .*Did you mean 'prox'.*tuned=off"),
        ({"cells": {"prox": {"idd": 0}}}, r"row prox: column: .*Did you mean 'iid'.*tuned=off"),
        ({"cells": {"fedavg": {"iid": 0}}}, r"row fedavg: column iid: method: got 'fedprox'"),
        (
            {"cells": {"prox": {"iid": tuned_cell(metric="loss").model_dump(mode="json")}}},
            r"row prox: column iid: metric: got 'loss'; expected accuracy, .* of the column\..*Delete the entry",
        ),
        ({"table": "toys"}, r"table: got 'toys'"),
        ({"cels": {}}, r"cels: unknown key.*Did you mean 'cells'"),
        ({"table": "["}, "cannot be read"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    text = yaml.safe_dump({"table": "toy", "preset": "quick", "cells": {}} | change).replace("'['", "[")
    whole = yaml.safe_dump(tuned_cell().model_dump(mode="json"), default_flow_style=True, width=1000).strip()
    path = tmp_path / "quick" / "toy.yaml"
    path.parent.mkdir()
    path.write_text(text.replace(": 0\n", f": {whole}\n"))
    with pytest.raises(ConfigError, match=said) as error:
        TunedFolder((tmp_path,)).load(SPEC, "quick")
    assert f"tuned file {path}" in str(error.value)


def test_the_trials_of_a_method() -> None:
    """Effective rates in steps of sqrt(3) from 0.03 / (1 - 0.9) = 0.3, both momenta, and FedMR's first parameter."""
    rates = {(round(0.3 * 3 ** (step / 2) * (1 - m), 4), m) for step in range(-4, 5) for m in (0.0, 0.9)}
    plain = drawn_trials(0.03, 0.9, None, 8, "table column")
    found = {(trial["train.lr"], trial["train.momentum"]) for trial in plain}
    assert len(found) == 8
    assert all(any(lr == pytest.approx(rate, rel=0.01) and m == n for rate, n in rates) for lr, m in found)
    assert {m for _, m in found} == {0.0, 0.9}
    grid = load_grid("fedmr")
    (name, values), *_ = grid.grid.items()
    trials = drawn_trials(0.03, 0.9, grid, 8, "table column")
    assert [{key: trial[key] for key in plain[0]} for trial in trials] == plain, (
        "all rows of a column try the same"
    )
    assert {trial[name] for trial in trials} == set(values), "7 values in 8 trials"
    assert (
        trials
        == drawn_trials(0.03, 0.9, grid, 8, "table column")
        != drawn_trials(0.03, 0.9, grid, 8, "other")
    )
    # Without momentum the same effective rates: 0.3 / (1 - 0).
    assert drawn_trials(0.3, 0.0, None, 8, "table column") == plain


def test_the_order_of_trials() -> None:
    """The best first, equal ones in their order, without those that failed."""
    points = [Point(values={"train.lr": 0.1}, validation=value) for value in (0.5, None, 0.7, 0.5)]
    assert ranked(points, higher_is_better=True) == [2, 0, 3]
    assert ranked(points, higher_is_better=False) == [0, 3, 2]
