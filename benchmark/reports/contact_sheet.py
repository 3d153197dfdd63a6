"""A data set at a glance: a few images of each class (with attribute and source), training left, test right."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image, ImageOps

from benchmark.reports.pictures import save
from datasets.core.base import Dataset, Split, UInt8Array

TILE = 72
"""Side of an image on the sheet with its margin, pixels."""

PER_SPLIT = 6
DPI = 100
Cell = tuple[int, ...]
"""Class, attribute and source; -1 where the data set has none."""


def contact_sheet(data: Dataset, path: Path, title: str = "") -> Path:
    """Draw the sheet, write it as PNG and return ``path``.

    Rows are classes x attributes x sources, as far as there are images; of each row the sheet shows up to six
    training and six test images, evenly spread over the data set's order: the same data give the same file. Test
    images without a source are spread over the rows of their class, and training images likewise.
    """
    splits = {"training": data.train, "test": data.test}
    fields = data.train.arrays().keys() | data.test.arrays().keys()
    rows, members = _rows(data)
    pairs = zip(splits.values(), members, strict=True)
    strips = [np.concatenate([_strip(split, images) for images in held]) for split, held in pairs]
    sheet = np.concatenate(strips, axis=1)
    height, width = sheet.shape[:2]
    figure = Figure(figsize=(width / DPI, height / DPI))
    axes = figure.add_axes((0, 0, 1, 1))
    # One picture in its own pixels: hundreds of axes take minutes.
    axes.imshow(sheet, aspect="auto", interpolation="nearest")
    axes.axvline(width / 2, color="black", linewidth=1)
    names = [_name(data, row, [len(held[k]) for held in members]) for k, row in enumerate(rows)]
    axes.set_yticks(TILE * (np.arange(len(rows)) + 0.5), names, fontsize=8)
    counts = []
    for name, split in splits.items():
        how = "" if split.arrays().keys() == fields else ", spread over the rows of a class"
        counts.append(f"{name}, {len(split):,} images{how}")
    axes.set_xticks([width / 4, 3 * width / 4], counts, fontsize=9)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.set_title(title or data.name, fontsize=11, pad=22)
    return save(figure, path.with_suffix(""), [path.suffix], DPI)[0]


def _members(split: Split) -> dict[Cell, Sequence[int]]:
    """Indices of the images of each cell that has any."""
    columns = {"class": split.labels, "attribute": split.attributes, "source": split.sources}
    frame = pd.DataFrame({name: -1 if values is None else values for name, values in columns.items()})
    groups = frame.groupby(list(columns)).indices
    return {tuple(map(int, cell)): held for cell, held in groups.items()}


def _rows(data: Dataset) -> tuple[list[Cell], list[list[Sequence[int]]]]:
    """The rows of the sheet, and for training and test set the indices of the images of each row."""
    parts = _members(data.train), _members(data.test)
    cells = {*parts[0], *parts[1]}
    rows = sorted(cell for cell in cells if not any(_belongs(other, cell) for other in cells - {cell}))
    members: list[list[Sequence[int]]] = [[()] * len(rows) for _ in parts]
    for held, part in zip(members, parts, strict=True):
        for cell, images in part.items():
            inside = [k for k, row in enumerate(rows) if _belongs(row, cell)]
            for number, k in enumerate(inside):
                held[k] = images[number :: len(inside)]
    return rows, members


def _belongs(row: Cell, cell: Cell) -> bool:
    """Whether a row is the cell, or one of those that the cell does not tell apart."""
    return all(told in (value, -1) for value, told in zip(row, cell, strict=True))


def _strip(split: Split, held: Sequence[int]) -> UInt8Array:
    """One row of tiles [TILE, PER_SPLIT * TILE, 3], white where no image is left."""
    places = np.unique(np.linspace(0, max(len(held) - 1, 0), PER_SPLIT).round().astype(int))
    tiles = [_tile(np.asarray(split.images[held[place]])) for place in places[: len(held)]]
    white = np.full((TILE, TILE, 3), 255, dtype=np.uint8)
    return np.concatenate((tiles + [white] * PER_SPLIT)[:PER_SPLIT], axis=1)


def _tile(image: UInt8Array) -> UInt8Array:
    """uint8 [C, H, W] as [TILE, TILE, 3] with a white margin. Of other than three channels, the first is shown."""
    colours = image if len(image) == 3 else np.repeat(image[:1], 3, axis=0)
    pixels = Image.fromarray(np.ascontiguousarray(colours.transpose(1, 2, 0)))
    padded = ImageOps.pad(pixels, (TILE - 4, TILE - 4), Image.Resampling.BOX, color="white")
    return np.asarray(ImageOps.expand(padded, 2, "white"))


def _name(data: Dataset, cell: Cell, counts: Sequence[int]) -> str:
    """Class, attribute and source of a row, with its numbers of training and test images."""
    names = (data.classes, data.attributes, data.sources)
    name = ", ".join(names_of_kind[k] for names_of_kind, k in zip(names, cell, strict=True) if k >= 0)
    return f"{name[:60]}\n{counts[0]:,} + {counts[1]:,}"
