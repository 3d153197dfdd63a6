"""What the three sets of white blood cells of FedSDC share: options, pixels, normalisation, and the split by class.

Pixels follow the authors' public code (notes on the data sets, section 3): both sides to 224, ImageNet's mean and
deviation. The authors published no list of files, so which images are for training is drawn here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from datasets.core.base import Facts, Int64Array
from datasets.core.download import RawOptions
from datasets.core.folders import IMAGENET_MEAN, IMAGENET_STD, ImageTree, Place, check_not_empty
from datasets.core.images import Files, ListedDataset, ToSquare, check_pixels

Cells = Mapping[str, Sequence[Path]]
"""Files by the owner's code of their category, in a fixed order."""

Classes = Mapping[str, tuple[str, ...]]
"""Codes of each class, by its name; the order is that of the labels."""


class BloodOptions(RawOptions):
    """Options of a set of blood cells.

    Attributes:
        size: Pixels of each side.
        seed: Of the draw of training images.
    """

    size: int = Field(default=224, ge=8)
    seed: int = Field(default=0, ge=0)


def training_share(number: int) -> int:
    """Training images of a class of `number` images: 80 %, rounded down (11,630 of Acevedo-20's ten subtypes)."""
    return 4 * number // 5


def in_two(
    paths: Sequence[Path], number: int, generator: np.random.RandomState
) -> tuple[list[Path], list[Path]]:
    """`number` random ones of `paths`, and the others; both in the order of `paths`."""
    chosen = np.zeros(len(paths), dtype=bool)
    chosen[generator.permutation(len(paths))[:number]] = True
    pairs = list(zip(paths, chosen, strict=True))
    return [path for path, first in pairs if first], [path for path, first in pairs if not first]


@dataclass(frozen=True)
class Archive:
    """The files of one of the three sets, by code, with what is known of them.

    Attributes:
        place: Where they are.
        cells: The files.
        published: Number of images by code.
        note: What is to be said of the files.
    """

    place: Place
    cells: Cells
    published: Mapping[str, int]
    note: str = ""


def check_once(place: Place, code: str, paths: Sequence[Path], published: int) -> None:
    """Refuse a category in whose folder an image is there in two formats.

    Raises:
        DataError: One is.
    """
    stems = Counter(path.stem for path in paths)
    twice = [path for path in paths if stems[path.stem] > 1]
    if twice:
        suffixes = " and as ".join(path.suffix for path in twice if path.stem == twice[0].stem)
        raise place.error(
            f"{twice[0].stem} is there as {suffixes}, and so are {len({path.stem for path in twice}):,} images "
            f"of {code}.",
            looked_at=twice[0].parent,
            cause="a converted copy beside the originals; leave one of the two",
            counts=f"{code}: {published:,} images expected, {len(paths):,} files found",
        )


def check_first_pixels(
    place: Place,
    cells: Cells,
    published: int,
    good: Callable[[int, int], bool],
    pixels: str,
    known: str = "a resized copy",
) -> None:
    """Refuse a resized copy, by the first file of each code.

    ``published``: number of all images. Other arguments and errors as those of `images.check_pixels`.
    """
    first = [path for paths in cells.values() for path in paths[:1]]
    counts = f"{published:,} images expected, {sum(map(len, cells.values())):,} found"
    check_pixels(place, first, good, pixels, counts, known)


def split_by_class(archive: Archive, classes: Classes, options: BloodOptions) -> ListedDataset:
    """80 % of the images of each class for training, the others for testing.

    Args:
        archive: The files.
        classes: Codes of each class; other codes are left out.
        options: Size and seed; with `strict` the result has the expected counts.

    Raises:
        DataError: A class has fewer than two images.
    """
    sizes = {name: sum(len(archive.cells[code]) for code in codes) for name, codes in classes.items()}
    check_not_empty(archive.place, sizes, least=2)
    parts: tuple[list[list[Path]], list[list[Path]]] = ([], [])
    expected: list[tuple[str, str, str, int]] = []
    for label, (name, codes) in enumerate(classes.items()):
        paths = [path for code in codes for path in archive.cells[code]]
        generator = np.random.RandomState([options.seed, label])
        for part, files in zip(parts, in_two(paths, training_share(len(paths)), generator), strict=True):
            part.append(files)
        total = sum(archive.published[code] for code in codes)
        share = training_share(total)
        expected += [("train", name, "", share), ("test", name, "", total - share)]
    return ListedDataset(
        train=labelled(parts[0]),
        test=labelled(parts[1]),
        decode=ToSquare(options.size, "squash"),
        shape=(3, options.size, options.size),
        places=(archive.place,),
        classes=tuple(classes),
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        note=archive.note,
        expected=tuple(expected) if options.strict else (),
    )


def facts_by_class(
    tree: ImageTree, published: Mapping[str, int], classes: Classes, options: BloodOptions
) -> Facts:
    """What `split_by_class` makes of the published numbers of images by code."""
    sizes = [sum(published[code] for code in codes) for codes in classes.values()]
    train = sum(map(training_share, sizes))
    return Facts(train, sum(sizes) - train, len(classes), 3, options.size, raw=tree.archive, page=tree.page)


def labelled(groups: Sequence[Sequence[Path]], sources: Int64Array | None = None) -> Files:
    """One group of files per class as `Files`; `sources` as there."""
    paths = [path for group in groups for path in group]
    sizes = [len(group) for group in groups]
    return Files(paths, np.repeat(np.arange(len(groups), dtype=np.int64), sizes), None, sources)
