"""Spawrious and WaterBirds: order of classes and places, the test draw, published cells, FedDiverse's clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import raw_trees
import yaml
from PIL import Image
from raw_trees import listed

from datasets.core.images import open_rgb
from datasets.core.prepare import load
from datasets.spawrious import drawn_for_test
from datasets.waterbirds import PUBLISHED
from partitions import Population, make

BREEDS, PLACES = ("labrador", "dachshund", "bulldog", "corgi"), ("beach", "snow")
CONF = Path(__file__).parents[2] / "conf"
# Of 20 files the seed 0 of numpy's legacy generator, with which pandas draws, takes numbers 18 and 1
# (RandomState(0).permutation(20) begins 18 1 19): the tenth of a cell that is tested.
TESTED_OF_20 = [1, 18]


@pytest.mark.parametrize("breeds", [2, 4])
def test_spawrious_order_and_test_draw(raw: Callable[..., Path], breeds: int) -> None:
    root = raw("spawrious")
    top = root / "spawrious224"
    for junk in ("0/beach/corgi/prompt.txt", "0/beach/corgi/x.jpg", "domain_adaptation_ds/beach/corgi/x.png"):
        (top / junk).parent.mkdir(parents=True, exist_ok=True)
        (top / junk).touch()
    data = listed("spawrious", root, breeds=breeds)
    assert data.classes == BREEDS[:breeds] and data.attributes == PLACES and data.shape == (3, 224, 224)
    assert data.mean == (0.485, 0.456, 0.406) and data.std == (0.229, 0.224, 0.225)
    for label, breed in enumerate(data.classes):
        for attribute, place in enumerate(PLACES):
            # Sorted: numbers 0 to 9 of folder 0, then those of folder 1.
            paths = [
                top / str(half) / place / breed / f"{place}_{breed}_{n}.png"
                for half in (0, 1)
                for n in range(10)
            ]
            for part, own in ((data.train, False), (data.test, True)):
                mask = (part.labels == label) & (np.asarray(part.attributes) == attribute)
                chosen = [path for path, one in zip(part.paths, mask, strict=True) if one]
                assert chosen == [path for k, path in enumerate(paths) if (k in TESTED_OF_20) == own]


def test_spawrious_transparent_copies_are_pictures(tmp_path: Path) -> None:
    Image.new("RGBA", (16, 16), (10, 20, 30, 0)).save(tmp_path / "a.png")
    assert np.asarray(open_rgb(tmp_path / "a.png"))[0, 0].tolist() == [10, 20, 30]


def test_spawrious_published_sizes(raw: Callable[..., Path]) -> None:
    """634 of 6,336 are tested, which leaves 5,702 for training in each cell."""
    frame = pd.DataFrame({"file": range(6336)})
    drawn = np.sort(frame.sample(frac=0.1, random_state=0)["file"])
    np.testing.assert_array_equal(np.flatnonzero(drawn_for_test(6336)), drawn)
    assert len(drawn) == 634 and np.flatnonzero(drawn_for_test(20)).tolist() == TESTED_OF_20
    published = {item[:3]: item[3] for item in listed("spawrious", raw("spawrious"), breeds=4).expected}
    cells = {(part, b, p) for part in ("train", "test") for b in BREEDS for p in PLACES}
    assert set(published) == cells
    assert {n for (part, *_), n in published.items() if part == "train"} == {5702}
    assert sum(n for (part, *_), n in published.items() if part == "test") == 5072


@pytest.mark.parametrize(
    ("distribution", "breeds", "clients", "pooled"),
    [
        ("spawrious_gsc", 2, 24, [[1760, 640], [640, 1760]]),
        ("spawrious_gci", 2, 24, [[1760, 1760], [640, 640]]),
        ("spawrious_gai", 2, 25, [[2000, 500], [2000, 100]]),
        ("spawrious4", 4, 25, [[2000, 200], [2000, 200], [200, 2000], [200, 2000]]),
        ("spawrious_gci100", 2, 100, [[5640, 5640], [2160, 2160]]),
    ],
)
def test_spawrious_clients_fit_the_real_set(
    distribution: str, breeds: int, clients: int, pooled: list[list[int]]
) -> None:
    """5,702 training images per cell; rows labrador, dachshund (bulldog, corgi), columns beach, snow."""
    cell = np.repeat(np.arange(2 * breeds), 5702)
    people = Population(cell // 2, breeds, cell % 2, 2)
    split = make("interaction", {"distribution": distribution}).split(people, np.random.default_rng(0))
    chosen = np.concatenate(split)
    assert len(split) == clients and len(np.unique(chosen)) == len(chosen)
    np.testing.assert_array_equal(np.bincount(cell[chosen], minlength=2 * breeds).reshape(breeds, 2), pooled)


@pytest.mark.parametrize(
    ("name", "classes", "attributes"),
    [
        ("spawrious", BREEDS[:2], PLACES),
        ("spawrious4", BREEDS, PLACES),
        ("waterbirds", ("land bird", "water bird"), ("land", "water")),
    ],
)
def test_stand_ins_have_the_same_rows_and_columns(
    name: str, classes: tuple[str, ...], attributes: tuple[str, ...]
) -> None:
    standin = yaml.safe_load((CONF / f"dataset/digits_{name}.yaml").read_text())["options"]
    assert tuple(standin["class_names"]) == classes and tuple(standin["attributes"]) == attributes


# WaterBirds ----------------------------------------------------------------------------------------------------------


def test_waterbirds_keeps_the_order_of_the_list(raw: Callable[..., Path], tmp_path: Path) -> None:
    """Rows 1 to 12 are the training split, three of each cell, 21 to 32 the test split."""
    root = raw("waterbirds")
    data = listed("waterbirds", root)
    assert data.classes == ("land bird", "water bird") and data.attributes == ("land", "water")
    for part, first in ((data.train, 1), (data.test, 21)):
        assert [path.name for path in part.paths] == [f"Bird_{n:04}.jpg" for n in range(first, first + 12)]
        np.testing.assert_array_equal(part.labels, [0] * 6 + [1] * 6)
        np.testing.assert_array_equal(part.attributes, [0, 0, 0, 1, 1, 1] * 2)
    options = {"strict": False, "size": 16}
    prepared = load("waterbirds", options, root, tmp_path / "cache")
    assert len(prepared.train) == len(prepared.test) == 12
    assert [number for *_, number in prepared.expected] == [3498, 184, 56, 1057, 2255, 2255, 642, 642]


def test_waterbirds_image_is_squashed(raw: Callable[..., Path]) -> None:
    """A 40 x 10 image whose left half is black: in 16 x 16 the left half still is, and nothing is cut off."""
    data = listed("waterbirds", raw("waterbirds"), size=16)
    wide = np.zeros((10, 40, 3), np.uint8)
    wide[:, 20:] = 255
    Image.fromarray(wide).save(data.train.paths[0], quality=100)
    image = data.decode(data.train.paths[0])
    assert image.shape == (3, 16, 16) and image[:, :, :7].max() < 10 and image[:, :, 9:].min() > 245


def test_waterbirds_numbers_with_a_decimal_point_and_a_byte_order_mark(raw: Callable[..., Path]) -> None:
    root = raw("waterbirds")
    path = root / "waterbirds_v1.0/metadata.csv"
    head, *rows = path.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    rows = [",".join([*row[:2], *(f"{value}.0" for value in row[2:5]), row[5]]) for row in cells]
    path.write_text("\ufeff" + "\n".join([head, *rows]))
    assert len(listed("waterbirds", root).train) == 12


def test_waterbirds_published_list_is_what_the_clients_need(tmp_path: Path) -> None:
    """A full list of 11,788 rows with the published cells, its images empty files: listed, not decoded."""
    folder = tmp_path / "waterbirds/001.Bird"
    folder.mkdir(parents=True)
    cells = [(y, split, place) for split, part in enumerate(("train", "val", "test")) for y in (0, 1)
             for place in (0, 1) for _ in range(PUBLISHED[part][y][place])]  # fmt: skip
    rows = [f"{n},001.Bird/{n}.jpg,{y},{split},{place},x" for n, (y, split, place) in enumerate(cells)]
    assert len(rows) == 11_788
    for n in range(len(rows)):
        (folder / f"{n}.jpg").touch()
    raw_trees.write_lines(
        folder.parent / "metadata.csv", ["img_id,img_filename,y,split,place,place_filename", *rows]
    )
    data = listed("waterbirds", tmp_path, strict=True)
    assert (len(data.train), len(data.test), data.shape) == (4795, 5794, (3, 256, 256))
    people = Population(data.train.labels, 2, data.train.attributes, 2)
    clients = make("interaction", {"distribution": "waterbirds_dist"}).split(people, np.random.default_rng(0))
    assert len(clients) == 30
    np.testing.assert_array_equal(np.sort(np.concatenate(clients)), np.arange(4795))
