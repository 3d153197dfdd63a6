"""Matek-19: cells of persons with and without leukaemia, doi 10.7937/tcia.2019.36f5o9ld.

Matek et al., Nature Machine Intelligence 2019, doi 10.1038/s42256-019-0101-9. The owner gives no identifiers of
persons, so a person's cells may lie on both sides of the split.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from datasets.blood_cells import Archive, BloodOptions, Classes, facts_by_class, split_by_class
from datasets.core.base import Facts
from datasets.core.folders import Place, Tree, files_in, find_classes, readable
from datasets.core.images import ListedDataset
from datasets.core.lists import check_counts, counts_text, read_text
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
SUFFIXES = (".tif", ".tiff")
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
        "*AML-Cytomorphology*.sums": "a list of checksums only: fetch the images with the Aspera client",
        "*.aspx": "the Aspera download is incomplete; start it again, it goes on from there",
        "*.partial": "the Aspera download is incomplete; start it again, it goes on from there",
    },
)
CUT_OFF = "the Aspera download is incomplete (start it again, it goes on), or a mirror that lacks files"


def _facts(options: BloodOptions) -> Facts:
    return facts_by_class(TREE, PUBLISHED, CLASSES, options)


@dataset("matek", options=BloodOptions, facts=_facts)
def matek(options: BloodOptions, root: Path) -> ListedDataset:
    """Matek-19, cells in leukaemia: 18,365 images of 15 classes, 80 % for training, 224 x 224; by hand."""
    return split_by_class(matek_cells(root, options.strict), CLASSES, options)


def matek_cells(root: Path, strict: bool) -> Archive:
    """Files by code (all fifteen). Every image that annotations.dat names, if it is there, has to be there as well."""
    with readable(TREE, root):
        place, folders = find_classes(TREE, root, CODES)
        archive = Archive(place, {code: files_in(folders[code], SUFFIXES) for code in CODES}, PUBLISHED)
    archive.check_once()
    for code, paths in archive.cells.items():
        odd = [path.name for path in paths if not re.fullmatch(rf"{code}_\d+", path.stem)]
        if odd:
            raise place.error(
                f"{odd[0]} in {code}/ is not called {code}_<number>.",
                looked_at=folders[code],
                otherwise="a file of another class was put into this folder, or the files were renamed",
                counts=f"{code}: {PUBLISHED[code]:,} images expected, {len(paths):,} found, "
                f"{len(odd):,} of them with another name",
            )
    if strict:
        counts = {code: len(paths) for code, paths in archive.cells.items()}
        check_counts(place, counts, PUBLISHED, _cause(counts))
        archive.check_side(SIDE, f"{SIDE} x {SIDE}")
    _check_annotations(place, archive.cells)
    return archive


def _cause(counts: Mapping[str, int]) -> str:
    if counts["MYB"] == PUBLISHED["MYO"] and counts["MYO"] == PUBLISHED["MYB"]:
        return "MYB (myelocyte) and MYO (myeloblast) are swapped"
    return CUT_OFF if any(counts[code] < number for code, number in PUBLISHED.items()) else ""


def _check_annotations(place: Place, cells: Mapping[str, Sequence[Path]]) -> None:
    # Blank-separated, no header: path, label, two re-annotations or nan.
    path = place.folder / ANNOTATIONS
    if not path.is_file():
        return
    there = {f"{code}/{one.stem}" for code, paths in cells.items() for one in paths}
    annotated: set[str] = set()
    for number, line in enumerate(read_text(place, path).splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        # A copy of the table may hold .tif for .tiff: only folder and name are compared.
        name = Path(fields[0]).with_suffix("").as_posix()
        if len(fields) != 4 or "/" not in name or name.split("/")[-2] != fields[1]:
            raise place.bad_file(
                path,
                f"has {line.strip()!r} in line {number}",
                "with the path of an image, the code of its folder, and two further codes or nan in each line",
                "the file was edited, or images were moved to other folders",
                f"4 columns expected, {len(fields)} found",
            )
        annotated.add("/".join(name.split("/")[-2:]))
    missing = sorted(annotated - there)
    if missing:
        expected, found = (
            Counter(name.partition("/")[0] for name in names) for names in (annotated, annotated & there)
        )
        raise place.error(
            f"{len(missing):,} of {len(annotated):,} images of {ANNOTATIONS} are missing, first {missing[0]}.",
            otherwise=CUT_OFF,
            counts=counts_text(expected, found),
        )
