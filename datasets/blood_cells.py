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

from datasets.core.base import Facts, Int64Array, RawOptions
from datasets.core.folders import Place, Tree
from datasets.core.images import Files, ListedDataset, ToSquare, check_pixels
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
    """The files of one of the three sets.

    Attributes:
        place: Where they are.
        cells: Files by the owner's code of their category, in a fixed order.
        published: Number of images by code.
        note: A remark on the files.
    """

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
    """80 % of the images of each class for training, the others for testing.

    Args:
        archive: The files.
        classes: Codes of each class; other codes are left out.
        options: Size and seed; with `strict` the result has the expected counts.
    """
    check_not_empty(archive.place, {name: len(archive.of(codes)) for name, codes in classes.items()}, least=2)
    train: list[list[Path]] = []
    test: list[list[Path]] = []
    expected: list[tuple[str, str, str, int]] = []
    for label, (name, codes) in enumerate(classes.items()):
        paths = archive.of(codes)
        generator = np.random.RandomState([options.seed, label])
        for part, files in zip(
            (train, test), in_two(paths, training_share(len(paths)), generator), strict=True
        ):
            part.append(files)
        total = sum(archive.published[code] for code in codes)
        share = training_share(total)
        expected += [("train", name, "", share), ("test", name, "", total - share)]
    return ListedDataset(
        train=labelled(train),
        test=labelled(test),
        decode=ToSquare(options.size),
        places=(archive.place,),
        classes=tuple(classes),
        note=archive.note,
        expected=tuple(expected) if options.strict else (),
    )


def facts_by_class(
    tree: Tree, published: Mapping[str, int], classes: Classes, options: BloodOptions
) -> Facts:
    """What `split_by_class` makes of the published numbers of images by code."""
    sizes = [sum(published[code] for code in codes) for codes in classes.values()]
    train = sum(map(training_share, sizes))
    return tree.facts(train, sum(sizes) - train, len(classes), options.size)


def labelled(groups: Sequence[Sequence[Path]], sources: Int64Array | None = None) -> Files:
    """One group of files per class as `Files`; `sources` as there."""
    sizes = [len(group) for group in groups]
    labels = np.repeat(np.arange(len(groups), dtype=np.int64), sizes)
    return Files([path for group in groups for path in group], labels, None, sources)
