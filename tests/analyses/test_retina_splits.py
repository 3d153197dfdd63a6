"""Retina's client lists beside the rule, on lists that a test writes by hand."""

from pathlib import Path

import numpy as np
import pytest

from benchmark.__main__ import main
from benchmark.analyses.retina_splits import compared
from datasets.core.images import Files, ListedDataset, ToSquare
from partitions import Population, make


def listed(sources: np.ndarray, labels: np.ndarray) -> ListedDataset:
    files = Files([Path(str(n)) for n in range(len(labels))], labels, sources=sources)
    names = tuple(f"client_{k}" for k in range(1, 6))
    return ListedDataset(files, files, ("normal", "diseased"), sources=names, decode=ToSquare(8, "squash"))


def test_lists_of_the_rule_and_lists_that_differ() -> None:
    labels = np.arange(400) % 2
    scheme = make("dirichlet", {"clients": 5, "alpha": 100.0, "legacy_seed": 2022})
    clients = scheme.split(Population(labels, 2), np.random.default_rng(5))
    sources = np.zeros(400, np.int64)
    for client, images in enumerate(clients):
        sources[images] = client
    rows = compared(listed(sources, labels), 1)
    assert [row["both"] for row in rows] == [len(images) for images in clients]
    assert all(row["listed"] == row["by rule"] for row in rows)
    assert rows[2]["figure"] == "875 + 1018"

    moved = clients[0][0]  # one image at another client
    sources[moved] = 1
    changed = compared(listed(sources, labels), 1)
    assert [row["both"] for row in changed] == [len(images) - (k == 0) for k, images in enumerate(clients)]
    assert sum(map(int, str(changed[1]["listed"]).split(" + "))) == len(clients[1]) + 1


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["retina-splits", f"data={tmp_path}"], "Retina/labels.csv"),
        (["retina-split"], "Did you mean 'retina-splits'"),
        ([], "analyse: got ''; expected one of: client-types, "),
    ):
        assert main(["analyse", *words]) == 2
        assert message in capsys.readouterr().err
