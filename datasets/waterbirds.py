"""WaterBirds: birds of CUB on land or water backgrounds of Places (Sagawa et al. 2020, https://arxiv.org/abs/1911.08731).

Two copies are read: group DRO's (`waterbird_complete95_forest2water2/`) and that of WILDS (`waterbirds_v1.0/`). Both
hold `metadata.csv` and 200 folders of species; facts in the notes on the data sets, section 12. FedDiverse trains on
split 0 and tests on split 2; the 1,199 images of split 1 (validation) are left out.

Its public code squashes every image to 256 x 256 and cuts the central 224 x 224 for the evaluation, other 224 x 224
pixels for the training. So that both can be done on batches, the prepared images are the squashed 256 x 256: the cut
belongs to the run's transforms.

The owners name three land birds (Eastern Towhee, Western Meadowlark, Western Wood Pewee) that they labelled water birds
by mistake. They stay so: all published numbers are for these labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field

from datasets.core.base import DataError, Facts, published
from datasets.core.download import RawOptions, found_in, listing, readable, some
from datasets.core.folders import IMAGENET_MEAN, IMAGENET_STD, STRICT, ImageTree, Place, find_any, read_table
from datasets.core.images import Files, ListedDataset, ToSquare
from datasets.core.registry import dataset

METADATA = "metadata.csv"
COLUMNS = ("img_id", "img_filename", "y", "split", "place", "place_filename")
CLASSES = ("land bird", "water bird")
PLACES = ("land", "water")
PARTS = {"train": 0, "val": 1, "test": 2}
# Images by (class, place), rows classes: group DRO's and WILDS' own descriptions.
PUBLISHED: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "train": ((3498, 184), (56, 1057)),
    "val": ((467, 466), (133, 133)),
    "test": ((2255, 2255), (642, 642)),
}
ROWS = 11_788
TREE = ImageTree(
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
        "waterbird*.tar*": "the archive is not unpacked (tar xzf)",
        "waterbird*.zip": "the archive is not unpacked",
        "[0-9][0-9][0-9].*/": "the folders of species are there without the list of the archive, metadata.csv",
    },
)


class WaterBirdsOptions(RawOptions):
    """Options of WaterBirds; `size` is the side in pixels to which every image is squashed."""

    size: int = Field(default=256, ge=8)


def _facts(options: WaterBirdsOptions) -> Facts:
    train, test = (sum(map(sum, PUBLISHED[part])) for part in ("train", "test"))
    return Facts(train, test, len(CLASSES), 3, options.size, raw=TREE.archive, page=TREE.page)


@dataset("waterbirds", options=WaterBirdsOptions, facts=_facts)
def waterbirds(options: WaterBirdsOptions, root: Path) -> ListedDataset:
    """WaterBirds: 4,795 + 5,794 colour photographs, land and water birds on land or water; get the files yourself."""
    with readable(TREE, root):
        nothing = f"{ROWS:,} images in 200 folders expected, none listed"
        place = find_any(TREE, root, (METADATA,), f"there is no {METADATA}.", nothing)
        table = _read(place)
        cells = {part: _cells(table, number) for part, number in PARTS.items()}
        if options.strict:
            _check_published(place, table, cells)
        _check_files(place, table, cells)
    return ListedDataset(
        train=_files(place.folder, table, PARTS["train"]),
        test=_files(place.folder, table, PARTS["test"]),
        decode=ToSquare(options.size, "squash"),
        shape=(3, options.size, options.size),
        places=(place,),
        classes=CLASSES,
        attributes=PLACES,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        expected=published({part: PUBLISHED[part] for part in ("train", "test")}, CLASSES, PLACES),
    )


def _read(place: Place) -> pd.DataFrame:
    """The list, with y, split and place as whole numbers.

    Raises:
        DataError: It is no such list, or contradicts itself.
    """
    path = place.folder / METADATA
    table = pd.DataFrame(
        read_table(place, path, COLUMNS[1:5], "the list of another data set"), columns=COLUMNS[1:5], dtype=str
    )
    for column, allowed in (("y", "01"), ("split", "012"), ("place", "01")):
        # Copies that went through a table with gaps have "1.0".
        values = table[column].str.strip().str.removesuffix(".0")
        odd = ~values.isin(list(allowed))
        if odd.any():
            problem = (
                f"column {column} of {path.name} has {int(odd.sum())} values other than {', '.join(allowed)}."
            )
            found = f"{some([repr(value) for value in table[column][odd].unique()])} in column {column}"
            raise _bad_list(place, problem, found, _published())
        table[column] = values.astype(np.int64)
    table["img_filename"] = table["img_filename"].str.strip().str.replace("\\", "/")
    twice = table["img_filename"].duplicated()
    counts = {part: _cells(table, number) for part, number in PARTS.items()}
    if twice.any():
        found = f"twice: {some(list(table['img_filename'][twice]))}"
        raise _bad_list(place, f"{int(twice.sum())} images are listed twice.", found, _both(counts))
    empty = [part for part in ("train", "test") if not counts[part].any()]
    if empty:
        problem = f"{path.name} has no image of the {' and the '.join(empty)} split."
        raise _bad_list(place, problem, f"{len(table):,} rows", _both(counts))
    return table


def _cells(table: pd.DataFrame, split: int) -> npt.NDArray[np.int64]:
    """Images of a split by (y, place), int64 [2, 2]."""
    part = table[table["split"] == split]
    return np.bincount(2 * part["y"] + part["place"], minlength=4).reshape(2, 2).astype(np.int64)


def _files(folder: Path, table: pd.DataFrame, split: int) -> Files:
    part = table[table["split"] == split]
    return Files(
        [folder / name for name in part["img_filename"]],
        part["y"].to_numpy(np.int64),
        part["place"].to_numpy(np.int64),
    )


# Mistakes ------------------------------------------------------------------------------------------------------------


def _bad_list(place: Place, problem: str, found: str, counts: str) -> DataError:
    return place.error(
        problem,
        looked_at=place.folder / METADATA,
        expected=f"{METADATA} with the columns {', '.join(COLUMNS)} and {ROWS:,} rows",
        found=found,
        cause="a list that was edited, broke off or belongs to another data set; take it from the archive anew",
        counts=counts,
    )


def _check_published(place: Place, table: pd.DataFrame, counts: Mapping[str, npt.NDArray[np.int64]]) -> None:
    if all(np.array_equal(counts[part], PUBLISHED[part]) for part in PARTS):
        return
    raise place.error(
        "the list does not have the published numbers of images.",
        looked_at=place.folder / METADATA,
        expected=f"{METADATA} with {ROWS:,} rows",
        found=f"{METADATA} with {len(table):,} rows",
        cause=f"a set generated anew from CUB and Places (other images, other confounding); {STRICT}",
        counts=_both(counts),
    )


def _check_files(place: Place, table: pd.DataFrame, counts: Mapping[str, npt.NDArray[np.int64]]) -> None:
    """All listed images of train and test are there, asked folder by folder: thousands of single questions are slow."""
    used = table[table["split"] != PARTS["val"]]
    there = {
        f"{species}/{name}"
        for species in used["img_filename"].str.rpartition("/")[0].unique()
        for name in listing(place.folder / species)
    }
    missing = used[~used["img_filename"].map(lambda name: name if "/" in name else f"/{name}").isin(there)]
    if missing.empty:
        return
    absent = ", ".join(
        f"{part} {_cells(missing, number).tolist()}" for part, number in PARTS.items() if part != "val"
    )
    first = missing["img_filename"].iloc[0]
    species = sum(name.endswith("/") for name in listing(place.folder))
    raise place.error(
        f"{METADATA} has {len(table):,} rows, missing {len(missing):,} images, first: {first}.",
        expected=some(list(missing["img_filename"])),
        found=f"{species} folders; {found_in(place.folder, place.root)}",
        cause="unpacking broke off, or the images are of another copy; unpack the whole archive anew",
        counts=f"{_both(counts)}; missing of these (rows class, columns place): {absent}",
    )


def _published() -> str:
    return (
        "; ".join(f"{part} {[list(row) for row in PUBLISHED[part]]}" for part in PARTS)
        + " expected, none found"
    )


def _both(counts: Mapping[str, npt.NDArray[np.int64]]) -> str:
    return "; ".join(
        f"{part} {[list(row) for row in PUBLISHED[part]]} expected, {counts[part].tolist()} listed"
        for part in PARTS
    )
