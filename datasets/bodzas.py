"""Bodzas-23: high-resolution images of white blood cells, Scientific Data 10:466, doi 10.1038/s41597-023-02378-7.

The names of the archive and of its top folder are not published: folders whose names contain Bodzas, white blood cells
or the archive's number are searched. Files are called 0.bmp, 1.bmp, ... in every class folder.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from datasets.blood_cells import BloodOptions, Cells, Classes, facts_by_class, split_by_class
from datasets.core.folders import Tree, files_by_stem, find
from datasets.core.images import ListedDataset
from datasets.core.registry import dataset

FOLDERS: Mapping[str, tuple[str, int]] = {
    "Basophile": ("basophil", 1023),
    "Eosinophile": ("eosinophil", 1017),
    "Lymphoblast": ("lymphoblast", 2557),
    "Lymphocyte": ("lymphocyte", 3046),
    "Monocyte": ("monocyte", 2040),
    "Myeloblast": ("myeloblast", 2534),
    "Neutrophile Band": ("band neutrophil", 99),
    "Neutrophile Segment": ("segmented neutrophil", 3201),
    "Normoblast": ("erythroblast", 510),
}
"""Name and published number of images by folder, in the order of the labels; 16,027 in all."""

CLASSES: Classes = {name: (folder,) for folder, (name, _) in FOLDERS.items()}
PUBLISHED = {folder: count for folder, (_, count) in FOLDERS.items()}


def spelling(name: str) -> str:
    """A folder's name without what differs between copies: case, separators, and -phile for -phil."""
    return re.sub(r"[\s_-]+", " ", name.strip()).casefold().replace("phile", "phil")


TREE = Tree(
    title="Bodzas-23",
    folders=("Bodzas-23", "*bodzas*", "*22680517*", "*6612970*", "*white*blood*cell*", "wbc*"),
    layout="Bodzas-23/{" + ",".join(FOLDERS) + "}/<number>.bmp (or .png)",
    page="https://doi.org/10.6084/m9.figshare.22680517",
    archive="one zip of about 45 GB",
    same=spelling,
    sides={"": 1200},
    licence="not confirmed (CC0 in one source, CC BY 4.0 in another)",
)


@dataset(
    "bodzas",
    options=BloodOptions,
    tree=TREE,
    facts=lambda options: facts_by_class(PUBLISHED, CLASSES, options),
)
def bodzas(options: BloodOptions, root: Path) -> ListedDataset:
    """Bodzas-23, blood cells in high resolution: 16,027 images of 9 classes, 80 % for training, 224 x 224; by hand."""
    return split_by_class(bodzas_cells(root), PUBLISHED, CLASSES, options)


def bodzas_cells(root: Path) -> Cells:
    """Files by class folder (all nine, in the owner's spelling), in the order of their numbers.

    Images of whole fields lie in other folders or have other names than a number: both are ignored.
    """
    place = find(TREE, root, FOLDERS)
    cells = {}
    for name, folder in place.require(FOLDERS).items():
        files = files_by_stem([folder], (".bmp", ".png"))
        cells[name] = [files[stem] for stem in sorted(filter(str.isdecimal, files), key=int)]
    return cells
