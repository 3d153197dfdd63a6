"""What the three sets of white blood cells of FedSDC share: options, pixels, checks, and the split by class.

Pixels follow the authors' public code: both sides to 224, ImageNet's mean and deviation. The authors published no list
of files, so the training images are drawn here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field

from datasets.core.base import Facts, RawOptions, published
from datasets.core.folders import Place, Tree, files_by_stem, find_classes, first_names
from datasets.core.images import ListedDataset, ToSquare, check_pixels, two_parts
from datasets.core.lists import check_counts, check_not_empty

Classes = Mapping[str, tuple[str, ...]]
"""The owner's codes of each class, by its name; the order is that of the labels."""


class BloodOptions(RawOptions):
    """Options of a set of blood cells.

    Attributes:
        size: Pixels of each side.
        seed: Of the draw of training images.
    """

    size: int = Field(default=224, ge=8)
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class Archive:
    """The files of one of the three sets, and the published numbers, by the owner's code of their category."""

    place: Place
    cells: Mapping[str, Sequence[Path]]
    published: Mapping[str, int]

    def of(self, codes: Sequence[str]) -> list[Path]:
        """All files of some codes."""
        return [path for code in codes for path in self.cells[code]]

    def check(self, side: int, pixels: str) -> None:
        """Refuse other numbers of images, and a resized copy: the originals have `pixels`, `side` or more each."""
        found = {code: len(paths) for code, paths in self.cells.items()}
        check_counts(self.place, found, self.published)
        first = [paths[0] for paths in self.cells.values()]
        check_pixels(self.place, first, lambda *sides: min(sides) >= side, pixels)


def prefix_of(path: Path) -> str:
    """The prefix of a name such as BA_123.jpg in capitals, or an empty text."""
    match = re.fullmatch(r"([A-Za-z]+)_\d+", path.stem)
    return match[1].upper() if match else ""


def find_cells(
    tree: Tree, root: Path, folders: Mapping[str, Mapping[str, int]], suffixes: tuple[str, ...]
) -> Archive:
    """The files of an archive whose names begin with their code; `folders` has the codes and numbers of each folder."""
    place, found = find_classes(tree, root, folders)
    cells: dict[str, list[Path]] = {}
    for folder, numbers in folders.items():
        files = list(files_by_stem(place, [found[folder]], suffixes).values())
        odd = [path.name for path in files if prefix_of(path) not in numbers]
        if odd:
            wanted = " or ".join(f"{code}_<number>" for code in numbers)
            raise place.error(
                f"{len(odd):,} of {len(files):,} files in {folder}/ are not called {wanted}: {first_names(odd)}.",
                "files of another class, or a renamed copy, whose classes cannot be read",
                found[folder],
            )
        cells |= {code: [path for path in files if prefix_of(path) == code] for code in numbers}
    numbers = {code: number for folder in folders.values() for code, number in folder.items()}
    return Archive(place, cells, numbers)


def training_share(number: int) -> int:
    """Training images of a class of `number` images: 80 %, rounded down (11,630 of Acevedo-20's ten subtypes)."""
    return 4 * number // 5


def drawn(size: int, number: int, seed: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which of `size` images are `number` random ones of them, bool [size]."""
    return np.isin(np.arange(size), np.random.RandomState(seed).permutation(size)[:number])


def split_by_class(archive: Archive, classes: Classes, options: BloodOptions) -> ListedDataset:
    """80 % of the images of each class for training, the others for testing; codes of no class are left out."""
    check_not_empty(archive.place, {name: len(archive.of(codes)) for name, codes in classes.items()}, least=2)
    import pandas as pd  # slow to import

    parts = []
    for label, codes in enumerate(classes.values()):
        paths = archive.of(codes)
        train = drawn(len(paths), training_share(len(paths)), (options.seed, label))
        parts.append(pd.DataFrame({"path": paths, "label": label, "test": ~train}))
    counts = _class_counts(archive.published, classes)
    return ListedDataset(
        *two_parts(pd.concat(parts)),
        classes=tuple(classes),
        decode=ToSquare(options.size),
        places=(archive.place,),
        expected=published(counts, tuple(classes)),
    )


def facts_by_class(tree: Tree, numbers: Mapping[str, int], classes: Classes, options: BloodOptions) -> Facts:
    """What `split_by_class` makes of the published numbers of images by code."""
    train, test = (sum(counts) for counts in _class_counts(numbers, classes).values())
    return tree.facts(train, test, len(classes), options.size)


def _class_counts(numbers: Mapping[str, int], classes: Classes) -> dict[str, list[int]]:
    """Training and test images of each class."""
    totals = [sum(numbers[code] for code in codes) for codes in classes.values()]
    train = [training_share(total) for total in totals]
    return {"train": train, "test": [total - share for total, share in zip(totals, train, strict=True)]}
