"""HAM10000: dermoscopic images of seven kinds of pigmented skin lesions (FedSDC's NIID-1, FedDisco).

Tschandl et al., Scientific Data 5:180161, 2018. The test set has 30 images of each class (FedSDC, section 3.1). The
authors' list is not public, so ours is drawn: class by class the first 30 of a permutation of the images sorted by id.
1,956 of 7,470 lesions have several images and may be on both sides; ``by_lesion`` draws whole lesions instead.
"""

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
from pydantic import Field, PositiveInt

from benchmark.errors import wrong
from datasets.core.base import DataError, Expected, Facts, RawOptions, published
from datasets.core.folders import Tree, files_by_stem, find, first_file, folders_like
from datasets.core.images import ImageRow, ListedDataset, ToSquare, two_parts
from datasets.core.lists import read_table
from datasets.core.registry import dataset

CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
COUNTS = dict(zip(CLASSES, (327, 514, 1099, 115, 1113, 6705, 142), strict=True))
SOURCES = ("vidir_molemax", "vidir_modern", "rosendahl", "vienna_dias")

METADATA = ("HAM10000_metadata", "HAM10000_metadata.csv", "HAM10000_metadata.tab", "HAM10000_metadata.txt")
IMAGE_FOLDERS = ("ham10000_images*", "images", "all_images")

TREE = Tree(
    title="HAM10000",
    folders=("HAM10000", "dataverse_files", "skin-cancer-mnist-ham10000", "archive"),
    layout=(
        "HAM10000_metadata[.csv], HAM10000_images_part_1/ISIC_*.jpg, HAM10000_images_part_2/ISIC_*.jpg "
        "(or both parts in one folder) in HAM10000/"
    ),
    page="https://doi.org/10.7910/DVN/DBW86T",
    archive=(
        "HAM10000_images_part1.zip (5,000 images), HAM10000_images_part2.zip (5,015 images) and HAM10000_metadata; "
        "sizes in bytes not known"
    ),
    sides={"": 450},  # originals have 600 x 450
    licence="Creative Commons, non-commercial (version not confirmed)",
)


class Ham10000Options(RawOptions):
    """Options of HAM10000.

    Attributes:
        size: Height and width in pixels, both sides squashed to it; 56 is that of FedSDC's and FedDisco's code.
        held_out: Images of each class in the test set.
        by_lesion: Whether all images of a lesion go to the same side.
        split_seed: Seed of the draw of the test set.
    """

    size: int = Field(default=56, ge=8, le=450)
    held_out: PositiveInt = 30
    by_lesion: bool = False
    split_seed: int = Field(default=0, ge=0)


def _expected(options: Ham10000Options) -> Expected:
    held = np.full(len(CLASSES), options.held_out)
    return published({"train": list(COUNTS.values()) - held, "test": held}, CLASSES)


@dataset(
    "ham10000",
    options=Ham10000Options,
    tree=TREE,
    facts=lambda options: Facts.of(_expected(options), len(CLASSES), options.size, sources=len(SOURCES)),
)
def ham10000(options: Ham10000Options, root: Path) -> ListedDataset:
    """HAM10000 skin lesions (FedSDC NIID-1): 9,805 + 210 dermoscopic images, 7 classes, 4 archives as sources."""
    if options.held_out >= min(COUNTS.values()):
        expected = f"1 to {min(COUNTS.values()) - 1} (less than the smallest class has)"
        raise DataError(wrong("dataset.options.held_out", options.held_out, expected))
    place = find(TREE, root, (*METADATA, *IMAGE_FOLDERS, "ISIC_00*.jpg"))
    folders = folders_like([place.folder], IMAGE_FOLDERS)
    images = files_by_stem([place.folder, *folders, *folders_like(folders)], (".jpg", ".jpeg"))
    path = first_file([place.folder], METADATA)
    if path is None:
        raise place.error(f"got {len(images):,} images and no {METADATA[0]}")
    allowed = {"dx": CLASSES, "dataset": SOURCES}
    table = read_table(place, path, ("lesion_id", "image_id", "dx"), unique="image_id", allowed=allowed)
    table.sort(key=itemgetter("image_id"))
    place.check_listed([row["image_id"] for row in table], images)
    labels = [CLASSES.index(row["dx"]) for row in table]
    test = held_out(labels, [row["lesion_id"] for row in table], options)
    has_sources = all("dataset" in row for row in table)
    rows = [
        ImageRow(
            images[row["image_id"]],
            k in test,
            label,
            source=SOURCES.index(row["dataset"]) if has_sources else None,
        )
        for k, (row, label) in enumerate(zip(table, labels, strict=True))
    ]
    unit = "whole lesions" if options.by_lesion else "images"
    note = f"the test set is drawn here ({unit}, seed {options.split_seed}): the authors' list is not public"
    return ListedDataset(
        *two_parts(rows),
        classes=CLASSES,
        decode=ToSquare(options.size),
        sources=SOURCES if has_sources else (),
        note=note if has_sources else f"{note}; no sources: the metadata have no column `dataset`",
        expected=_expected(options),
        files=place.files,
    )


def held_out(labels: Sequence[int], lesions: Sequence[str], options: Ham10000Options) -> set[int]:
    """Positions of the test images, `options.held_out` of each class, among images with these labels and lesions."""
    generator, number = np.random.default_rng(options.split_seed), options.held_out
    test: set[int] = set()
    for label, name in enumerate(CLASSES):
        in_class = [k for k, other in enumerate(labels) if other == label]
        groups = [[k] for k in in_class]
        if options.by_lesion:
            whole = defaultdict(list)
            for k in in_class:
                whole[lesions[k]].append(k)
            # A lesion of two classes would leave the other class short: it stays in training.
            others = {lesion for lesion, other in zip(lesions, labels, strict=True) if other != label}
            groups = [images for lesion, images in sorted(whole.items()) if lesion not in others]
        drawn: list[int] = []
        for k in generator.permutation(len(groups)):
            if len(drawn) + len(groups[k]) <= number:
                drawn += groups[k]
        if len(drawn) < number:
            raise DataError(
                f"{TREE.title}: the images of class {name} that can be drawn for testing are {len(drawn)} and not "
                f"{number}. Set a lower dataset.options.held_out; with by_lesion another split_seed may do."
            )
        test.update(drawn)
    return test
