"""Spawrious and WaterBirds: order of classes and places, the test draw, published cells, FedDiverse's clients."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from raw_trees import listed

from datasets.spawrious import drawn_for_test
from datasets.waterbirds import PUBLISHED
from partitions.interaction import DISTRIBUTIONS, Interaction

BREEDS, PLACES = ("labrador", "dachshund", "bulldog", "corgi"), ("beach", "snow")
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
    assert data.classes == BREEDS[:breeds]
    # In each cell, sorted: numbers 0 to 9 of folder 0, then those of folder 1.
    files = [
        (f"{n // 10}/{place}/{breed}/{place}_{breed}_{n % 10}.png", label, attribute, n in TESTED_OF_20)
        for label, breed in enumerate(data.classes)
        for attribute, place in enumerate(PLACES)
        for n in range(20)
    ]
    for part, tested in ((data.train, False), (data.test, True)):
        rows = zip(part.paths, part.labels, part.attributes, strict=True)  # type: ignore[arg-type]
        assert list(rows) == [(top / file, *cell) for file, *cell, test in files if test == tested]


def test_spawrious_published_sizes(raw: Callable[..., Path]) -> None:
    """634 of 6,336 are tested, as pandas draws them; 5,702 are left, enough for each setting of FedDiverse."""
    drawn = pd.DataFrame({"file": range(6336)}).sample(frac=0.1, random_state=0)["file"]
    assert drawn_for_test(6336) == {*drawn}
    assert len(drawn) == 634
    published = {item[:3]: item[3] for item in listed("spawrious", raw("spawrious"), breeds=4).expected}
    cells = {part: {(part, b, p) for b in BREEDS for p in PLACES} for part in ("train", "test")}
    assert published == dict.fromkeys(cells["train"], 5702) | dict.fromkeys(cells["test"], 634)
    for name in (name for name in DISTRIBUTIONS if name.startswith("spawrious")):
        assert Interaction(distribution=name).matrices().sum(axis=0).max() <= 5702


# WaterBirds ----------------------------------------------------------------------------------------------------------


def test_waterbirds_keeps_the_order_of_the_list(raw: Callable[..., Path]) -> None:
    """Rows 1 to 12 are the training split, three of each cell, 21 to 32 the test split."""
    data = listed("waterbirds", raw("waterbirds"))
    for part, first in ((data.train, 1), (data.test, 21)):
        assert [path.name for path in part.paths] == [f"Bird_{n:04}.jpg" for n in range(first, first + 12)]
        np.testing.assert_array_equal(part.labels, [0] * 6 + [1] * 6)
        np.testing.assert_array_equal(part.attributes, [0, 0, 0, 1, 1, 1] * 2)
    assert [number for *_, number in data.expected] == [3498, 184, 56, 1057, 2255, 2255, 642, 642]


def test_waterbirds_published_list_is_what_the_clients_need() -> None:
    """Of 11,788 images 1,199 are the validation split, which is not used."""
    assert np.sum([PUBLISHED[part] for part in ("train", "test")]) == 11_788 - 1_199
    clients = Interaction(distribution="waterbirds_dist").matrices()
    np.testing.assert_array_equal(clients.sum(axis=0), PUBLISHED["train"])
