"""Acevedo-20: cells of normal blood, Data in Brief 30:105474 (2020), doi 10.1016/j.dib.2020.105474.

The prefix of a file's name is its subtype. FedSDC's 11,630 training images are 80 % of ten of the thirteen subtypes,
and of no other choice among them; so these ten are the default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from datasets.blood_cells import Archive, BloodOptions, Classes, facts_by_class, split_by_class
from datasets.core.base import DataError, Facts
from datasets.core.folders import Place, Tree, files_in, find_classes, identical_files, readable
from datasets.core.images import ListedDataset
from datasets.core.lists import check_counts
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
    "prefixes": {
        **SUBTYPES,
        "immature granulocyte": ("IG",),
        "neutrophil": ("NEUTROPHIL",),
        "platelet": ("PLATELET",),
    },
}

TREE = Tree(
    title="Acevedo-20",
    depth=2,
    folders=("PBC_dataset_normal_DIB", "PBC_dataset_normal_DIB*", "acevedo*", "snkd93bnjr*"),
    layout="PBC_dataset_normal_DIB/{" + ",".join(PREFIXES) + "}/<PREFIX>_<number>.jpg",
    page="https://data.mendeley.com/datasets/snkd93bnjr/1",
    archive="PBC_dataset_normal_DIB.zip (its size is not published; 17,092 JPEG files)",
)
SUFFIXES = (".jpg", ".jpeg")
ORIGINAL = 300
"""Originals have sides of 359 to 366 pixels; known copies 224."""


class AcevedoOptions(BloodOptions):
    """Options of Acevedo-20.

    Attributes:
        classes: `subtypes`: FedSDC's ten. `folders`: the owner's eight. `prefixes`: all thirteen.
    """

    classes: Literal["subtypes", "folders", "prefixes"] = "subtypes"


def _facts(options: AcevedoOptions) -> Facts:
    return facts_by_class(TREE, PUBLISHED, CLASSES[options.classes], options)


@dataset("acevedo", options=AcevedoOptions, facts=_facts)
def acevedo(options: AcevedoOptions, root: Path) -> ListedDataset:
    """Acevedo-20, cells of normal blood: 11,630 + 2,913 images of 10 subtypes (of 17,092), 224 x 224; by hand."""
    return split_by_class(acevedo_cells(root, options.strict), CLASSES[options.classes], options)


def acevedo_cells(root: Path, strict: bool) -> Archive:
    """Files by prefix (all thirteen), with a note on files with the same bytes."""
    with readable(TREE, root):
        place, folders = find_classes(TREE, root, PREFIXES)
        cells: dict[str, list[Path]] = {prefix: [] for prefix in PUBLISHED}
        for folder, prefixes in PREFIXES.items():
            for path in files_in(folders[folder], SUFFIXES):
                prefix = _prefix(path)
                if prefix not in prefixes:
                    raise _misnamed(place, folder, path)
                cells[prefix].append(path)
        note = _note(identical_files(path for paths in cells.values() for path in paths))
    archive = Archive(place, cells, PUBLISHED, note)
    if strict:
        archive.check_side(
            ORIGINAL, "about 360 x 363", "a resized copy, as there is one of 224 pixels at Kaggle"
        )
        check_counts(place, {prefix: len(paths) for prefix, paths in cells.items()}, PUBLISHED)
    return archive


def _prefix(path: Path) -> str:
    match = re.fullmatch(r"([A-Za-z]+)_\d+", path.stem)
    return match[1].upper() if match else ""


def _misnamed(place: Place, folder: str, path: Path) -> DataError:
    wanted = ", ".join(f"{prefix}_" for prefix in PREFIXES[folder])
    cause = "names carry no BA_/SNE_ prefix: this is a renamed copy, subtypes cannot be read"
    if _prefix(path) in PUBLISHED:
        cause = "a file of another class was put into this folder"
    files = files_in(path.parent, SUFFIXES)
    good = sum(_prefix(one) in PREFIXES[folder] for one in files)
    return place.error(
        f"{path.name} in {folder}/ does not begin with {wanted}.",
        looked_at=path.parent,
        otherwise=cause,
        counts=f"{folder}: {sum(PREFIXES[folder].values()):,} images expected, {len(files):,} found, "
        f"{good:,} of them with such a name",
    )


def _note(groups: list[list[Path]]) -> str:
    """The note on files with the same bytes; they are kept, because the published numbers count them."""
    if not groups:
        return ""
    files = sum(len(group) for group in groups)
    text = f"{len(groups)} groups of files with the same bytes ({files} files), all kept"
    torn = [group for group in groups if len({_prefix(path) for path in group}) > 1]
    if torn:
        named = [" = ".join(f"{path.parent.name}/{path.name}" for path in group) for group in torn]
        text += f"; under two labels: {', '.join(named)}"
    return text
