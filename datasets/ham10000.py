"""HAM10000: dermoscopic images of seven kinds of pigmented skin lesions (FedSDC's NIID-1, FedDisco).

Tschandl et al., Scientific Data 5:180161, 2018. The test set has 30 images of each class (FedSDC, section 3.1). The
authors' list is not public, so ours is drawn: class by class the first 30 of a permutation of the images sorted by id.
1,956 of 7,470 lesions have several images and may be on both sides; ``by_lesion`` draws whole lesions instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
from pydantic import Field, PositiveInt

from benchmark.errors import wrong
from datasets.core.base import DataError, Facts, Int64Array, RawOptions, published
from datasets.core.folders import (
    STRICT,
    Place,
    Tree,
    files_by_stem,
    find,
    first_file,
    first_names,
    listing,
    readable,
    with_nested,
)
from datasets.core.images import Files, ListedDataset, ToSquare, check_pixels
from datasets.core.lists import check_not_empty, counts_text, read_table
from datasets.core.registry import dataset

CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
COUNTS = dict(zip(CLASSES, (327, 514, 1099, 115, 1113, 6705, 142), strict=True))
SOURCES = ("vidir_molemax", "vidir_modern", "rosendahl", "vienna_dias")
SOURCE_COUNTS = dict(zip(SOURCES, (3954, 3363, 2259, 439), strict=True))
PIXELS = (600, 450)

METADATA = ("HAM10000_metadata", "HAM10000_metadata.csv", "HAM10000_metadata.tab", "HAM10000_metadata.txt")
IMAGE_FOLDERS = ("ham10000_images*", "images", "all_images")
SUFFIXES = (".jpg", ".jpeg")

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
    hints={
        "hmnist_*.csv": "tables of shrunken pixels from a copy; the JPEG files are needed",
        "isic_2019_*": "this is ISIC2019, not HAM10000",
        "isic2018_*": "the challenge of 2018; its training images are HAM10000's, but its metadata are other files",
    },
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
    return TREE.facts(train, test, len(CLASSES), options.size, sources=len(SOURCES))


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
        own_sources = None if sources is None else sources[chosen]
        return Files([paths[k] for k in chosen], labels[chosen], sources=own_sources)

    drawn = "whole lesions" if options.by_lesion else "images"
    note = f"the test set is drawn here ({drawn}, seed {options.split_seed}): the authors' list is not public"
    counts = np.array(list(COUNTS.values()))
    held = np.full_like(counts, options.held_out)
    return ListedDataset(
        train=part(np.flatnonzero(~test)),
        test=part(np.flatnonzero(test)),
        decode=ToSquare(options.size),
        places=(place,),
        classes=CLASSES,
        sources=SOURCES if known else (),
        note=note if known else f"{note}; no sources: the metadata have no column `dataset`",
        expected=published({"train": counts - held, "test": held}, CLASSES) if options.strict else (),
    )


def _check_enough(rows: Sequence[Row], per_class: int, place: Place) -> None:
    """Refuse a test set that leaves a class without training images."""
    smallest = min(COUNTS.values())
    if per_class >= smallest:
        expected = (
            f"1 to {smallest - 1} (the smallest class has {smallest} images, one is needed for training)"
        )
        where = "in conf/dataset/ham10000.yaml or with dataset.options.held_out"
        raise DataError(f"{TREE.title}: {wrong('held_out', per_class, expected, where=where)}")
    found = Counter(CLASSES[row.label] for row in rows)
    check_not_empty(
        place,
        {name: found[name] for name in CLASSES},
        least=per_class + 1,
        otherwise=f"a cut-down copy: {per_class} images of each class are held out for the test set and one is needed "
        "for training; for such a copy lower dataset.options.held_out",
    )


def held_out(rows: Sequence[Row], per_class: int, by_lesion: bool, seed: int) -> list[int]:
    """Positions of the test images among ``rows``, which are sorted by image."""
    generator = np.random.default_rng(seed)
    chosen: list[int] = []
    for label in range(len(CLASSES)):
        own = [k for k, row in enumerate(rows) if row.label == label]
        if by_lesion:
            chosen += _whole_lesions(rows, own, per_class, generator, seed)
        else:
            chosen += [own[k] for k in generator.permutation(len(own))[:per_class]]
    return sorted(chosen)


def _whole_lesions(
    rows: Sequence[Row], own: list[int], number: int, generator: np.random.Generator, seed: int
) -> list[int]:
    """`number` of the images `own` of one class that make up whole lesions."""
    label = rows[own[0]].label if own else 0
    # A lesion of two classes would leave the other class short: it stays in training.
    mixed = {row.lesion for row in rows if row.label != label}
    lesions: dict[str, list[int]] = {}
    for k in own:
        if rows[k].lesion not in mixed:
            lesions.setdefault(rows[k].lesion, []).append(k)
    whole = sorted(lesions)
    drawn: list[int] = []
    for k in generator.permutation(len(whole)):
        if len(drawn) + len(lesions[whole[k]]) <= number:
            drawn += lesions[whole[k]]
    if len(drawn) < number:
        raise DataError(
            f"{TREE.title}: by_lesion: got true; with split_seed {seed} whole lesions of class {CLASSES[label]} add up "
            f"to {len(drawn)} images and not to {number}. Set by_lesion to false, or another held_out or split_seed, "
            "in conf/dataset/ham10000.yaml."
        )
    return drawn


# The files -----------------------------------------------------------------------------------------------------------


def _rows(place: Place, strict: bool) -> list[Row]:
    path = first_file([place.folder], METADATA)
    if path is None:
        number = len(files_by_stem(place, _image_folders(place.folder), SUFFIXES))
        raise place.error(
            "there is no HAM10000_metadata.",
            counts=f"1 file of metadata and 10,015 images expected, 0 and {number:,} found",
        )
    cause = "is this the metadata of ISIC2019, or a table that a user made?"
    table = read_table(place, path, ("lesion_id", "image_id", "dx"), cause)
    for column, allowed in (("dx", CLASSES), ("dataset", SOURCES)):
        unknown = sorted({row[column] for row in table if column in row} - set(allowed))
        if unknown:
            raise place.bad_file(
                path,
                f"has the unknown {column} {first_names(unknown)}",
                f"{column} out of {', '.join(allowed)}",
                "another data set's metadata, or names that were changed",
                counts_text(COUNTS, Counter(row["dx"] for row in table)),
            )
    rows = [
        Row(row["image_id"], row["lesion_id"], CLASSES.index(row["dx"]), row.get("dataset", ""))
        for row in table
    ]
    rows.sort(key=lambda row: row.image)
    _check_counts(rows, path, place, strict)
    return rows


def _check_counts(rows: list[Row], path: Path, place: Place, strict: bool) -> None:
    twice = sorted(name for name, number in Counter(row.image for row in rows).items() if number > 1)
    found = Counter(CLASSES[row.label] for row in rows)
    by_source = Counter(row.source for row in rows if row.source)
    differ = strict and (found != COUNTS or (by_source and by_source != SOURCE_COUNTS))
    if not twice and not differ:
        return
    sources = f"; {counts_text(SOURCE_COUNTS, by_source)}" if by_source else ""
    raise place.bad_file(
        path,
        f"lists {first_names(twice)} twice" if twice else "does not have the published counts",
        "10,015 rows, one for each image",
        "a table put together from several" if twice else f"another version, or a cut-down copy; {STRICT}",
        counts_text(COUNTS, found) + sources,
    )


def _image_folders(folder: Path) -> list[Path]:
    """Where images may lie: the folder itself, and its folders of one or of both parts."""
    names = [name.rstrip("/") for name in listing(folder) if name.endswith("/")]
    inner = [name for name in names if any(fnmatch(name.lower(), mark) for mark in IMAGE_FOLDERS)]
    return [folder, *with_nested(folder / name for name in inner)]


def _paths(rows: list[Row], place: Place) -> list[Path]:
    images = files_by_stem(place, _image_folders(place.folder), SUFFIXES)
    missing = [row for row in rows if row.image not in images]
    if not missing:
        return [images[row.image] for row in rows]
    listed = Counter(CLASSES[row.label] for row in rows)
    there = listed - Counter(CLASSES[row.label] for row in missing)
    parts = [name for name in listing(place.folder) if "part" in name.lower() and name.endswith("/")]
    cause = "a cut-down or renamed copy, or an archive that was not unpacked to its end" if images else ""
    for part, number in (("1", "5,000"), ("2", "5,015")):
        if parts and not any(name.rstrip("/").endswith(part) for name in parts):
            zipped = f"HAM10000_images_part{part}.zip ({number} images)"
            cause = f"{zipped} or its folder HAM10000_images_part_{part} is missing"
    raise place.error(
        f"the metadata list {len(rows):,} images, {len(missing):,} of them have no file: "
        f"{first_names([row.image for row in missing])}.",
        cause=cause,
        counts=counts_text({name: listed[name] for name in CLASSES}, there),
    )
