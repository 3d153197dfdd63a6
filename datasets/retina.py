"""Retina (FedLD): fundus photographs of the Kaggle diabetic-retinopathy set, repackaged by Yan et al. (2023) as arrays.

The number of test images and the type of the arrays are not published. All types are therefore read: 8 and 16 bit,
floats of 0..1 and of 0..255, two and three dimensions. The authors' reader turns 8-bit arrays black and joins grey ones
side by side; this one does neither.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from pydantic import Field

from datasets.core.base import Facts, RawOptions
from datasets.core.folders import Tree, files_in
from datasets.core.images import ListedDataset, ToSquare, as_rgb, bad_image
from datasets.core.registry import dataset
from datasets.ssl_fl import TEST_LIST, Lists, find_lists

CLASSES = ("normal", "diseased")
CLIENTS = 5
TREE = Tree(
    title="Retina",
    folders=("Retina", "retina"),
    layout=f"Retina/labels.csv, Retina/train, Retina/test, Retina/{TEST_LIST}",
    page="https://github.com/Zeng-Shuang/FedLD (README, Google Drive id 1bW--_qRZnWbkb0XXvGBCSferdqXZ6pe7)",
    archive="the folder Retina (name and size of the archive and the number of test images are not published)",
    licence="not stated with the prepared copy",
)

TRAIN_COUNTS = (4500, 4499)
"""Training images per class. Not printed anywhere: read off the bars of the authors' figure of the splits."""
TOLERANCE = 45


class RetinaOptions(RawOptions):
    """Options of Retina.

    Attributes:
        size: Side of the prepared images in pixels; the authors' reader makes them 256.
        split: None, or the split whose shipped client lists become the sources of the training images, so that
            `partition=natural` gives exactly these clients. Without it `partition=dirichlet` makes clients by rule.
    """

    size: int = Field(default=256, ge=8)
    split: Literal[1, 2, 3] | None = None


class FromArray(ToSquare):
    """Decode a `.npy` file into size x size pixels of RGB, bilinear, whatever the aspect ratio."""

    def open(self, path: Path) -> Image.Image:
        """The array as an image."""
        try:
            return Image.fromarray(as_rgb(np.load(path, allow_pickle=False)))
        except (OSError, ValueError, EOFError) as error:
            raise bad_image(path, error) from error


@dataset(
    "retina",
    options=RetinaOptions,
    tree=TREE,
    # How many images the test set has is not published: they count as 0.
    facts=lambda options: Facts.of(
        (("train", "", "", sum(TRAIN_COUNTS)),),
        len(CLASSES),
        options.size,
        sources=CLIENTS if options.split else 0,
    ),
)
def retina(options: RetinaOptions, root: Path) -> ListedDataset:
    """Retina, fundus photographs of FedLD: about 9,000 for training, 2 classes, 256 x 256; to be fetched by hand."""
    names = [f"client_{number}" for number in range(1, CLIENTS + 1)] if options.split else []
    clients = [f"5_clients/split_{options.split}/{name}.csv" for name in names]
    lists = find_lists(TREE, root, CLASSES, clients)
    train_lists = {name: lists.names(name) for name in clients} or _all(lists)
    train = lists.files("train", train_lists, sources=bool(clients))
    if options.strict:
        there = np.bincount(train.labels, minlength=len(CLASSES))
        if (np.abs(there - TRAIN_COUNTS) > TOLERANCE).any():  # a part of the images, or another set
            lists.place.check_counts(
                dict(zip(CLASSES, there.tolist(), strict=True)), dict(zip(CLASSES, TRAIN_COUNTS, strict=True))
            )
    return ListedDataset(
        train=train,
        test=lists.files("test", {TEST_LIST: lists.names(TEST_LIST)}),
        decode=FromArray(options.size),
        classes=CLASSES,
        sources=tuple(names),
        mean=(0.5007, 0.5010, 0.5019),
        std=(0.0342, 0.0535, 0.0484),
        files=lists.place.files,
    )


def _all(lists: Lists) -> dict[str, list[str]]:
    """All training images: those of `train.csv` (which some copies have in `central/`), else all arrays there are."""
    for name in ("train.csv", "central/train.csv"):
        if (lists.place.folder / name).is_file():
            return {name: lists.names(name)}
    return {"train": [path.name for path in files_in(lists.place.folder / "train", (".npy",))]}
