"""What the three sets of white blood cells of FedSDC share: options, pixels, and the split by class.

Pixels follow the authors' public code: both sides to 224, ImageNet's mean and deviation. The authors published no list
of files, so the training images are drawn here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from datasets.core.base import Facts, Files, RawOptions, published
from datasets.core.folders import Place, Tree
from datasets.core.images import ListedDataset, ToSquare, check_pixels
from datasets.core.lists import check_not_empty

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


def training_share(number: int) -> int:
    """Training images of a class of `number` images: 80 %, rounded down (11,630 of Acevedo-20's ten subtypes)."""
    return 4 * number // 5


def in_two(
    paths: Sequence[Path], number: int, generator: np.random.RandomState
) -> tuple[list[Path], list[Path]]:
    """`number` random ones of `paths`, and the others; both in the order of `paths`."""
    chosen = set(generator.permutation(len(paths))[:number].tolist())
    first = [path for k, path in enumerate(paths) if k in chosen]
    return first, [path for k, path in enumerate(paths) if k not in chosen]


@dataclass(frozen=True)
class Archive:
    """The files of one of the three sets, and the published numbers, by the owner's code of their category."""

    place: Place
    cells: Mapping[str, Sequence[Path]]
    published: Mapping[str, int]
    note: str = ""

    def of(self, codes: Sequence[str]) -> list[Path]:
        """All files of some codes."""
        return [path for code in codes for path in self.cells[code]]

    def check_once(self) -> None:
        """Refuse a category in whose folder an image is there in two formats."""
        for code, paths in self.cells.items():
            stems = Counter(path.stem for path in paths)
            twice = [path for path in paths if stems[path.stem] > 1]
            if twice:
                suffixes = " and as ".join(path.suffix for path in twice if path.stem == twice[0].stem)
                number = len({path.stem for path in twice})
                raise self.place.error(
                    f"{twice[0].stem} is there as {suffixes}, and so are {number:,} images of {code}.",
                    looked_at=twice[0].parent,
                    cause="a converted copy beside the originals; keep one of the two",
                    counts=f"{code}: {self.published[code]:,} images expected, {len(paths):,} files found",
                )

    def check_side(self, least: int, pixels: str, known: str = "a resized copy") -> None:
        """Refuse a resized copy, by the first file of each code. `pixels` and `known` as in `images.check_pixels`."""
        total, found = sum(self.published.values()), sum(map(len, self.cells.values()))
        first = [path for paths in self.cells.values() for path in paths[:1]]
        counts = f"{total:,} images expected, {found:,} found"
        check_pixels(self.place, first, lambda *sides: min(sides) >= least, pixels, counts, known)


def split_by_class(archive: Archive, classes: Classes, options: BloodOptions) -> ListedDataset:
    """80 % of the images of each class for training, the others for testing; codes of no class are left out."""
    check_not_empty(archive.place, {name: len(archive.of(codes)) for name, codes in classes.items()}, least=2)
    train: list[list[Path]] = []
    test: list[list[Path]] = []
    for label, codes in enumerate(classes.values()):
        paths = archive.of(codes)
        generator = np.random.RandomState([options.seed, label])
        first, second = in_two(paths, training_share(len(paths)), generator)
        train.append(first)
        test.append(second)
    totals = [sum(archive.published[code] for code in codes) for codes in classes.values()]
    shares = [training_share(total) for total in totals]
    counts = {"train": shares, "test": np.subtract(totals, shares)}
    return ListedDataset(
        train=_labelled(train),
        test=_labelled(test),
        decode=ToSquare(options.size),
        places=(archive.place,),
        classes=tuple(classes),
        note=archive.note,
        expected=published(counts, tuple(classes)) if options.strict else (),
    )


def facts_by_class(
    tree: Tree, published: Mapping[str, int], classes: Classes, options: BloodOptions
) -> Facts:
    """What `split_by_class` makes of the published numbers of images by code."""
    sizes = [sum(published[code] for code in codes) for codes in classes.values()]
    train = sum(map(training_share, sizes))
    return tree.facts(train, sum(sizes) - train, len(classes), options.size)


def _labelled(groups: Sequence[Sequence[Path]]) -> Files:
    labels = np.repeat(np.arange(len(groups), dtype=np.int64), [len(group) for group in groups])
    return Files([path for group in groups for path in group], labels)
