"""WaterBirds: birds of CUB on land or water backgrounds of Places (Sagawa et al. 2020, https://arxiv.org/abs/1911.08731).

The copies of group DRO and of WILDS are read. FedDiverse trains on split 0, tests on split 2 and leaves out split 1.
Its code squashes images to 256 x 256, as here; the crop of 224 x 224 belongs to the run's transforms. Three species
that the owners labelled water birds by mistake keep this label, because all published numbers are for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from datasets.core.base import Facts, RawOptions, published
from datasets.core.folders import Place, Tree, find_any, listing, readable
from datasets.core.images import ListedDataset, ToSquare, two_parts
from datasets.core.lists import check_counts, check_listed, check_not_empty, read_table
from datasets.core.registry import dataset

if TYPE_CHECKING:
    import pandas as pd

METADATA = "metadata.csv"
CLASSES = ("land bird", "water bird")
PLACES = ("land", "water")
PUBLISHED: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "train": ((3498, 184), (56, 1057)),
    "val": ((467, 466), (133, 133)),
    "test": ((2255, 2255), (642, 642)),
}
"""Images by (class, place), rows classes: group DRO's and WILDS' own descriptions; 11,788 in all."""
TREE = Tree(
    title="WaterBirds",
    folders=("waterbird_complete95_forest2water2", "waterbirds_v1.0", "waterbirds"),
    layout=(
        "waterbird_complete95_forest2water2/metadata.csv and 200 folders like 001.Black_footed_Albatross/ beside it"
    ),
    page="https://github.com/kohpangwei/group_DRO (WILDS: https://wilds.stanford.edu)",
    archive=(
        "https://nlp.stanford.edu/data/dro/waterbird_complete95_forest2water2.tar.gz (size not published), "
        "or WILDS' waterbirds_v1.0"
    ),
    hints={
        "CUB_200_2011*": "CUB_200_2011 found, not WaterBirds: the birds without their new backgrounds",
        "metadata_waterbirds.csv": "SubpopBench's own list; the archive's metadata.csv is needed",
    },
)


class WaterBirdsOptions(RawOptions):
    """Options of WaterBirds; `size` is the side in pixels to which every image is squashed."""

    size: int = Field(default=256, ge=8)


def _facts(options: WaterBirdsOptions) -> Facts:
    train, test = (int(np.sum(PUBLISHED[part])) for part in ("train", "test"))
    return TREE.facts(train, test, len(CLASSES), options.size)


@dataset(
    "waterbirds",
    options=WaterBirdsOptions,
    facts=_facts,
    licence=f"not stated (made of CUB-200-2011 and Places; WILDS: non-commercial research and education), {TREE.page}",
)
def waterbirds(options: WaterBirdsOptions, root: Path) -> ListedDataset:
    """WaterBirds: 4,795 + 5,794 colour photographs, land and water birds on land or water; get the files yourself."""
    with readable(TREE, root):
        place = find_any(TREE, root, (METADATA,))
        table = _table(place, options.strict)
    table["label"], table["attribute"] = table["y"].astype(int), table["place"].astype(int)
    return ListedDataset(
        *two_parts(table.assign(test=table["split"] == "test")),
        classes=CLASSES,
        decode=ToSquare(options.size),
        places=(place,),
        attributes=PLACES,
        expected=published({part: PUBLISHED[part] for part in ("train", "test")}, CLASSES, PLACES),
    )


def _table(place: Place, strict: bool) -> pd.DataFrame:
    """The rows of the splits train and test, with the path of each image, all checked."""
    allowed = {"y": "01", "split": "012", "place": "01"}
    columns = ("img_filename", *allowed)
    table = read_table(place, place.folder / METADATA, columns, unique="img_filename", allowed=allowed)
    table["img_filename"] = table["img_filename"].str.replace("\\", "/")
    table["split"] = table["split"].map(dict(zip("012", PUBLISHED, strict=True)))
    table["cell"] = table["split"] + " y=" + table["y"] + " place=" + table["place"]
    if strict:
        expected = {
            f"{part} y={y} place={where}": n for part, y, where, n in published(PUBLISHED, "01", "01")
        }
        check_counts(place, Counter(table["cell"]), expected, "a set generated anew from CUB and Places")
    check_not_empty(place, {part: int((table["split"] == part).sum()) for part in ("train", "test")})
    table = table[table["split"] != "val"]
    # Folder by folder: asking the disk for each file alone is slow.
    species = table["img_filename"].str.rpartition("/")[0].unique()
    there = {f"{folder}/{name}".lstrip("/") for folder in species for name in listing(place.folder / folder)}
    check_listed(place, dict(zip(table["img_filename"], table["cell"], strict=True)), there)
    return table.assign(path=[place.folder / name for name in table["img_filename"]])
