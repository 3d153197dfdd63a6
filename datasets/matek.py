"""Matek-19: cells of persons with and without leukaemia, doi 10.7937/tcia.2019.36f5o9ld.

Matek et al., Nature Machine Intelligence 2019, doi 10.1038/s42256-019-0101-9. The owner gives no identifiers of
persons, so a person's cells may lie on both sides of the split.
"""

from collections.abc import Mapping
from pathlib import Path

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

CODES: Mapping[str, tuple[str, int]] = {
    "BAS": ("basophil", 79),
    "EBO": ("erythroblast", 78),
    "EOS": ("eosinophil", 424),
    "KSC": ("smudge cell", 15),
    "LYA": ("atypical lymphocyte", 11),
    "LYT": ("lymphocyte", 3937),
    "MMZ": ("metamyelocyte", 15),
    "MOB": ("monoblast", 26),
    "MON": ("monocyte", 1789),
    "MYB": ("myelocyte", 42),
    "MYO": ("myeloblast", 3268),
    "NGB": ("band neutrophil", 109),
    "NGS": ("segmented neutrophil", 8484),
    "PMB": ("bilobed promyelocyte", 18),
    "PMO": ("promyelocyte", 70),
}
"""Name and published number of images by code, in the order of the labels; 18,365 in all."""

CLASSES: Classes = {name: (code,) for code, (name, _) in CODES.items()}
PUBLISHED = {code: count for code, (_, count) in CODES.items()}

TREE = Tree(
    title="Matek-19",
    folders=("PKG - AML-Cytomorphology_LMU", "PKG - AML-Cytomorphology*", "AML-Cytomorphology*", "matek*"),
    layout="PKG - AML-Cytomorphology_LMU/AML-Cytomorphology/{" + ",".join(CODES) + "}/<CODE>_0001.tiff",
    page="https://www.cancerimagingarchive.net/collection/aml-cytomorphology_lmu/",
    archive="PKG - AML-Cytomorphology_LMU (about 11 GB, by the Aspera client)",
    sides={"": 400},
    licence="CC BY 3.0",
)


@dataset(
    "matek",
    options=BloodOptions,
    tree=TREE,
    facts=lambda options: facts_by_class(PUBLISHED, CLASSES, options),
)
def matek(options: BloodOptions, root: Path) -> ListedDataset:
    """Matek-19, cells in leukaemia: 18,365 images of 15 classes, 80 % for training, 224 x 224; by hand."""
    return split_by_class(matek_cells(root), PUBLISHED, CLASSES, options)


def matek_cells(root: Path) -> Cells:
    """Files by code (all fifteen)."""
    return cells_by_code(TREE, root, {code: (code,) for code in CODES}, (".tif", ".tiff"))
