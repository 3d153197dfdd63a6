"""Contact sheets: which images they show, where, and that the same data give the same file."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmark.reports.contact_sheet import (
    GAP,
    PER_SPLIT,
    TILE,
    _members,
    _name,
    _strip,
    _tile,
    contact_sheet,
)
from datasets.core.base import Dataset, Split


def of(labels: list[int], groups: list[int] | None = None, first: int = 0, sources: bool = False) -> Split:
    """Grey images of one value each: first, first + 1, ..."""
    images = np.tile(np.arange(first, first + len(labels), dtype=np.uint8)[:, None, None, None], (1, 1, 8, 8))
    known = None if groups is None else np.array(groups)
    return Split(images, np.array(labels), None if sources else known, known if sources else None)


def dataset(train: Split, test: Split, **names: tuple[str, ...]) -> Dataset:
    known = {"classes": ("cat", "dog"), "attributes": (), "sources": (), **names}
    return Dataset(train, test, name="pets", fingerprint="", mean=(0.0,), std=(1.0,), **known)


def test_rows_and_names() -> None:
    """A row per class and source that has images; sources only in training leave the test set a row of its own."""
    data = dataset(of([1, 0, 1, 1], [0, 1, 1, 1], sources=True), of([0, 1, 1]), sources=("left", "right"))
    rows = sorted({*_members(data.train), *_members(data.test)})
    assert rows == [(0, -1, -1), (0, -1, 1), (1, -1, -1), (1, -1, 0), (1, -1, 1)]
    assert [_name(data, row, (1, 1234)) for row in rows[:2]] == ["cat\n1 + 1,234", "cat, right\n1 + 1,234"]
    assert {row: list(held) for row, held in _members(data.train).items()} == {
        (0, -1, 1): [1], (1, -1, 0): [0], (1, -1, 1): [2, 3],
    }  # fmt: skip


def test_images_are_spread_evenly() -> None:
    """Of 11 images of a class, six: numbers 0, 2, 4, 6, 8, 10; of two images both, once."""
    split = of([0] * 11 + [1, 1])
    strip = _strip(split, [range(11), range(11, 13)], TILE)
    assert strip.shape == (2 * TILE + GAP, PER_SPLIT * (TILE + GAP) - GAP, 3)
    middle = [column * (TILE + GAP) + TILE // 2 for column in range(PER_SPLIT)]
    assert strip[TILE // 2, middle, 0].tolist() == [0, 2, 4, 6, 8, 10]
    assert strip[TILE + GAP + TILE // 2, middle, 0].tolist() == [11, 12, 255, 255, 255, 255]
    assert (strip[:, TILE : TILE + GAP] == 255).all()


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((1, 8, 8), (72, 72, 3)),
        ((3, 28, 28), (56, 56, 3)),
        ((1, 8, 16), (32, 64, 3)),
        ((3, 256, 128), (72, 36, 3)),
    ],
)
def test_tiles(shape: tuple[int, int, int], tile: tuple[int, int, int]) -> None:
    image = np.full(shape, 9, np.uint8)
    image[0] = 200
    pixels = _tile(image)
    assert pixels.shape == tile and (pixels[..., 0] == 200).all()
    assert (pixels[..., 1] == (9 if shape[0] == 3 else 200)).all()


def test_the_file(tmp_path: Path) -> None:
    data = dataset(of([0, 1, 1, 0], [0, 1, 0, 1]), of([0, 1], [1, 1], 50), attributes=("in", "out"))
    one = contact_sheet(data, tmp_path / "new/folder/one.png", "Pets")
    two = contact_sheet(data, tmp_path / "two.png", "Pets")
    assert one.read_bytes() == two.read_bytes()
    pixels = np.asarray(Image.open(one).convert("L"))
    # Four rows and two times six columns, with labels around them; values 0 to 3 and 50, 51 are in it.
    assert pixels.shape[0] >= 4 * TILE and pixels.shape[1] >= 2 * PER_SPLIT * TILE
    assert (pixels == 51).sum() == pytest.approx(TILE * TILE, rel=0.1)
