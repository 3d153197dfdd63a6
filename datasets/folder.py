"""A folder of one's own images: a folder for each class, in one for each site if there are sites.

Accepted are ``CLASS/*``, ``SITE/CLASS/*``, and either of them inside ``train/`` and ``test/``. Classes and sites are
sorted by name. A site is a source, so that `partition=natural` makes each site a client.
"""

from collections import defaultdict
from glob import glob
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from benchmark.errors import wrong
from datasets.core.base import DataError, Files, UserFileOptions
from datasets.core.folders import IGNORED, Place, Tree, first_names
from datasets.core.images import SUFFIXES, ListedDataset, ToSquare
from datasets.core.registry import dataset

TREE = Tree(
    title="dataset=folder",
    folders=(".",),
    layout="CLASS/*.png or SITE/CLASS/*.png (also jpg, bmp, tif), both also inside train/ and test/",
    licence="that of the owner of the images",
)


class FolderOptions(UserFileOptions):
    """Options of a folder of images.

    Attributes:
        size: Pixels of each side; the images are squashed to it.
        channels: 3, or 1 for grey images.
        test_share: Part of the images of each class (and site) that is drawn for testing, if there is no `test/`.
        seed: Of this draw.
    """

    size: int = Field(default=32, ge=4)
    channels: Literal[1, 3] = 3
    test_share: float = Field(default=0.2, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


@dataset("folder", options=FolderOptions, tree=TREE)
def folder(options: FolderOptions, root: Path) -> ListedDataset:
    """A folder of one's own images: a folder for each class, with or without train/ and test/, and sites."""
    place = Place(TREE, root, root)
    if not options.path or not root.is_dir():
        lacking = f"; there is no folder {root.absolute()}" if options.path else ""
        raise DataError(wrong("dataset.options.path", options.path, f"the folder of images{lacking}"))
    parts = [root / name for name in ("train", "test")]
    if all(part.is_dir() for part in parts):
        train, test = (_listed(place, part) for part in parts)
    else:
        images = _listed(place, root)
        drawn = _drawn(images, options)
        train, test = [image for image in images if image not in drawn], sorted(drawn)
    classes = sorted({image.label for image in train})
    unknown = sorted({image.label for image in test} - {*classes})
    if unknown:
        raise place.error(f"got classes in test/ that train/ lacks: {first_names(unknown)}")
    sites = sorted({image.site for image in [*train, *test]} - {""})
    return ListedDataset(
        train=_files(train, classes, sites),
        test=_files(test, classes, sites),
        classes=tuple(classes),
        sources=tuple(sites),
        decode=ToSquare(options.size, channels=options.channels),
        mean=None,
        std=None,
        # A new folder of a class or a site is a change, too.
        files=sorted(
            {above for image in (*train, *test) for above in image.path.parents if above.is_relative_to(root)}
        ),
    )


class LabelledImage(NamedTuple):
    """An image file with the names of its class and of its site; "" if there are no sites."""

    path: Path
    site: str
    label: str


def _listed(place: Place, top: Path) -> list[LabelledImage]:
    """All images below a folder, also behind links to folders, sorted by path."""
    rows: list[tuple] = []
    for path in sorted(top / name for name in glob("**", root_dir=top, recursive=True)):
        *above, name = path.relative_to(top).parts
        hidden = any(part.startswith(".") or part in IGNORED for part in (*above, name))
        if not hidden and name.lower().endswith(SUFFIXES):
            rows.append((path, *above))
    odd = [row[0] for row in rows if len(row) not in (2, 3) or len(row) != len(rows[0])]
    if odd or not rows:
        which = f"{len(odd):,} of {len(rows):,} images elsewhere, as {odd[0]}" if odd else "no image"
        raise place.error(f"got {which}", top)
    return [LabelledImage(path, site[0] if site else "", label) for path, *site, label in rows]


def _drawn(images: list[LabelledImage], options: FolderOptions) -> set[LabelledImage]:
    """The images for testing: the share of each class and site, rounded, but one of two at least."""
    cells = defaultdict(list)
    for image in images:
        cells[image.site, image.label].append(image)
    generator = np.random.RandomState(options.seed)
    test: set[LabelledImage] = set()
    for _, cell in sorted(cells.items()):
        number = max(round(options.test_share * len(cell)), int(len(cell) > 1))
        order = generator.permutation(len(cell))[: min(number, len(cell) - 1)]
        test.update(cell[k] for k in order)
    return test


def _files(images: list[LabelledImage], classes: list[str], sites: list[str]) -> Files:
    has_sites = bool(sites) and all(image.site for image in images)
    return Files(
        [image.path for image in images],
        np.array([classes.index(image.label) for image in images]),
        sources=np.array([sites.index(image.site) for image in images]) if has_sites else None,
    )
