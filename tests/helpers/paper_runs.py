"""The runs of preset paper, cut down in size alone: small raw data, narrow networks, two rounds of one epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmark.experiments.plan import Cells, plan
from benchmark.experiments.spec import TableSpec

SMALL_DATA: dict[str, dict[str, Any]] = {
    "retina": {},
    "covid_fl": {},
    "acevedo": {"size": 64},
    "niid2": {"pool": 16, "size": 64},
    "waterbirds": {},
    "ham10000": {"held_out": 2},
    "isic2019": {},
    "spawrious": {"size": 64},
    "cmnist": {},
    "fashionmnist": {},
    "cifar10": {},
    "cifar100": {},
    "svhn": {},
}
"""Options of each data set beside `strict: false`; sides in pixels where no augmentation has a size of its own."""

NARROW: dict[str, dict[str, Any]] = {
    "resnet50": {"width_multiplier": 0.125, "pretrained": False},
    "resnet18_32": {"width_multiplier": 0.125},
    "resnet18_gn": {"width_multiplier": 0.125},
    "wrn28_10": {"widening_factor": 1},
    "mobilenetv2_gn": {"width_multiplier": 0.35, "pretrained": False},
    "efficientnet_b0": {"pretrained": False},
}

SMALL_CLIENTS: dict[str, dict[str, Any]] = {
    "dirichlet": {"min_size": 1},
    "interaction": {"scale": 0.02},
    "pooled_interaction": {"scale": 0.03},
    "white_blood_cells": {"scale": 0.05},
}
"""Partitions that state numbers of samples."""


def diagonal(spec: TableSpec) -> Iterator[tuple[str, str]]:
    """As few (row, column) pairs as name every row and every column that has runs, and what each is compared with."""
    rows, columns = [row.key for row in spec.rows], [column.key for column in spec.run_columns]
    for n in range(max(len(rows), len(columns))):
        yield rows[n % len(rows)], columns[n % len(columns)]
        if spec.reference_row:
            yield spec.reference_row, columns[n % len(columns)]


def cut_down(plain: dict[str, Any], results: Path, data: Path) -> dict[str, Any]:
    """What makes a run of preset paper one of a second; ``plain`` is its configuration."""
    name, partition = plain["dataset"]["name"], plain["partition"]["name"]
    clients = dict(SMALL_CLIENTS.get(partition, {}))
    if name == "retina":  # Table 3 has 50, too many for 40 images
        clients["clients"] = 5
    # Where there is one client, it takes part; elsewhere two do.
    taking_part = 1 if partition == "pooled_interaction" else 2
    batch = 8 if name == "cifar100" else 4
    if not plain["train"]["drop_last"] and "tau_b" not in plain["selection"]:
        batch = plain["train"]["batch_size"]
    # With 10 clients: as many images of each of the 100 classes as clients have the class, and at least two.
    ten = name == "cifar100" and plain["partition"].get("clients") == 10
    per_class = max(2, plain["partition"].get("classes_per_client", 0) // 10) if ten else None
    # FedDiverse's part before the first round: a round of all clients, then 1 + 1 steps on each.
    shorter = {"T0": 1, "tau_b": 1, "tau_a": 1}
    return {
        "dataset": {"options": {"strict": False, **SMALL_DATA[name]}, "train_per_class": per_class},
        "model": NARROW[plain["model"]["name"]],
        "selection": {key: value for key, value in shorter.items() if key in plain["selection"]},
        "partition": clients,
        "train": {"rounds": 2, "epochs": 1, "batch_size": batch, "clients_per_round": taking_part},
        "evaluation": {"validation": 0.2 if plain["evaluation"]["validation"] else 0},
        "paths": {"results": str(results), "data": str(data), "cache": str(results / "cache")},
    }


def planned(spec: TableSpec, results: Path, data: Path) -> Cells:
    """The cut-down runs of a table: each row and each column at least once."""
    cells: Cells = {}
    for row, column in diagonal(spec):
        part = spec.cut({row, spec.reference_row or row}, [column])
        plain = plan(part, "paper", [0])[row, column].runs[0].model_dump()
        small = plan(part, "paper", [0], cut_down(plain, results, data))
        cells[row, column] = small[row, column]
    return cells
