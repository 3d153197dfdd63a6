"""WaterBirds: birds of CUB on land or water backgrounds of Places (Sagawa et al. 2020, https://arxiv.org/abs/1911.08731).

The copies of group DRO and of WILDS are read. FedDiverse trains on split 0, tests on split 2 and leaves out split 1.
Its code squashes images to 256 x 256, as here; the crop of 224 x 224 belongs to the run's transforms. Three species
that the owners labelled water birds by mistake keep this label, because all published numbers are for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field

from datasets.core.base import DataError, Facts, RawOptions, published
from datasets.core.folders import STRICT, Place, Tree, find_any, first_names, listing, readable
from datasets.core.images import Files, ListedDataset, ToSquare
from datasets.core.lists import read_table
from datasets.core.registry import dataset

METADATA = "metadata.csv"
COLUMNS = ("img_filename", "y", "split", "place")
CLASSES = ("land bird", "water bird")
PLACES = ("land", "water")
PARTS = {"train": 0, "val": 1, "test": 2}
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
        "[0-9][0-9][0-9].*/": "the folders of species are there without the list of the archive, metadata.csv",
    },
)


class WaterBirdsOptions(RawOptions):
    """Options of WaterBirds; `size` is the side in pixels to which every image is squashed."""

    size: int = Field(default=256, ge=8)


def _facts(options: WaterBirdsOptions) -> Facts:
    train, test = (int(np.sum(PUBLISHED[part])) for part in ("train", "test"))
    return TREE.facts(train, test, len(CLASSES), options.size)


@dataset("waterbirds", options=WaterBirdsOptions, facts=_facts)
def waterbirds(options: WaterBirdsOptions, root: Path) -> ListedDataset:
    """WaterBirds: 4,795 + 5,794 colour photographs, land and water birds on land or water; get the files yourself."""
    with readable(TREE, root):
        nothing = "11,788 images expected, none listed"
        place = find_any(TREE, root, (METADATA,), f"there is no {METADATA}.", nothing)
        table = _read(place, options.strict)
        _check_files(place, table)
    return ListedDataset(
        train=_files(place.folder, table, PARTS["train"]),
        test=_files(place.folder, table, PARTS["test"]),
        decode=ToSquare(options.size),
        places=(place,),
        classes=CLASSES,
        attributes=PLACES,
        expected=published({part: PUBLISHED[part] for part in ("train", "test")}, CLASSES, PLACES),
    )


def _read(place: Place, strict: bool) -> pd.DataFrame:
    """The list, checked, with y, split and place as whole numbers."""
    rows = read_table(place, place.folder / METADATA, COLUMNS, "the list of another data set")
    table = pd.DataFrame(rows, columns=COLUMNS, dtype=str)
    for column, allowed in (("y", "01"), ("split", "012"), ("place", "01")):
        # Copies that went through a table with gaps have "1.0".
        values = table[column].str.strip().str.removesuffix(".0")
        odd = ~values.isin(list(allowed))
        if odd.any():
            shown = first_names([repr(value) for value in table[column][odd].unique()])
            problem = (
                f"has {int(odd.sum())} values other than {', '.join(allowed)} in column {column}: {shown}"
            )
            raise _bad_list(place, problem, table)
        table[column] = values.astype(np.int64)
    table["img_filename"] = table["img_filename"].str.strip().str.replace("\\", "/")
    twice = table["img_filename"].duplicated()
    if twice.any():
        shown = first_names(list(table["img_filename"][twice]))
        raise _bad_list(place, f"lists {int(twice.sum())} images twice: {shown}", table)
    empty = [part for part in ("train", "test") if not _cells(table, part).any()]
    if empty:
        raise _bad_list(place, f"has no image of the {' and the '.join(empty)} split", table)
    if strict and not all(np.array_equal(_cells(table, part), PUBLISHED[part]) for part in PARTS):
        cause = f"a set generated anew from CUB and Places (other images, other confounding); {STRICT}"
        raise _bad_list(place, "does not have the published numbers of images", table, cause)
    return table


def _cells(table: pd.DataFrame, part: str) -> npt.NDArray[np.int64]:
    """Images of a split by (y, place), int64 [2, 2]."""
    own = table[table["split"] == PARTS[part]]
    return np.bincount(2 * own["y"] + own["place"], minlength=4).reshape(2, 2).astype(np.int64)


def _files(folder: Path, table: pd.DataFrame, split: int) -> Files:
    part = table[table["split"] == split]
    paths = [folder / name for name in part["img_filename"]]
    return Files(paths, part["y"].to_numpy(np.int64), part["place"].to_numpy(np.int64))


def _bad_list(
    place: Place,
    problem: str,
    table: pd.DataFrame,
    cause: str = "a list that was edited, broke off or belongs to another data set; take it from the archive anew",
) -> DataError:
    expected = f"with the columns {', '.join(COLUMNS)} and 11,788 rows"
    return place.bad_file(place.folder / METADATA, problem, expected, cause, _counts(table))


def _counts(table: pd.DataFrame) -> str:
    """Images expected and listed, rows classes, columns places."""
    readable_table = all(table[column].dtype == np.int64 for column in COLUMNS[1:])
    return f"{len(table):,} rows; " + "; ".join(
        f"{part} {[list(row) for row in PUBLISHED[part]]} expected, "
        f"{_cells(table, part).tolist() if readable_table else 'none'} listed"
        for part in PARTS
    )


def _check_files(place: Place, table: pd.DataFrame) -> None:
    """Check that all images of train and test are there, folder by folder: asking for each file alone is slow."""
    used = table[table["split"] != PARTS["val"]]
    there = {
        f"{species}/{name}".lstrip("/")
        for species in used["img_filename"].str.rpartition("/")[0].unique()
        for name in listing(place.folder / species)
    }
    missing = used[~used["img_filename"].isin(there)]
    if missing.empty:
        return
    absent = ", ".join(f"{part} {_cells(missing, part).tolist()}" for part in ("train", "test"))
    names = list(missing["img_filename"])
    raise place.error(
        f"{METADATA} has {len(table):,} rows, missing {len(missing):,} images, first: {names[0]}.",
        expected=first_names(names),
        cause="unpacking broke off, or the images are of another copy; unpack the whole archive anew",
        counts=f"{_counts(table)}; missing of these: {absent}",
    )
