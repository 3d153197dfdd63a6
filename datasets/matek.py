"""Matek-19: cells of persons with and without leukaemia, doi 10.7937/tcia.2019.36f5o9ld.

Matek et al., Nature Machine Intelligence 2019, doi 10.1038/s42256-019-0101-9. The owner gives no identifiers of
persons, so a person's cells may lie on both sides of the split.
"""

from collections.abc import Mapping
from pathlib import Path, PurePath

from datasets.blood_cells import Archive, BloodOptions, Classes, facts_by_class, find_cells, split_by_class
from datasets.core.folders import Place, Tree, readable
from datasets.core.images import ListedDataset
from datasets.core.lists import check_listed, read_text
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
ANNOTATIONS = "annotations.dat"
SIDE = 400
"""Pixels of each side of an original."""

TREE = Tree(
    title="Matek-19",
    depth=2,
    folders=("PKG - AML-Cytomorphology_LMU", "PKG - AML-Cytomorphology*", "AML-Cytomorphology*", "matek*"),
    layout="PKG - AML-Cytomorphology_LMU/AML-Cytomorphology/{" + ",".join(CODES) + "}/<CODE>_0001.tiff",
    page="https://www.cancerimagingarchive.net/collection/aml-cytomorphology_lmu/",
    archive="PKG - AML-Cytomorphology_LMU (about 11 GB, by the Aspera client)",
    hints={
        "*.aspx": "the Aspera download is incomplete; start it again, it goes on from there",
        "*.partial": "the Aspera download is incomplete; start it again, it goes on from there",
    },
)


@dataset(
    "matek",
    options=BloodOptions,
    facts=lambda options: facts_by_class(TREE, PUBLISHED, CLASSES, options),
    licence=f"CC BY 3.0, {TREE.page}",
)
def matek(options: BloodOptions, root: Path) -> ListedDataset:
    """Matek-19, cells in leukaemia: 18,365 images of 15 classes, 80 % for training, 224 x 224; by hand."""
    return split_by_class(matek_cells(root, options.strict), CLASSES, options)


def matek_cells(root: Path, strict: bool) -> Archive:
    """Files by code (all fifteen). Every image that annotations.dat names, if it is there, has to be there as well."""
    with readable(TREE, root):
        folders = {code: {code: number} for code, number in PUBLISHED.items()}
        archive = find_cells(TREE, root, folders, (".tif", ".tiff"))
        annotated = _annotated(archive.place) if (archive.place.folder / ANNOTATIONS).is_file() else {}
    there = {f"{code}/{path.stem}" for code, paths in archive.cells.items() for path in paths}
    cause = "the Aspera download is incomplete; start it again, it goes on from there"
    check_listed(archive.place, annotated, there, f"of {ANNOTATIONS} have no file", cause)
    if strict:
        archive.check(SIDE, f"{SIDE} x {SIDE}")
    return archive


def _annotated(place: Place) -> dict[str, str]:
    """Code of each image of annotations.dat, by folder and name without suffix: a copy may hold .tif for .tiff."""
    path = place.folder / ANNOTATIONS
    codes = {}
    for line in read_text(place, path).splitlines():
        fields = line.split()  # path, label, two re-annotations or nan
        name = PurePath(*fields[:1])
        if fields and (len(fields) != 4 or name.parent.name != fields[1]):
            expected = (
                "in each line the path of an image, the code of its folder, and two further codes or nan"
            )
            raise place.bad_file(path, f"has the line {line.strip()!r}", expected)
        if fields:
            codes[f"{fields[1]}/{name.stem}"] = fields[1]
    return codes
