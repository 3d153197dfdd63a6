"""What each data set of image files lists of its miniature raw tree, wherever the tree lies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_trees import DOMAINS, listed

from datasets.core.images import IMAGENET_MEAN, IMAGENET_STD, Files, ToSquare
from datasets.core.prepare import load
from datasets.isic2019 import Dermoscopy
from datasets.retina import FromArray

SKIN = ("vidir_molemax", "vidir_modern", "rosendahl", "vienna_dias")
SITES = (
    *("bimcv", "cohen", "eurorad", "gz", "ml-workgroup", "ricord_c"),
    *("rsna-0", "rsna-1", "rsna-2", "rsna-3", "rsna-4", "sirm"),
)
CENTRES = ("bcn", "vidir_molemax", "vidir_modern", "rosendahl", "msk", "vienna_dias")
# Options, images of each class for training and for testing, classes (the first), attributes, sources, decoder.
LISTED: dict[str, tuple[dict[str, Any], list[int], list[int], str, tuple[str, ...], tuple[str, ...], Any]] = {
    "retina": ({}, [5, 5], [3, 3], "normal", (), (), FromArray(256)),
    "covid_fl": ({}, [24, 12, 12], [2, 2, 2], "normal", (), SITES, ToSquare(384, "cover")),
    "acevedo": ({}, [2] * 10, [1] * 10, "basophil", (), (), ToSquare(224)),
    "matek": ({"size": 20}, [1] * 15, [1] * 15, "basophil", (), (), ToSquare(20)),
    "bodzas": ({}, [1] * 9, [1] * 9, "basophil", (), (), ToSquare(224)),
    # FedSDC's and FedDisco's code resize both sides to 56.
    "ham10000": ({"held_out": 1}, [3] * 7, [1] * 7, "akiec", (), SKIN, ToSquare(56)),
    "isic2019": ({}, [12] * 8, [6] * 8, "MEL", (), CENTRES, Dermoscopy(224)),
    "waterbirds": ({}, [6, 6], [6, 6], "land bird", ("land", "water"), (), ToSquare(256)),
    "spawrious": ({}, [36, 36], [4, 4], "labrador", ("beach", "snow"), (), ToSquare(224)),
    "pacs": ({}, [16] * 7, [4] * 7, "dog", (), DOMAINS, ToSquare(227)),
}


@pytest.mark.parametrize("name", LISTED)
def test_what_is_listed(raw: Callable[..., Path], name: str) -> None:
    options, train, test, first, attributes, sources, decode = LISTED[name]
    root = raw(name)
    data = listed(name, root, **options)
    for part, counts in ((data.train, train), (data.test, test)):
        assert np.bincount(part.labels).tolist() == counts
        assert all(path.is_file() and root in path.parents for path in part.paths)
    assert len({*data.train.paths, *data.test.paths}) == sum(train) + sum(test), "no file is in both parts"
    assert data.classes[0] == first and len(data.classes) == len(train)
    assert (data.attributes, data.sources, data.decode) == (attributes, sources, decode)
    if name != "retina":
        assert (data.mean, data.std) == (IMAGENET_MEAN, IMAGENET_STD)


PBC, AML = "PBC_dataset_normal_DIB", "PKG - AML-Cytomorphology_LMU"
PARTS = "HAM10000/HAM10000_images_part_"
INPUT = "ISIC_2019_Training_Input"
LAYOUTS = [
    ("acevedo", {PBC: f"{PBC}/{PBC}"}),
    ("matek", {f"{AML}/AML-Cytomorphology": "PKG - AML-Cytomorphology/AML-Cytomorphology"}),
    ("bodzas", {"Bodzas-23": "bodzas/white blood cells/single"}),
    ("covid_fl", {"COVID-FL": "covid_fl"}),
    ("ham10000", {"HAM10000": "."}),
    ("ham10000", {f"{PARTS}{n}": f"{PARTS}{n}/HAM10000_images_part_{n}" for n in (1, 2)}),
    ("ham10000", {f"{PARTS}{n}": "HAM10000" for n in (1, 2)}),
    ("isic2019", {"ISIC2019": "."}),
    ("isic2019", {"ISIC2019/train_test_split": "train_test_split.csv"}),
    ("isic2019", {f"ISIC2019/{INPUT}": f"ISIC2019/{INPUT}/{INPUT}"}),
    ("spawrious", {"spawrious224": "spawrious224__entire_dataset/spawrious224"}),
    ("pacs", {"PACS": "Homework3-PACS-master/PACS"}),
    ("waterbirds", {"waterbirds_v1.0": "waterbirds/waterbird_complete95_forest2water2"}),
]


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
    """The same images in the same order."""
    root, options = raw(name), LISTED[name][0]
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


@pytest.mark.parametrize("name", ["acevedo", "mnist"])
def test_nothing_is_written_into_the_raw_tree(raw: Callable[..., Path], tmp_path: Path, name: str) -> None:
    root = raw(name)
    before = {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}
    load(name, {"strict": False}, root, tmp_path / "cache")
    assert {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))} == before
