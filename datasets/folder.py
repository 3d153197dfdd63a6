"""A folder of one's own images: a folder for each class, in one for each site if there are sites.

Accepted are ``CLASS/*``, ``SITE/CLASS/*``, and either of them inside ``train/`` and ``test/``. Classes and sites are
sorted by name. A site is a source, so that `partition=natural` makes each site a client.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from benchmark.errors import wrong
from datasets.core.base import DataError, Files, UserFileOptions
from datasets.core.folders import IGNORED, Place, Tree, first_names
from datasets.core.images import ListedDataset, ToSquare
from datasets.core.registry import dataset

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")
TREE = Tree(
    title="dataset=folder",
    folders=(".",),
    layout="CLASS/*.png or SITE/CLASS/*.png (also jpg, bmp, tif), both also inside train/ and test/,",
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


@dataset("folder", options=FolderOptions, tree=TREE, licence="that of the owner of the images")
def folder(options: FolderOptions, root: Path) -> ListedDataset:
    """A folder of one's own images: a folder for each class, with or without train/ and test/, and sites."""
    place = Place(TREE, root, root)
    if not options.path or not root.is_dir():
        raise DataError(wrong("dataset.options.path", options.path, "the folder of images"))
    parts = [root / name for name in ("train", "test")]
    if all(part.is_dir() for part in parts):
        train, test = (_listed(place, part) for part in parts)
    else:
        table = _listed(place, root)
        drawn = _drawn(table, options)
        train, test = table[~drawn], table[drawn]
    classes = sorted({*train["class"]})
    unknown = sorted({*test["class"]} - {*classes})
    if unknown:
        text = f"test/ has images of classes that train/ lacks: {first_names(unknown)}."
        raise place.error(text, "other names, or sites in one of the two only")
    sites = sorted({*train["site"], *test["site"]} - {""})
    return ListedDataset(
        train=_files(train, classes, sites),
        test=_files(test, classes, sites),
        classes=tuple(classes),
        sources=tuple(sites),
        decode=ToSquare(options.size, channels=options.channels),
        channels=options.channels,
        mean=None,
        std=None,
    )


def _listed(place: Place, top: Path) -> pd.DataFrame:
    """A row for each image below a folder, sorted: path, site ("" if there are none) and class."""
    import pandas as pd  # slow to import

    rows = []
    for path in sorted(top.rglob("*")):
        *above, name = path.relative_to(top).parts
        hidden = any(part.startswith(".") or part in IGNORED for part in (*above, name))
        if not hidden and name.lower().endswith(SUFFIXES):
            rows.append((path, *above))
    odd = [row[0] for row in rows if len(row) not in (2, 3) or len(row) != len(rows[0])]
    if odd or not rows:
        which = (
            f"{len(odd):,} of {len(rows):,} images lie elsewhere: {first_names(odd, 1)}" if odd else "none"
        )
        text = f"each image must lie in a folder of its class, maybe inside one of its site; got {which}."
        raise place.error(text, at=top)
    table = [(path, site[0] if site else "", label) for path, *site, label in rows]
    return pd.DataFrame(table, columns=["path", "site", "class"])


def _drawn(table: pd.DataFrame, options: FolderOptions) -> np.ndarray:
    """Which images are for testing, bool [N]: the share of each class and site, rounded, but one of two at least."""
    test = np.zeros(len(table), dtype=np.bool_)
    generator = np.random.RandomState(options.seed)
    for _, rows in sorted(table.groupby(["site", "class"]).indices.items()):
        number = max(round(options.test_share * len(rows)), int(len(rows) > 1))
        test[generator.permutation(rows)[: min(number, len(rows) - 1)]] = True
    return test


def _files(table: pd.DataFrame, classes: list[str], sites: list[str]) -> Files:
    sources = table["site"].map({site: number for number, site in enumerate(sites)})
    return Files(
        list(table["path"]),
        table["class"].map(classes.index).to_numpy(np.int64),
        sources=sources.to_numpy(np.int64) if sites and sources.notna().all() else None,
    )
