"""HAM10000: dermoscopic images of seven kinds of pigmented skin lesions (FedSDC's NIID-1, FedDisco).

Tschandl et al., Scientific Data 5:180161, 2018. The numbers are those of the notes on the data sets, section 8.

The test set holds 30 images of each class (FedSDC, section 3.1), the training set the other 9,805. The authors' list is
not public, so ours is drawn: images sorted by id; class by class in the order of `CLASSES`, the first 30 of a
permutation by ``numpy.random.default_rng(split_seed)``. 1,956 of 7,470 lesions have several images, so that a draw of
images, as in the paper, puts some lesions on both sides; ``by_lesion`` draws whole lesions instead, in permuted order,
each that still fits into the 30, which leaves both sizes as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
from pydantic import Field, PositiveInt

from datasets.core.base import DataError, Facts, Int64Array, published
from datasets.core.download import RawOptions, listing, readable, some
from datasets.core.folders import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    ImageTree,
    Place,
    check_not_empty,
    counts_text,
    files_by_stem,
    find,
    first_file,
    read_table,
    with_nested,
)
from datasets.core.images import Files, ListedDataset, ToSquare, check_pixels
from datasets.core.registry import dataset

CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
COUNTS = dict(zip(CLASSES, (327, 514, 1099, 115, 1113, 6705, 142), strict=True))
SOURCES = ("vidir_molemax", "vidir_modern", "rosendahl", "vienna_dias")
SOURCE_COUNTS = dict(zip(SOURCES, (3954, 3363, 2259, 439), strict=True))
PIXELS = (600, 450)

METADATA = ("HAM10000_metadata", "HAM10000_metadata.csv", "HAM10000_metadata.tab", "HAM10000_metadata.txt")
COLUMNS = ("lesion_id", "image_id", "dx")
IMAGE_FOLDERS = ("ham10000_images*", "images", "all_images")
SUFFIXES = (".jpg", ".jpeg")
PART_2 = "HAM10000_images_part2.zip (5,015 images) or its folder HAM10000_images_part_2 is missing"

TREE = ImageTree(
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
    hints={
        "ham10000_images*.zip": "the archive is not unpacked (unzip)",
        "dataverse_files.zip": "the archive is not unpacked (unzip)",
        "hmnist_*.csv": "tables of shrunken pixels from a copy; the JPEG files are needed",
        "isic_2019_*": "this is ISIC2019, not HAM10000",
        "isic2018_*": "the challenge of 2018; its training images are HAM10000's, but its metadata are other files",
    },
)


class Ham10000Options(RawOptions):
    """Options of HAM10000.

    Attributes:
        size: Height and width in pixels, both sides squashed to it. FedSDC's and FedDisco's public code use 56; the
            paper does not state it.
        held_out: Images of each class that make the test set.
        by_lesion: Whether all images of a lesion go to the same side.
        split_seed: Seed of the draw of the test set.
    """

    size: int = Field(default=56, ge=8, le=450)
    held_out: PositiveInt = 30
    by_lesion: bool = False
    split_seed: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class Row:
    """One line of the metadata; ``source`` is empty in copies without the column `dataset`."""

    image: str
    lesion: str
    label: int
    source: str


def _facts(options: Ham10000Options) -> Facts:
    test = options.held_out * len(CLASSES)
    train = sum(COUNTS.values()) - test
    return Facts(train, test, len(CLASSES), 3, options.size, len(SOURCES), TREE.archive, TREE.page)


@dataset("ham10000", options=Ham10000Options, facts=_facts)
def ham10000(options: Ham10000Options, root: Path) -> ListedDataset:
    """HAM10000 skin lesions (FedSDC NIID-1): 9,805 + 210 dermoscopic images, 7 classes, 4 archives as sources."""
    with readable(TREE, root):
        place = find(TREE, root, (*METADATA, *IMAGE_FOLDERS, "ISIC_00*.jpg"))
        rows = _rows(place, options.strict)
        paths = _paths(rows, place)
    _check_enough(rows, options.held_out, place)
    if options.strict:
        all_there = f"{len(paths):,} images of 600 x 450 pixels expected and found"
        check_pixels(place, paths[:5], lambda *sides: sides == PIXELS, "600 x 450", all_there)
    labels = np.array([row.label for row in rows], dtype=np.int64)
    known = all(row.source for row in rows)
    sources = np.array([SOURCES.index(row.source) for row in rows], dtype=np.int64) if known else None
    test = np.zeros(len(rows), dtype=np.bool_)
    test[held_out(rows, options.held_out, options.by_lesion, options.split_seed)] = True

    def part(chosen: Int64Array) -> Files:
        return Files(
            [paths[k] for k in chosen], labels[chosen], sources=None if sources is None else sources[chosen]
        )

    drawn = "whole lesions" if options.by_lesion else "images"
    note = f"the test set is drawn here ({drawn}, seed {options.split_seed}): the authors' list is not public"
    counts = np.array(list(COUNTS.values()))
    held = np.full_like(counts, options.held_out)
    return ListedDataset(
        train=part(np.flatnonzero(~test)),
        test=part(np.flatnonzero(test)),
        decode=ToSquare(options.size, "squash"),
        shape=(3, options.size, options.size),
        places=(place,),
        classes=CLASSES,
        sources=SOURCES if known else (),
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        note=note if known else f"{note}; no sources: the metadata have no column `dataset`",
        expected=published({"train": counts - held, "test": held}, CLASSES) if options.strict else (),
    )


def _check_enough(rows: Sequence[Row], per_class: int, place: Place) -> None:
    """Refuse rows of which a class would have no image left for training.

    Raises:
        DataError: In six parts where the published data would have enough, as a wrong option where not even they do.
    """
    smallest = min(COUNTS.values())
    if per_class >= smallest:
        raise DataError(
            f"{TREE.title}: held_out came as {per_class}; the smallest class has {smallest} images and one is needed "
            f"for training. Allowed: 1 to {smallest - 1}. Set it under `options:` in conf/dataset/ham10000.yaml, or as "
            f"dataset.options.held_out={smallest - 1}"
        )
    found = Counter(CLASSES[row.label] for row in rows)
    check_not_empty(
        place,
        {name: found[name] for name in CLASSES},
        least=per_class + 1,
        otherwise=f"a cut-down copy: {per_class} images of each class are held out for the test set and one is needed "
        "for training; for such a copy lower dataset.options.held_out",
    )


def held_out(rows: Sequence[Row], per_class: int, by_lesion: bool, seed: int) -> list[int]:
    """Positions of the test images, as drawn by the rule at the top of this file. ``rows`` are sorted by image.

    Raises:
        DataError: (``by_lesion``) The lesions of a class do not add up to ``per_class`` images.
    """
    generator = np.random.default_rng(seed)
    classes_of: dict[str, set[int]] = {}
    for row in rows:
        classes_of.setdefault(row.lesion, set()).add(row.label)
    chosen: list[int] = []
    for label, name in enumerate(CLASSES):
        own = [k for k, row in enumerate(rows) if row.label == label]
        if not by_lesion:
            chosen += [own[k] for k in generator.permutation(len(own))[:per_class]]
            continue
        lesions: dict[str, list[int]] = {}
        for k in own:
            # A lesion of two classes would leave the other class short: it stays in training.
            if len(classes_of[rows[k].lesion]) == 1:
                lesions.setdefault(rows[k].lesion, []).append(k)
        whole = sorted(lesions)
        drawn: list[int] = []
        for k in generator.permutation(len(whole)):
            if len(drawn) + len(lesions[whole[k]]) <= per_class:
                drawn += lesions[whole[k]]
        if len(drawn) < per_class:
            raise DataError(
                f"{TREE.title}: by_lesion came as true; with split_seed {seed} whole lesions of class {name} add up to "
                f"{len(drawn)} images and not to {per_class}. Set by_lesion to false, or another held_out or "
                "split_seed, under `options:` in conf/dataset/ham10000.yaml"
            )
        chosen += drawn
    return sorted(chosen)


# The files -----------------------------------------------------------------------------------------------------------


def _rows(place: Place, strict: bool) -> list[Row]:
    """The metadata, sorted by image."""
    path = first_file([place.folder], METADATA)
    if path is None:
        number = len(files_by_stem(place, _image_folders(place.folder), SUFFIXES))
        raise place.error(
            "there is no HAM10000_metadata.",
            looked_at=place.folder / METADATA[0],
            counts=f"1 file of metadata and 10,015 images expected, 0 and {number:,} found",
        )
    cause = "is this the metadata of ISIC2019, or a table that somebody made?"
    table = read_table(place, path, COLUMNS, cause)
    allowed = {"dx": CLASSES, "dataset": SOURCES}
    for column, values in allowed.items():
        strange = sorted({row[column] for row in table if column in row} - set(values))
        if strange:
            raise place.error(
                f"{path.name} has the unknown {column} {some(strange)}.",
                looked_at=path,
                expected=f"{column} out of {', '.join(values)}",
                found=some(strange),
                cause="another data set's metadata, or names that somebody changed",
                counts=counts_text(COUNTS, Counter(row["dx"] for row in table)),
            )
    rows = sorted(
        (
            Row(row["image_id"], row["lesion_id"], CLASSES.index(row["dx"]), row.get("dataset", ""))
            for row in table
        ),
        key=lambda row: row.image,
    )
    _check_counts(rows, path, place, strict)
    return rows


def _check_counts(rows: list[Row], path: Path, place: Place, strict: bool) -> None:
    twice = sorted(name for name, number in Counter(row.image for row in rows).items() if number > 1)
    found = Counter(CLASSES[row.label] for row in rows)
    by_source = Counter(row.source for row in rows if row.source)
    wrong = strict and (found != COUNTS or (by_source and by_source != SOURCE_COUNTS))
    if not twice and not wrong:
        return
    sources = f"; {counts_text(SOURCE_COUNTS, by_source)}" if by_source else ""
    raise place.error(
        f"{path.name} lists {some(twice)} twice."
        if twice
        else f"{path.name} does not have the published counts.",
        looked_at=path,
        expected=f"{path.name} with 10,015 rows, one for each image",
        found=f"{len(rows):,} rows",
        cause="a table that somebody put together"
        if twice
        else "another version, or a cut-down copy: that needs `options: {strict: false}` in conf/dataset/*.yaml",
        counts=counts_text(COUNTS, found) + sources,
    )


def _image_folders(folder: Path) -> list[Path]:
    """Where images may lie: the folder itself, and its folders of one or of both parts."""
    names = [name.rstrip("/") for name in listing(folder) if name.endswith("/")]
    inner = [name for name in names if any(fnmatch(name.lower(), mark) for mark in IMAGE_FOLDERS)]
    return [folder, *with_nested(folder / name for name in inner)]


def _paths(rows: list[Row], place: Place) -> list[Path]:
    """The file of each row."""
    images = files_by_stem(place, _image_folders(place.folder), SUFFIXES)
    missing = [row for row in rows if row.image not in images]
    if not missing:
        return [images[row.image] for row in rows]
    listed = Counter(CLASSES[row.label] for row in rows)
    there = listed - Counter(CLASSES[row.label] for row in missing)
    parts = [name for name in listing(place.folder) if "part" in name.lower() and name.endswith("/")]
    cause = ""
    if parts and not any(name.rstrip("/").endswith("2") for name in parts):
        cause = PART_2
    elif parts and not any(name.rstrip("/").endswith("1") for name in parts):
        cause = PART_2.replace("part2", "part1").replace("part_2", "part_1").replace("5,015", "5,000")
    elif images:
        cause = "a cut-down or renamed copy, or an archive that was not unpacked to its end"
    raise place.error(
        f"the metadata list {len(rows):,} images, found are {len(rows) - len(missing):,} of them; "
        f"missing are {some([row.image for row in missing])}.",
        cause=cause,
        counts=counts_text({name: listed[name] for name in CLASSES}, there),
    )
