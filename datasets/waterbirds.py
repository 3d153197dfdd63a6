"""WaterBirds: birds of CUB on land or water backgrounds of Places (Sagawa et al. 2020, https://arxiv.org/abs/1911.08731).

The copies of group DRO and of WILDS are read. FedDiverse trains on split 0, tests on split 2 and leaves out split 1.
Its code squashes images to 256 x 256, as here; the crop of 224 x 224 belongs to the run's transforms. Three species
that the owners labelled water birds by mistake keep this label, because all published numbers are for it.
"""

from pathlib import Path

from pydantic import Field

from datasets.core.base import Facts, RawOptions, published
from datasets.core.folders import Tree, find, listing
from datasets.core.images import ImageRow, ListedDataset, ToSquare, two_parts
from datasets.core.lists import read_table
from datasets.core.registry import dataset

METADATA = "metadata.csv"
CLASSES = ("land bird", "water bird")
PLACES = ("land", "water")
PUBLISHED = {"train": ((3498, 184), (56, 1057)), "test": ((2255, 2255), (642, 642))}
"""Images by (class, place), rows classes: group DRO's and WILDS' own descriptions; 11,788 with the validation split."""
EXPECTED = published(PUBLISHED, CLASSES, PLACES)
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
    licence="not stated (made of CUB-200-2011 and Places; WILDS: non-commercial research and education)",
)


class WaterBirdsOptions(RawOptions):
    """Options of WaterBirds; `size` is the side in pixels to which every image is squashed."""

    size: int = Field(default=256, ge=8)


@dataset(
    "waterbirds",
    options=WaterBirdsOptions,
    tree=TREE,
    facts=lambda options: Facts.of(EXPECTED, len(CLASSES), options.size),
)
def waterbirds(options: WaterBirdsOptions, root: Path) -> ListedDataset:
    """WaterBirds: 4,795 + 5,794 colour photographs, land and water birds on land or water; get the files yourself."""
    place = find(TREE, root, (METADATA,))
    path = place.require((METADATA,))[METADATA]
    allowed = {"y": "01", "split": "012", "place": "01"}
    table = read_table(place, path, ("img_filename", *allowed), unique="img_filename", allowed=allowed)
    birds = {row["img_filename"].replace("\\", "/"): row for row in table if row["split"] != "1"}
    # Folder by folder: asking the disk for each file alone is slow.
    species = {name.rpartition("/")[0] for name in birds}
    there = {f"{folder}/{name}".lstrip("/") for folder in species for name in listing(place.folder / folder)}
    place.check_listed(birds, there)
    rows = [
        ImageRow(place.folder / name, row["split"] == "2", int(row["y"]), int(row["place"]))
        for name, row in birds.items()
    ]
    return ListedDataset(
        *two_parts(rows),
        classes=CLASSES,
        decode=ToSquare(options.size),
        attributes=PLACES,
        expected=EXPECTED,
        files=place.files,
    )
