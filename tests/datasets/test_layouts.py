"""Accepted places of raw files: the same images in the same order, wherever the folder is; nothing is written there."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from raw_trees import listed

from datasets.cifar import CIFAR10, CIFAR100
from datasets.core.download import fetch
from datasets.core.images import Files
from datasets.core.prepare import load
from datasets.mnist import MNIST

PBC, AML = "PBC_dataset_normal_DIB", "PKG - AML-Cytomorphology_LMU"
PARTS = "HAM10000/HAM10000_images_part_"
LAYOUTS = [
    ("acevedo", {PBC: f"{PBC}/{PBC}"}),
    ("acevedo", {PBC: "pbc_dataset_normal_dib (1)"}),
    ("matek", {f"{AML}/AML-Cytomorphology": "PKG - AML-Cytomorphology/AML-Cytomorphology"}),
    ("matek", {f"{AML}/AML-Cytomorphology": f"{AML}/{AML}/AML-Cytomorphology"}),
    ("bodzas", {"Bodzas-23": "bodzas/white blood cells/single"}),
    ("bodzas", {"Bodzas-23": "."}),
    ("retina", {"Retina": "Retina/Retina"}),
    ("covid_fl", {"COVID-FL": "covid_fl"}),
    ("ham10000", {"HAM10000": "."}),
    ("ham10000", {"HAM10000/HAM10000_metadata.csv": "HAM10000/HAM10000_metadata"}),
    ("ham10000", {f"{PARTS}{n}": f"{PARTS}{n}/HAM10000_images_part_{n}" for n in (1, 2)}),
    ("ham10000", {f"{PARTS}{n}": "HAM10000" for n in (1, 2)}),
    ("isic2019", {"ISIC2019": "fed_isic2019"}),
    ("isic2019", {"ISIC2019": "."}),
    ("isic2019", {"ISIC2019/train_test_split": "ISIC2019/fed_isic2019_train_test_split.csv"}),
    ("isic2019", {"ISIC2019/train_test_split": "train_test_split.csv"}),
    ("isic2019", {"ISIC2019/ISIC_2019_Training_Input": "ISIC2019/ISIC_2019_Training_Input/ISIC_2019_Training_Input"}),
    ("spawrious", {"spawrious224": "spawrious224__entire_dataset/spawrious224"}),
    ("waterbirds", {"waterbirds_v1.0": "waterbirds/waterbird_complete95_forest2water2"}),
]  # fmt: skip


def move(root: Path, old: str, new: str) -> None:
    """Move a file, or the content of a folder."""
    aside = root.with_name("aside")
    (root / old).rename(aside)
    target = root / new
    if aside.is_file():
        aside.rename(target)
        return
    target.mkdir(parents=True, exist_ok=True)
    for path in aside.iterdir():
        path.rename(target / path.name)
    aside.rmdir()


def content(part: Files) -> list[tuple[str, int]]:
    return [(path.name, int(label)) for path, label in zip(part.paths, part.labels, strict=True)]


@pytest.mark.parametrize(("name", "moves"), LAYOUTS)
def test_accepted_places(raw: Callable[..., Path], name: str, moves: dict[str, str]) -> None:
    root = raw(name)
    options = {"held_out": 1} if name == "ham10000" else {}
    before = listed(name, root, **options)
    for old, new in moves.items():
        move(root, old, new)
    for junk in ("._x.jpg", "Thumbs.db"):
        (root / junk).write_bytes(b"junk")
    after = listed(name, root, **options)
    assert content(before.train) == content(after.train) and content(before.test) == content(after.test)
    np.testing.assert_array_equal(before.train.sources, after.train.sources)
    np.testing.assert_array_equal(before.train.attributes, after.train.attributes)
    assert all(path.is_file() for path in (*after.train.paths, *after.test.paths))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        *(("mnist", "MNIST/raw", new) for new in ("MNIST/MNIST/raw", "MNIST/raw/raw", "MNIST", "raw", ".")),
        ("cifar10", "cifar-10-batches-py", "cifar-10-batches-py/cifar-10-batches-py"),
        ("cifar10", "cifar-10-batches-py", "."),
        ("cifar100", "cifar-100-python", "cifar100"),
    ],
)
def test_accepted_places_of_downloads(raw: Callable[..., Path], name: str, old: str, new: str) -> None:
    root = raw(name)
    move(root, old, new)
    kind = {"mnist": MNIST, "cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    assert fetch(kind.tree, root).folder == root / new


@pytest.mark.parametrize("name", ["acevedo", "mnist"])
def test_nothing_is_written_into_the_raw_tree(raw: Callable[..., Path], tmp_path: Path, name: str) -> None:
    root = raw(name)
    before = {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}
    load(name, {"strict": False}, root, tmp_path / "cache")
    assert {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))} == before
