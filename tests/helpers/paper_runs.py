"""The runs of preset paper, cut down in size alone: small raw data, narrow networks, two rounds of one epoch."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmark.config.compose import load_group
from benchmark.experiments.plan import Cells, plan
from benchmark.experiments.spec import TableSpec

SMALL_DATA: dict[str, dict[str, Any]] = {
    "cmnist": {},
    "svhn": {},
    "fashionmnist": {},
    "cifar10": {},
    "spawrious": {"size": 64},
    "acevedo": {"size": 64},
    "pacs": {"size": 64},
    "niid2": {"pool": 16, "size": 64},
    "cifar100": {},
    "ham10000": {"held_out": 2},
    "isic2019": {},
    "covid_fl": {},
    "retina": {},
    "waterbirds": {},
}
"""Options of each data set beside `strict: false`, the cheapest first; no size where an augmentation sets one."""

FEW_IMAGES = {"svhn": 12, "fashionmnist": 12, "cifar10": 12, "cifar100": 2, "retina": 10}
"""Images of a class that are enough for ten clients."""

NARROW: dict[str, dict[str, Any]] = {
    "resnet50": {"width_multiplier": 0.125, "pretrained": False},
    "resnet50_gn": {"width_multiplier": 0.125, "pretrained": False},
    "resnet18_32": {"width_multiplier": 0.125},
    "resnet18_gn": {"width_multiplier": 0.125},
    "wrn28_10": {"widening_factor": 1},
    "mobilenetv2_gn": {"width_multiplier": 0.35, "pretrained": False, "start": None},
    "efficientnet_b0": {"pretrained": False},
}

SMALL_CLIENTS: dict[str, dict[str, Any]] = {
    "dirichlet": {"min_size": 1},
    "interaction": {"scale": 0.01},
    "pooled_interaction": {"scale": 0.01},
    "white_blood_cells": {"scale": 0.05},
}
"""Partitions that state numbers of samples."""


def diagonal(spec: TableSpec) -> Iterator[tuple[str, str]]:
    """As few (row, column) pairs as name every row and every column that has runs, and what each is compared with.

    The cheapest row meets the dearest column, and so on; what is left of one meets the cheapest of the other. Rows with
    FedDiverse's selection are dear: it passes over the data of all clients.
    """
    names = list(SMALL_DATA)
    rows = sorted(spec.rows, key=lambda row: "feddiverse" in (row.selection_name or ""))
    costs = {}
    for column in spec.run_columns:
        settings = spec.cell_settings(rows[0].key, column.key, "paper")
        assert settings is not None
        costs[column.key] = names.index(load_group("dataset", settings["dataset"]["name"])["name"])
    columns = sorted(costs, key=costs.__getitem__, reverse=True)
    for row, column_key in zip_longest([row.key for row in rows], columns):
        yield row or rows[0].key, column_key or columns[-1]
        if spec.reference_row:
            yield spec.reference_row, column_key or columns[-1]


def cut_down(plain: dict[str, Any], results: Path, data: Path) -> dict[str, Any]:
    """What makes a run of preset paper one of a second; ``plain`` is its configuration."""
    name, partition = plain["dataset"]["name"], plain["partition"]
    clients = dict(SMALL_CLIENTS.get(partition["name"], {}))
    if name == "retina":  # Table 3 has 50, too many for 20 images
        clients["clients"] = 5
    # Where there is one client, it takes part, with two steps; elsewhere two do, with one epoch.
    pooled = partition["name"] == "pooled_interaction"
    batch = 8 if name == "cifar100" else 4
    if not (pooled or plain["train"]["drop_last"] or "tau_b" in plain["selection"]):
        batch = plain["train"]["batch_size"]
    few = FEW_IMAGES.get(name)
    if few and name != "retina" and partition["clients"] > 10:
        few = None
    if few and name == "cifar100":  # as many images of each of the 100 classes as clients have the class
        few = max(few, partition.get("classes_per_client", 0) // 10)
    # FedDiverse's part before the first round: a round of all clients, then 1 + 1 steps on each.
    shorter = {"T0": 1, "tau_b": 1, "tau_a": 1}
    return {
        "dataset": {"options": {"strict": False, **SMALL_DATA[name]}, "train_per_class": few},
        "model": NARROW[plain["model"]["name"]],
        "selection": {key: value for key, value in shorter.items() if key in plain["selection"]},
        "partition": clients,
        "train": {
            "rounds": 2,
            "epochs": None if pooled else 1,
            "steps": 2 if pooled else None,
            "batch_size": batch,
            "clients_per_round": 1 if pooled else 2,
        },
        "evaluation": {"validation": 0.25 if plain["evaluation"]["validation"] else 0},
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
