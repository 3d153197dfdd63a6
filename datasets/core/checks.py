"""Comparisons of the listed images with their files, and of their numbers and sizes with the published ones."""

import os
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import product
from pathlib import Path

import numpy as np

from datasets.core.base import PARTS, Built, Files
from datasets.core.folders import STRICT, Place, Tree, first_names
from datasets.core.images import BadImage, ListedDataset, open_rgb


def check_complete(tree: Tree, root: Path, listed: ListedDataset) -> None:
    """Refuse a list without a training image of each class, or without any image for testing.

    Of a data set with attributes, each class needs images of each attribute in both parts.
    """
    cells = product(PARTS, listed.classes, listed.attributes) if listed.attributes else ()
    needed = [*cells] or [*(("train", name) for name in listed.classes), ("test",)]
    empty = [" ".join(cell) for cell in needed if not listed.count(*cell)]
    if empty:
        raise _place(tree, root, listed).error(f"there are no images of {first_names(empty)}.")


def check_published(tree: Tree, root: Path, built: Built) -> None:
    """Refuse other numbers of images than the published ones, and a resized copy."""
    expected = {" ".join(filter(None, cell)): number for *cell, number in built.expected}
    there = {" ".join(filter(None, cell)): built.count(*cell) for *cell, _ in built.expected}
    check_counts(_place(tree, root, built), there, expected)
    if isinstance(built, ListedDataset):
        for source, side in tree.sides.items():
            _check_sides(Place(tree, root, root), built, source, side)


def _check_sides(place: Place, listed: ListedDataset, source: str, side: int) -> None:
    """Refuse if the first training image of a class, of this source, has a side of fewer than `side` pixels."""
    rows = np.flatnonzero(listed.rows("train", group=source))
    for index in rows[np.unique(listed.train.labels[rows], return_index=True)[1]]:
        path = listed.train.paths[index]
        try:
            width, height = open_rgb(path).size
        except BadImage as bad:
            raise place.bad_file(path, bad.problem, "an image") from bad
        if min(width, height) < side:
            pixels = f"{width:,} x {height:,} pixels"
            problem = f"has {pixels}, the originals {side:,} or more on the shorter side"
            raise place.bad_file(path, problem, "an original image", f"a resized copy; {STRICT}", pixels)


def _place(tree: Tree, root: Path, built: Built) -> Place:
    """The deepest folder that holds all listed files."""
    parts = (built.train, built.test)
    folders = {str(path.parent) for part in parts if isinstance(part, Files) for path in part.paths}
    return Place(tree, root, Path(os.path.commonpath(folders)) if folders else root / tree.folders[0])


def counts_text(expected: Mapping[str, int], there: Mapping[str, int]) -> str:
    """The sums and what differs, as "10,015 images expected, 5,000 found; expected/found: df 115/60, ..."."""
    pairs = {name: (expected.get(name, 0), there.get(name, 0)) for name in {**expected, **there}}
    different = ", ".join(f"{name} {one:,}/{other:,}" for name, (one, other) in pairs.items() if one != other)
    total = f"{sum(expected.values()):,} images expected, {sum(there.values()):,} found"
    return f"{total}; expected/found: {different}"


def check_counts(place: Place, there: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Compare numbers of images (of classes, sites, folders) with the published ones."""
    if Counter(there) != Counter(expected):
        text = f"not the published numbers of images: {counts_text(expected, there)}."
        raise place.error(text, f"{place.tree.other_counts}; {STRICT}")


def check_listed(
    place: Place,
    groups: Mapping[str, str],
    there: Collection[str],
    problem: str = "have no file",
    cause: str = "",
) -> None:
    """Refuse a list of images some of which are not `there`.

    Args:
        place: For the message.
        groups: What each listed image counts as in the message (its class, its centre, its list), by its name.
        there: Names of the images that have a file.
        problem: What is said of the others.
        cause: As in `Place.error`, if some are there.
    """
    missing = [name for name in groups if name not in there]
    if missing:
        expected = Counter(groups.values())
        counts = counts_text(expected, expected - Counter(groups[name] for name in missing))
        which = f"{len(missing):,} of {len(groups):,} listed images {problem}: {first_names(missing)}"
        raise place.error(f"{which}; {counts}.", cause if there else "")
