"""Spawrious: generated photographs of dogs at six places (Lynch et al. 2023, https://arxiv.org/abs/2303.05470).

FedDiverse uses two places and two breeds, or four for Spawrious-4, in the order of its code and of the rows of its
client matrices. The folders 0 and 1 belong together; a tenth of each cell (breed and place) is the test set. The
authors draw it with pandas' `sample(frac=0.1, random_state=0)` in the order in which the disk lists the files. Here
the files are sorted by name, and the seed starts anew for each cell: two and four breeds give it the same test images.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from datasets.core.base import Facts, RawOptions, published
from datasets.core.folders import Place, Tree, files_in, find_any, readable
from datasets.core.images import ListedDataset, ToSquare, check_pixels, two_parts
from datasets.core.lists import check_counts, check_not_empty
from datasets.core.registry import dataset

BREEDS = ("labrador", "dachshund", "bulldog", "corgi")
PLACES = ("beach", "snow")
HALVES = ("0", "1")
PER_HALF = 3_168
PER_CELL = 2 * PER_HALF
SIDE = 224
"""Pixels of each side of an original."""
TEST_SHARE, TEST_SEED = 0.1, 0
WANTED = "entire_dataset is needed"
TREE = Tree(
    title="Spawrious",
    folders=("spawrious224", "spawrious", "spawrious224__entire_dataset"),
    layout="spawrious224/0/beach/labrador/*.png, spawrious224/1/...,",
    page="https://github.com/aengusl/spawrious",
    archive="spawrious224__entire_dataset.tar.gz (size not published)",
    hints={
        "spawrious*o2o*": f"an o2o archive, which lacks combinations of breed and place; {WANTED}",
        "spawrious*m2m*": f"the m2m archive, which has folder 0 only; {WANTED}",
    },
)


class SpawriousOptions(RawOptions):
    """Options of Spawrious: number of breeds, and the side in pixels to which an image of another size is squashed."""

    breeds: Literal[2, 4] = 2
    size: int = Field(default=224, ge=8)


def _facts(options: SpawriousOptions) -> Facts:
    cells = options.breeds * len(PLACES)
    test = cells * round(TEST_SHARE * PER_CELL)
    return TREE.facts(cells * PER_CELL - test, test, options.breeds, options.size)


@dataset(
    "spawrious",
    options=SpawriousOptions,
    facts=_facts,
    licence=f"CC BY 4.0 in its README (CC BY-SA in its setup.py), {TREE.page}",
)
def spawrious(options: SpawriousOptions, root: Path) -> ListedDataset:
    """Spawrious as FedDiverse uses it: 2 or 4 breeds of dogs, 6,336 images each on beach and snow; get it yourself."""
    breeds = BREEDS[: options.breeds]
    with readable(TREE, root):
        top = find_any(TREE, root, [f"{half}/" for half in HALVES])
        files = {
            f"{half}/{place}/{breed}": files_in(top.folder / half / place / breed, (".png",))
            for half, place, breed in product(HALVES, PLACES, breeds)
        }
        _check(top, files, options.strict)
    import pandas as pd  # slow to import

    parts = []
    for (label, breed), (attribute, place) in product(enumerate(breeds), enumerate(PLACES)):
        paths = [path for half in HALVES for path in files[f"{half}/{place}/{breed}"]]
        test = drawn_for_test(len(paths))
        parts.append(pd.DataFrame({"path": paths, "label": label, "attribute": attribute, "test": test}))
    held = np.full((len(breeds), len(PLACES)), round(TEST_SHARE * PER_CELL))
    return ListedDataset(
        *two_parts(pd.concat(parts)),
        classes=breeds,
        decode=ToSquare(options.size),
        places=(top,),
        attributes=PLACES,
        expected=published({"train": PER_CELL - held, "test": held}, breeds, PLACES),
    )


def drawn_for_test(size: int) -> npt.NDArray[np.bool_]:
    """Which of a cell's `size` files, sorted, belong to the test set: bool [size], a tenth of them."""
    import pandas as pd

    drawn = pd.Series(range(size)).sample(frac=TEST_SHARE, random_state=TEST_SEED)
    return np.isin(np.arange(size), drawn)


def _check(top: Place, files: Mapping[str, Sequence[Path]], strict: bool) -> None:
    """Check the number of files in each folder, and in each cell of a cut-down copy."""
    found = {folder: len(paths) for folder, paths in files.items()}
    cause = (
        f"an archive m2m (folder 0 only) or o2o (not all combinations), or files that are not png; {WANTED}"
    )
    if strict:
        check_counts(top, found, dict.fromkeys(files, PER_HALF), cause)
        first = [paths[0] for paths in files.values()]
        check_pixels(top, first, lambda *sides: min(sides) >= SIDE, f"{SIDE} x {SIDE}")
    cells = Counter[str]()
    for folder, number in found.items():
        cells[folder.split("/", 1)[1]] += number
    # A tenth of fewer than six rounds to none: then a cell would have no test image.
    check_not_empty(top, cells, 6, cause)
