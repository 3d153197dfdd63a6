"""What the three sets of white blood cells of FedSDC share: options, files by category, and the split by class.

Pixels follow the authors' public code: both sides to 224, ImageNet's mean and deviation. The authors published no list
of files, so the training images are drawn here.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from datasets.core.base import Expected, Facts, RawOptions, published
from datasets.core.folders import Tree, files_by_stem, find
from datasets.core.images import ImageRow, ListedDataset, ToSquare, two_parts

Classes = Mapping[str, tuple[str, ...]]
"""The owner's codes of each class, by its name; the order is that of the labels."""

Cells = Mapping[str, Sequence[Path]]
"""The files of one of the three sets by the owner's code of their category."""


class BloodOptions(RawOptions):
    """Options of a set of blood cells.

    Attributes:
        size: Pixels of each side.
        seed: Of the draw of training images.
    """

    size: int = Field(default=224, ge=8)
    seed: int = Field(default=0, ge=0)


def cells_by_code(
    tree: Tree, root: Path, codes: Mapping[str, Sequence[str]], suffixes: tuple[str, ...]
) -> Cells:
    """The files called ``<code>_<number>``; `codes` are those of each folder. Files of other names are ignored."""
    place, cells = find(tree, root, codes), {}
    for folder, path in place.require(codes).items():
        files = files_by_stem([path], suffixes)
        for code in codes[folder]:
            pattern = re.compile(rf"{code}_\d+", re.IGNORECASE)
            cells[code] = [file for stem, file in files.items() if pattern.fullmatch(stem)]
    return cells


def drawn(
    paths: Sequence[Path], number: int, seed: Sequence[int], label: int, source: int | None = None
) -> list[ImageRow]:
    """The files of a class: `number` random ones of them are for training, the others for testing."""
    training = {*np.random.RandomState(seed).permutation(len(paths))[:number]}
    return [ImageRow(path, k not in training, label, source=source) for k, path in enumerate(paths)]


def training_share(number: int) -> int:
    """Training images of a class of `number` images: 80 %, rounded down (11,630 of Acevedo-20's ten subtypes)."""
    return 4 * number // 5


def published_by_class(numbers: Mapping[str, int], classes: Classes) -> Expected:
    """What `split_by_class` makes of the published numbers of images by code."""
    totals = [sum(numbers[code] for code in codes) for codes in classes.values()]
    train = [training_share(total) for total in totals]
    return published({"train": train, "test": np.subtract(totals, train)}, tuple(classes))


def facts_by_class(numbers: Mapping[str, int], classes: Classes, options: BloodOptions) -> Facts:
    """What is known of an archive with the published numbers of images by code."""
    return Facts.of(published_by_class(numbers, classes), len(classes), options.size)


def split_by_class(
    cells: Cells, numbers: Mapping[str, int], classes: Classes, options: BloodOptions
) -> ListedDataset:
    """80 % of the images of each class for training, the others for testing; codes of no class are left out."""
    rows = []
    for label, codes in enumerate(classes.values()):
        paths = [path for code in codes for path in cells[code]]
        rows += drawn(paths, training_share(len(paths)), (options.seed, label), label)
    return ListedDataset(
        *two_parts(rows),
        classes=tuple(classes),
        decode=ToSquare(options.size),
        expected=published_by_class(numbers, classes),
    )
