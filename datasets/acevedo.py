"""Acevedo-20: cells of normal blood, Data in Brief 30:105474 (2020), doi 10.1016/j.dib.2020.105474.

The prefix of a file's name is its subtype. FedSDC's 11,630 training images are 80 % of ten of the thirteen subtypes,
and of no other choice among them; so these ten are the default. The archive has 17 groups of files with the same bytes,
one of them under two labels (EO_225902 and BNE_191112): all are kept, because the published numbers count them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from datasets.blood_cells import (
    BloodOptions,
    Cells,
    Classes,
    cells_by_code,
    facts_by_class,
    split_by_class,
)
from datasets.core.folders import Tree
from datasets.core.images import ListedDataset
from datasets.core.registry import dataset

PREFIXES: Mapping[str, Mapping[str, int]] = {
    "basophil": {"BA": 1218},
    "eosinophil": {"EO": 3117},
    "erythroblast": {"ERB": 1551},
    "ig": {"MY": 1137, "MMY": 1015, "PMY": 592, "IG": 151},
    "lymphocyte": {"LY": 1214},
    "monocyte": {"MO": 1420},
    "neutrophil": {"SNE": 1646, "BNE": 1633, "NEUTROPHIL": 50},
    "platelet": {"PLATELET": 2348},
}
"""Published number of images by folder and prefix; 17,092 in all."""

PUBLISHED = {prefix: count for folder in PREFIXES.values() for prefix, count in folder.items()}

SUBTYPES: Classes = {
    "basophil": ("BA",),
    "eosinophil": ("EO",),
    "erythroblast": ("ERB",),
    "lymphocyte": ("LY",),
    "monocyte": ("MO",),
    "metamyelocyte": ("MMY",),
    "myelocyte": ("MY",),
    "promyelocyte": ("PMY",),
    "segmented neutrophil": ("SNE",),
    "band neutrophil": ("BNE",),
}
"""The ten subtypes of FedSDC, IID; their order is not published."""

CLASSES: Mapping[str, Classes] = {
    "subtypes": SUBTYPES,
    "folders": {folder: tuple(prefixes) for folder, prefixes in PREFIXES.items()},
}

TREE = Tree(
    title="Acevedo-20",
    folders=("PBC_dataset_normal_DIB", "PBC_dataset_normal_DIB*", "acevedo*", "snkd93bnjr*"),
    layout="PBC_dataset_normal_DIB/{" + ",".join(PREFIXES) + "}/<PREFIX>_<number>.jpg",
    page="https://data.mendeley.com/datasets/snkd93bnjr/1",
    archive="PBC_dataset_normal_DIB.zip (its size is not published; 17,092 JPEG files)",
    sides={"": 300},  # originals have 359 to 366 pixels; there is a copy of 224 pixels at Kaggle
    licence="CC BY 4.0",
)


class AcevedoOptions(BloodOptions):
    """Options of Acevedo-20.

    Attributes:
        classes: `subtypes`: FedSDC's ten. `folders`: the owner's eight.
    """

    classes: Literal["subtypes", "folders"] = "subtypes"


@dataset(
    "acevedo",
    options=AcevedoOptions,
    tree=TREE,
    facts=lambda options: facts_by_class(PUBLISHED, CLASSES[options.classes], options),
)
def acevedo(options: AcevedoOptions, root: Path) -> ListedDataset:
    """Acevedo-20, cells of normal blood: 11,630 + 2,913 images of 10 subtypes (of 17,092), 224 x 224; by hand."""
    return split_by_class(acevedo_cells(root), PUBLISHED, CLASSES[options.classes], options)


def acevedo_cells(root: Path) -> Cells:
    """Files by prefix (all thirteen)."""
    return cells_by_code(TREE, root, CLASSES["folders"], (".jpg", ".jpeg"))
