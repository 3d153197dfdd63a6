"""The answers to reproducibility checklists, from planted runs; expected values by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from finished_runs import finish

from benchmark.cli.launching import plans_of
from benchmark.engine.records import Record
from benchmark.experiments.selection import TableQuery
from benchmark.runs.store import ResultsFolder
from datasets import names
from datasets.core import registry

SHARED = {
    "dataset": {"name": "digits_fmnist"},
    "model": {"name": "tiny_mlp"},
    "train": {"rounds": 2, "batch_size": 8},
    "evaluation": {"every": 1, "validation": 0.1},
}
ROWS = [
    {"key": "fedavg", "label": "FedAvg", "method": "fedavg"},
    {"key": "prox", "label": "FedProx", "method": "fedprox"},
]
COLUMNS = [{"key": "iid", "label": "IID", "partition": {"name": "iid", "clients": 4}}]
META = {
    "commit": "0123456789abcdef", "python": "3.11.7", "torch": "2.0", "numpy": "1.9", "host": "node<1>",
    "device": "cpu: x86_64", "threads": 1, "unseen": [3],
    "clients": {"counts": [[60, 40], [100, 0], [49, 0], [80, 0], [51, 0]], "num_samples": 380},
    "note": "digits, again and again",
}  # fmt: skip
KEY = "method.client.fedprox.mu"
TUNED = {
    "method": "fedprox", "chosen": {KEY: 0.1}, "metric": "accuracy", "which_round": "last", "split": 0.1, "seeds": 1,
    "grid": [
        {"values": {KEY: 0.01}, "validation": 0.5, "runs": ["runs/elsewhere/seed0"]},
        {"values": {KEY: 0.1}, "validation": 0.625, "runs": ["runs/elsewhere/seed1"]},
    ],
}  # fmt: skip


@pytest.fixture
def page(cli: Any, toy: Callable[..., None]) -> Iterator[str]:
    """The page about two methods and three seeds; FedProx lacks two, and one run was made by changed files."""
    toy(overrides=[SHARED], rows=ROWS, columns=COLUMNS)
    path = Path("results/tuned/quick/toy_table1.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(
        yaml.safe_dump({"table": "toy_table1", "preset": "quick", "cells": {"prox": {"iid": TUNED}}})
    )
    ((_, cells),) = plans_of(TableQuery())
    results = ResultsFolder(Path("results")).open()
    for row, values in (("fedavg", (0.7, 0.8, 0.9)), ("prox", (0.6,))):
        for run, value in zip(cells[row, "iid"].runs, values, strict=False):
            records = [Record(2, "validation", "all", "accuracy", value)]
            final = {"test": {"accuracy": value - 0.1}, "validation": {"accuracy": value}}
            meta = META | {"dirty": row == "prox"}
            finish(results, run, records, final=final, meta=meta, seconds=100 * value)
    code, out, err = cli("checklist", "name=toy_table1")
    assert (code, out, err) == (0, "results/checklists/quick/toy_table1.md\n", "")
    yield Path(out.strip()).read_text()


def test_answers(page: str) -> None:
    lines = page.splitlines()
    # tiny_mlp: 8 x 8 pixels to 64 units to 10 classes: 64 * 64 + 64 + 64 * 10 + 10. Held out: 10 + 10 + 4 + 5.
    for line in (
        "python -m benchmark table name=toy_table1 preset=quick results=repeated tuned=results/tuned",
        "- 6 runs: 4 done, 2 missing. Seeds: 0, 1, 2.",
        "- Gaps: missing (seeds 1, 2): FedProx (all columns)",
        "- The missing runs are carried out by: python -m benchmark table name=toy_table1 preset=quick",
        "- commit 0123456789abcdef (3 runs)",
        "- commit 0123456789abcdef, files differed from it (1 run)",
        "- cpu: x86_64, 1 thread(s) per run, host node&lt;1> (4 runs)",
        "- python 3.11.7, torch 2.0, numpy 1.9 (4 runs)",
        "- FedAvg: 3 runs of 70.0 to 90.0 s, 240.0 s together",
        "- All 4 runs: 300.0 s one after another; several may have shared a machine.",
        "- Search for hyper-parameters: 0 runs, 0.0 s; 2 of its runs are not in this results folder.",
        "- tiny_mlp: 4,810 (standin for FashionMNIST)",
        "- FedProx, IID: mu in 0.01, 0.1; 2 trials of 1 seed(s); chosen mu 0.1, validation accuracy 62.50 % (last)",
        "- Rows without tuned values, which take those of conf/method and of the table: FedAvg",
        "- FedAvg, IID: 80.00 ± 10.00 % (n = 3)",
        "- FedProx, IID: 60.00 % (n = 1)",
        "- standin for FashionMNIST, iid: 271 training, 29 validation, 600 test; 4 clients",
        "- standin for FashionMNIST: augmentation none; digits, again and again",
        "- standin: not stated by scikit-learn, which copies them from "
        "https://archive.ics.uci.edu/ml/datasets/Optical+Recognition+of+Handwritten+Digits",
    ):
        assert line in lines, page
    assert any(line.startswith("- In all runs: rounds 2, epochs 1,") for line in lines)


def test_without_a_finished_run(refusal: Any, toy: Callable[..., None]) -> None:
    said = refusal(["checklist"], "no finished run of toy_table1 in results")
    assert "python -m benchmark table name=toy_table1 preset=quick" in said
    assert not Path("results").exists()


def test_every_data_set_has_a_licence() -> None:
    assert [name for name in names() if not registry.get(name).licence] == []
