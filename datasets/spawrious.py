"""Spawrious: generated photographs of dogs at six places (Lynch et al. 2023, https://arxiv.org/abs/2303.05470).

FedDiverse uses two places and two breeds, or four for Spawrious-4, in the order of its code and of the rows of its
client matrices. The folders 0 and 1 belong together; a tenth of each cell (breed and place) is the test set. The
authors draw it with pandas' `sample(frac=0.1, random_state=0)` in the order in which the disk lists the files. Here
the files are sorted by name, and the seed starts anew for each cell: two and four breeds give it the same test images.
"""

from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from datasets.core.base import Expected, Facts, RawOptions, published
from datasets.core.folders import Tree, files_in, find
from datasets.core.images import ImageRow, ListedDataset, ToSquare, two_parts
from datasets.core.registry import dataset

BREEDS = ("labrador", "dachshund", "bulldog", "corgi")
PLACES = ("beach", "snow")
HALVES = ("0", "1")
PER_CELL = 6_336
"""Images of a breed at a place, in both halves."""
TEST_SHARE, TEST_SEED = 0.1, 0
TREE = Tree(
    title="Spawrious",
    folders=("spawrious224", "spawrious", "spawrious224__entire_dataset"),
    layout="spawrious224/0/beach/labrador/*.png, spawrious224/1/...",
    page="https://github.com/aengusl/spawrious",
    archive="spawrious224__entire_dataset.tar.gz, not o2o or m2m",
    sides={"": 224},
    licence="CC BY 4.0 in its README (CC BY-SA in its setup.py)",
)


class SpawriousOptions(RawOptions):
    """Options of Spawrious: number of breeds, and the side in pixels to which an image of another size is squashed."""

    breeds: Literal[2, 4] = 2
    size: int = Field(default=224, ge=8)


def _expected(options: SpawriousOptions) -> Expected:
    held = np.full((options.breeds, len(PLACES)), round(TEST_SHARE * PER_CELL))
    return published({"train": PER_CELL - held, "test": held}, BREEDS[: options.breeds], PLACES)


@dataset(
    "spawrious",
    options=SpawriousOptions,
    tree=TREE,
    facts=lambda options: Facts.of(_expected(options), options.breeds, options.size),
)
def spawrious(options: SpawriousOptions, root: Path) -> ListedDataset:
    """Spawrious as FedDiverse uses it: 2 or 4 breeds of dogs, 6,336 images each on beach and snow; get it yourself."""
    top = find(TREE, root, HALVES).folder
    breeds = BREEDS[: options.breeds]
    rows = []
    for (label, breed), (attribute, place) in product(enumerate(breeds), enumerate(PLACES)):
        paths = [path for half in HALVES for path in files_in(top / half / place / breed, (".png",))]
        tested = drawn_for_test(len(paths))
        rows += [ImageRow(path, k in tested, label, attribute) for k, path in enumerate(paths)]
    return ListedDataset(
        *two_parts(rows),
        classes=breeds,
        decode=ToSquare(options.size),
        attributes=PLACES,
        expected=_expected(options),
    )


def drawn_for_test(size: int) -> set[int]:
    """Positions of the test images among a cell's `size` files: a tenth of them, drawn as pandas' `sample` does."""
    return {*np.random.RandomState(TEST_SEED).permutation(size)[: round(TEST_SHARE * size)].tolist()}
