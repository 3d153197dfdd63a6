"""Preset paper from raw files to printed tables: every row and every column of every table, cut down in size alone.

Loader, partition, augmentation, losses, selection and reports are those of the preset; `paper_runs` says what
is smaller.
"""

import csv
import itertools
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from paper_runs import diagonal, planned
from raw_trees import WRITERS

from benchmark.cli.launching import run_missing
from benchmark.cli.options import LaunchOptions
from benchmark.experiments.plan import Cells, unique_runs
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import find_specs
from benchmark.reports.collect import collect
from benchmark.reports.layout import as_table
from benchmark.reports.write import write
from benchmark.runs.data import load_data
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.result_files import read_records

SPECS = {spec.name: spec for spec in find_specs() if "paper" in spec.presets and not spec.tuned_only}

# Clients of a column and classes of its data, as the papers state them (FedLD 3.1; FedSDC 3.1; FedDiverse, tables 5 and
# 6; FLamby's centres). FedMR's P<clients>C<classes of a client> are read from the columns' names.
STATED = {
    "retina": (None, 2),
    "covid_fl": (12, 3),
    "acevedo": (15, 10),
    "ham10000": (15, 7),
    "niid2": (15, 13),
    "isic2019": (6, 8),
    "pacs": (4, 7),
    "waterbirds_dist": (30, 2),
    "spawrious_gai": (25, 2),
    "spawrious_gci100": (100, 2),
    "spawrious4": (25, 4),
    "cifar100": (None, 100),
    **dict.fromkeys(("spawrious_gsc", "spawrious_gci", "cmnist_gsc"), (24, 2)),
    **dict.fromkeys(("fashionmnist", "svhn", "cifar10"), (None, 10)),
}


@dataclass(frozen=True)
class Made:
    """What was run."""

    results: ResultsFolder
    cells: dict[str, Cells]
    code: int


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """All cut-down runs of all tables, by the local launcher."""
    raw, place = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("results")
    for write_tree in WRITERS:
        write_tree(raw)
    cells = {name: planned(spec, place, raw) for name, spec in SPECS.items()}
    results = ResultsFolder(place).open()
    plans = [(spec, cells[name]) for name, spec in SPECS.items()]
    with run_missing(LaunchOptions(), RunIndex(results), plans) as code:
        return Made(results, cells, code)


def test_all_tables_are_there() -> None:
    """The tuned leaderboard needs values."""
    without = {spec.name for spec in find_specs() if not spec.tuned_only} - set(SPECS)
    assert not without
    for spec in SPECS.values():
        rows, columns = zip(*diagonal(spec), strict=True)
        assert set(rows) == {row.key for row in spec.rows}
        assert set(columns) == {column.key for column in spec.columns if not column.average_of}


@pytest.mark.parametrize("name", SPECS)
def test_a_table(name: str, made: Made, tmp_path: Path) -> None:
    """Every run went through its two rounds, and its number is in the table's file."""
    spec: TableSpec = SPECS[name]
    cells = made.cells[name]
    best = {}
    for key, cell in cells.items():
        (run,) = cell.runs
        folder = made.results.run(run.key)
        result = folder.result()
        assert result is not None and (result.state, result.round) == ("done", 2), (key, result)
        records = read_records(folder.path, result)
        losses = [r.value for r in records if (r.split, r.metric, r.group) == ("train", "loss", "all")]
        assert len(losses) == 2 and all(map(math.isfinite, losses)), key
        best[key] = max(r.value for r in records if r[1:4] == ("test", "all", "accuracy"))
    # A run has two rounds here, where a table may show the mean of more.
    which = {"paper": re.sub(r"mean_last_\d+", "mean_last_2", spec.which_round["paper"])}
    shown = spec.model_copy(update={"which_round": which})
    write(as_table(collect(shown, "paper", cells, RunIndex(made.results))), tmp_path)
    with open(tmp_path / f"{name}.csv", newline="") as stream:
        done = {(line["row"], line["column"]) for line in csv.DictReader(stream) if line["n"] == "1"}
    # A row that is compared with another has a number if it reaches that one's best accuracy; an average, if it has all
    # of its parts.
    rival = spec.reference_row
    expected = {key for key in cells if not rival or best[key] >= best[rival, key[1]]}
    for row, column in itertools.product(spec.rows, spec.columns):
        if column.average_of and all((row.key, part) in cells for part in column.average_of):
            expected.add((row.key, column.key))
    assert done == expected
    assert {path.suffix for path in tmp_path.iterdir() if path.stat().st_size} == {".csv", ".md", ".tex"}


def test_clients_and_classes_are_the_papers(made: Made) -> None:
    assert made.code == 0, "the launcher saw no failure"
    seen = set()
    for cells in made.cells.values():
        for (_, column), cell in cells.items():
            config = cell.runs[0]
            key = config.partition.parameters.get("distribution", config.dataset.name)
            clients, classes = STATED[key]
            seen.add(key)
            data = load_data(config)
            assert len(data.dataset.classes) == classes, column
            if config.partition.name == "pooled_interaction":
                assert len(data.clients) == 1
            elif match := re.search(r"/p(\d+)c(\d+)$", column):
                assert len(data.clients) == int(match[1]), column
                held = [len(np.unique(data.train.labels[client])) for client in data.clients]
                assert max(held) <= int(match[2]), column
            elif clients is not None:
                assert len(data.clients) == clients, column
    assert seen == set(STATED)


def test_every_augmentation_of_the_papers_was_used(made: Made) -> None:
    runs = unique_runs(list(made.cells.values()))
    used = {(run.dataset.name, run.train.augment) for run in runs.values()}
    same = {(name, name) for name in ("retina", "covid_fl", "ham10000", "isic2019", "waterbirds", "cifar100")}
    assert used >= same | {("acevedo", "blood"), ("niid2", "blood"), ("cifar10", "reflect_crop_flip")}
