"""Spawrious: generated photographs of dogs at six places (Lynch et al. 2023, https://arxiv.org/abs/2303.05470).

FedDiverse uses two places and two breeds, or four for Spawrious-4, in the order of its code and of the rows of its
client matrices. The folders 0 and 1 belong together; a tenth of each cell (breed and place) is the test set. The
authors draw it with pandas' `sample(frac=0.1, random_state=0)` in the order in which the disk lists the files. Here
the files are sorted by name, and the seed starts anew for each cell: two and four breeds give it the same test images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field

from datasets.core.base import Facts, RawOptions, published
from datasets.core.folders import BROKEN_OFF, STRICT, Place, Tree, files_in, find_any, listing, readable
from datasets.core.images import Files, ListedDataset, ToSquare, check_pixels
from datasets.core.registry import dataset

BREEDS = ("labrador", "dachshund", "bulldog", "corgi")
PLACES = ("beach", "snow")
HALVES = ("0", "1")
PER_HALF = 3_168
PER_CELL = 2 * PER_HALF
SIDE = 224
"""Pixels of each side of an original."""
TEST_SHARE, TEST_SEED = 0.1, 0
TREE = Tree(
    title="Spawrious",
    folders=("spawrious224", "spawrious", "spawrious224__entire_dataset"),
    layout="spawrious224/0/beach/labrador/*.png, spawrious224/1/...,",
    page="https://github.com/aengusl/spawrious",
    archive="spawrious224__entire_dataset.tar.gz (size not published)",
    hints={
        "spawrious*o2o*": "an o2o archive, which lacks combinations of breed and place; entire_dataset is needed",
        "spawrious*m2m*": "the m2m archive, which has folder 0 only; entire_dataset is needed",
        "domain_adaptation_ds/": "the folders 0 and 1 beside domain_adaptation_ds are needed",
        "beach/": "the places lie here directly; the folders 0 and 1 above them are needed",
    },
)

Cells = dict[tuple[int, int], list[list[Path]]]
"""Files by (breed, place), one list for each of the folders 0 and 1."""


class SpawriousOptions(RawOptions):
    """Options of Spawrious: number of breeds, and the side in pixels to which an image of another size is squashed."""

    breeds: Literal[2, 4] = 2
    size: int = Field(default=224, ge=8)


def _facts(options: SpawriousOptions) -> Facts:
    cells = options.breeds * len(PLACES)
    test = cells * round(TEST_SHARE * PER_CELL)
    return TREE.facts(cells * PER_CELL - test, test, options.breeds, options.size)


@dataset("spawrious", options=SpawriousOptions, facts=_facts)
def spawrious(options: SpawriousOptions, root: Path) -> ListedDataset:
    """Spawrious as FedDiverse uses it: 2 or 4 breeds of dogs, 6,336 images each on beach and snow; get it yourself."""
    breeds = BREEDS[: options.breeds]
    with readable(TREE, root):
        counts = f"{PER_HALF:,} + {PER_HALF:,} expected for each breed and place, none found"
        problem = "there are no folders 0 and 1 with images."
        found = find_any(TREE, root, [f"{half}/" for half in HALVES], problem, counts)
        cells: Cells = {
            (breed, place): [files_in(_folder(found, half, breed, place), (".png",)) for half in HALVES]
            for breed in range(len(breeds))
            for place in range(len(PLACES))
        }
        _check(found, cells, options.strict)
    if options.strict:
        first = [halves[0][0] for halves in cells.values()]
        check_pixels(found, first, lambda *sides: min(sides) >= SIDE, f"{SIDE} x {SIDE}", _counts(cells))
    parts: dict[bool, list[tuple[Path, int, int]]] = {False: [], True: []}
    for (breed, place), (first_half, second_half) in cells.items():
        paths = [*first_half, *second_half]
        for path, is_test in zip(paths, drawn_for_test(len(paths)), strict=True):
            parts[bool(is_test)].append((path, breed, place))
    test = round(TEST_SHARE * PER_CELL)
    tables = {"train": np.full((len(breeds), 2), PER_CELL - test), "test": np.full((len(breeds), 2), test)}
    return ListedDataset(
        train=_files(parts[False]),
        test=_files(parts[True]),
        decode=ToSquare(options.size),
        places=(found,),
        classes=breeds,
        attributes=PLACES,
        expected=published(tables, breeds, PLACES),
    )


def drawn_for_test(size: int) -> npt.NDArray[np.bool_]:
    """Which of a cell's `size` files, sorted, belong to the test set: bool [size], a tenth of them."""
    drawn = pd.Series(range(size)).sample(frac=TEST_SHARE, random_state=TEST_SEED)
    return np.isin(np.arange(size), drawn)


def _files(part: list[tuple[Path, int, int]]) -> Files:
    paths, breeds, places = zip(*part, strict=True)
    return Files(paths, np.array(breeds, dtype=np.int64), np.array(places, dtype=np.int64))


def _folder(tree: Place, half: str, breed: int, place: int) -> Path:
    return tree.folder / half / PLACES[place] / BREEDS[breed]


def _check(tree: Place, cells: Cells, strict: bool) -> None:
    halves = [half for half in HALVES if (tree.folder / half).is_dir()]
    empty = [cell for cell, files in cells.items() if not any(files)]
    # A tenth of fewer than six rounds to none: then a cell would have no test image.
    small = [cell for cell, files in cells.items() if not drawn_for_test(sum(map(len, files))).any()]
    differ = [cell for cell, files in cells.items() if [len(half) for half in files] != [PER_HALF, PER_HALF]]
    if len(halves) < len(HALVES):
        problem = f"only folder {halves[0]} found; {PER_HALF:,} images per cell lie in each of 0 and 1"
        cause = (
            "another archive (m2m has folder 0 only) or an interrupted unpacking; entire_dataset has 0 and 1"
        )
    elif empty:
        problem = f"{len(empty)} of {len(cells)} cells are absent"
        cause = "an o2o archive, which lacks combinations of breed and place; entire_dataset has all of them"
        if any(listing(_folder(tree, half, *empty[0])) for half in HALVES):
            cause = "a converted copy: its files are of another type, the owner's are png"
    elif small and not strict:
        problem = f"{len(small)} cells have too few images for a test set of a tenth"
        cause = f"a copy that was cut down too far, or {BROKEN_OFF}; keep 6 png files per cell or more"
    elif strict and differ:
        problem = f"{len(differ)} of {len(cells)} cells do not have the published numbers"
        cause = f"{BROKEN_OFF}; {STRICT}"
    else:
        return
    breed, place = (empty or small or differ or [(0, 0)])[0]
    cell = f"{PLACES[place]}/{BREEDS[breed]}"
    raise tree.error(
        f"{problem}, first: ({PLACES[place]}, {BREEDS[breed]}).",
        looked_at=tree.folder if len(halves) < len(HALVES) else _folder(tree, "0", breed, place),
        expected=f"0/{cell}/*.png and 1/{cell}/*.png",
        cause=cause,
        counts=_counts(cells),
    )


def _counts(cells: Cells) -> str:
    """Expected and found per cell, in the folders 0 + 1."""
    found = ", ".join(
        f"{PLACES[place]} {BREEDS[breed]} {' + '.join(f'{len(half):,}' for half in halves)}"
        for (breed, place), halves in cells.items()
    )
    return f"{PER_HALF:,} + {PER_HALF:,} expected per cell (folders 0 + 1), found {found}"
