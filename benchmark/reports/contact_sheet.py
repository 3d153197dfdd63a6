"""A data set at a glance: a few images of each class (with attribute and source), training left, test right."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from datasets.core.base import Dataset, Split, UInt8Array

TILE = 72
"""Longer side of an image on the sheet, pixels."""

GAP = 4
PER_SPLIT = 6
DPI = 100
Cell = tuple[int, int, int]
"""Class, attribute and source; -1 where the data set has none."""


def contact_sheet(data: Dataset, path: Path, title: str = "") -> Path:
    """Draw the sheet, write it as PNG and return ``path``.

    Rows are classes x attributes x sources, as far as there are images; of each row the sheet shows up to six
    training and six test images, evenly spread over the data set's order: the same data give the same file.
    """
    members = _members(data.train), _members(data.test)
    rows = sorted({*members[0], *members[1]})
    side = max(_tile(np.asarray(data.train.images[0])).shape)
    strips = [
        _strip(split, [held.get(row, []) for row in rows], side)
        for split, held in zip((data.train, data.test), members, strict=True)
    ]
    divider = np.full((strips[0].shape[0], 3 * GAP, 3), 255, dtype=np.uint8)
    sheet = np.concatenate([strips[0], divider, strips[1]], axis=1)
    height, width = (length / DPI for length in sheet.shape[:2])
    high, left = height + 0.6, 0.1  # inches for the titles
    figure = Figure(figsize=(width + left, high))
    axes = figure.add_axes((left / (width + left), 0.0, width / (width + left), height / high))
    # One picture in its own pixels: hundreds of axes take minutes.
    axes.imshow(sheet, aspect="auto", interpolation="nearest")
    names = [_name(data, row, [len(held.get(row, [])) for held in members]) for row in rows]
    axes.set_yticks([(side + GAP) * k + side / 2 for k in range(len(rows))], names, fontsize=8)
    half = strips[0].shape[1]
    axes.set_xticks(
        [half / 2, half + divider.shape[1] + half / 2],
        [f"training, {len(data.train):,} images", f"test, {len(data.test):,} images"],
        fontsize=9,
    )
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.set_title(title or data.name, fontsize=11, loc="left", pad=22)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=DPI, bbox_inches="tight", metadata={"Software": None})
    return path


def _members(split: Split) -> dict[Cell, Sequence[int]]:
    """Indices of the images of each cell that has any."""
    columns = {"class": split.labels, "attribute": split.attributes, "source": split.sources}
    frame = pd.DataFrame({name: -1 if values is None else values for name, values in columns.items()})
    groups = frame.groupby(list(columns))
    return {(int(a), int(b), int(c)): held for (a, b, c), held in groups.indices.items()}


def _strip(split: Split, rows: Sequence[Sequence[int]], side: int) -> UInt8Array:
    """Uint8 [height, width, 3]: a row of tiles of `side` pixels for each row of indices, white where none is left."""
    step = side + GAP
    sheet = np.full((step * len(rows) - GAP, step * PER_SPLIT - GAP, 3), 255, dtype=np.uint8)
    for row, held in enumerate(rows):
        places = np.unique(np.linspace(0, max(len(held) - 1, 0), PER_SPLIT).round().astype(int))
        for column, place in enumerate(places[: len(held)]):
            tile = _tile(np.asarray(split.images[held[place]]))
            top, left = step * row, step * column
            sheet[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    return sheet


def _tile(image: UInt8Array) -> UInt8Array:
    """uint8 [C, H, W] as [h, w, 3] of at most TILE pixels a side: small ones in whole steps, large ones smoothed."""
    channels, height, width = image.shape
    # Two channels or more than three are no colours: the first is shown.
    colours = image if channels == 3 else np.repeat(image[:1], 3, axis=0)
    pixels: NDArray[np.uint8] = np.ascontiguousarray(colours.transpose(1, 2, 0))
    longest = max(height, width)
    if longest <= TILE:
        factor = TILE // longest
        return pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    size = (max(width * TILE // longest, 1), max(height * TILE // longest, 1))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


def _name(data: Dataset, cell: Cell, counts: Sequence[int]) -> str:
    """Class, attribute and source of a row, with its numbers of training and test images."""
    known = (data.classes, data.attributes, data.sources)
    name = ", ".join(names[k] for names, k in zip(known, cell, strict=True) if k >= 0)
    if len(name) > 60:
        name = f"{name[:30]}...{name[-30:]}"
    return f"{name}\n{counts[0]:,} + {counts[1]:,}"
