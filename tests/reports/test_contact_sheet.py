"""Contact sheets: which images they show, where, and that the same data give the same file."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmark.reports.contact_sheet import PER_SPLIT, TILE, _rows, _strip, _tile, contact_sheet
from datasets.core.base import Dataset, Split

MIDDLES = [column * TILE + TILE // 2 for column in range(PER_SPLIT)]


def of(labels: list[int], groups: list[int] | None = None, sources: list[int] | None = None) -> Split:
    """Grey images of one value each: 0, 1, ..."""
    images = np.tile(np.arange(len(labels), dtype=np.uint8)[:, None, None, None], (1, 1, 8, 8))
    others = [None if values is None else np.array(values) for values in (groups, sources)]
    return Split(images, np.array(labels), *others)


def pets(train: Split, test: Split, **names: tuple[str, ...]) -> Dataset:
    usual = {"name": "pets", "fingerprint": "", "mean": (0.0,), "std": (1.0,), "classes": ("cat", "dog")}
    return Dataset(train, test, **usual, **names)  # type: ignore[arg-type]


def test_images_are_spread_evenly() -> None:
    """Of 11 images of a class, six: numbers 0, 2, 4, 6, 8, 10; of two images both, once."""
    split = of([0] * 11 + [1, 1])
    strips = [_strip(split, held) for held in (range(11), range(11, 13))]
    assert {strip.shape for strip in strips} == {(TILE, PER_SPLIT * TILE, 3)}
    assert strips[0][TILE // 2, MIDDLES, 0].tolist() == [0, 2, 4, 6, 8, 10]
    assert strips[1][TILE // 2, MIDDLES, 0].tolist() == [11, 12, 255, 255, 255, 255]
    assert (strips[0][:, TILE - 2 : TILE + 2] == 255).all()


@pytest.mark.parametrize(
    ("shape", "size"), [((1, 8, 8), (68, 68)), ((3, 34, 17), (68, 34)), ((2, 128, 256), (34, 68))]
)
def test_tiles(shape: tuple[int, int, int], size: tuple[int, int]) -> None:
    """Scaled to fit, in the middle, with a margin; colours stay."""
    image = np.full(shape, 9, np.uint8)
    image[0] = 200
    tile = _tile(image)
    assert tile.shape == (TILE, TILE, 3)
    rows, columns = (np.flatnonzero((tile[..., 0] == 200).any(axis=axis)) for axis in (1, 0))
    assert (len(rows), len(columns)) == size
    assert tile[TILE // 2, TILE // 2].tolist() == [200, *[9 if shape[0] == 3 else 200] * 2]


def test_the_file(tmp_path: Path) -> None:
    """A row per class, attribute and source that has images."""
    train, test = of([1, 0, 1, 0], [0, 1, 0, 1]), of([0, 1], [1, 1], [0, 0])
    data = pets(train, test, attributes=("in", "out"), sources=("left",))
    one = contact_sheet(data, tmp_path / "new/folder/one.png", "Pets")
    two = contact_sheet(data, tmp_path / "two.png", "Pets")
    assert one.read_bytes() == two.read_bytes()
    # cat out left, dog in, dog out left: three rows, labels around them; images 0 to 3, and 0, 1 again.
    pixels = np.asarray(Image.open(one).convert("L"))
    assert 3 * TILE <= pixels.shape[0] < 5 * TILE and pixels.shape[1] >= 2 * PER_SPLIT * TILE
    assert [round((pixels == value).sum() / 68**2) for value in (2, 3)] == [1, 1]


def test_test_images_without_a_source_fill_the_rows_of_their_class() -> None:
    """Cats of two sites and dogs of one; the third test cat goes to the first site again. No row is for tests only."""
    train, test = of([0, 0, 0, 1], sources=[0, 1, 1, 0]), of([0, 0, 1, 0])
    rows, members = _rows(pets(train, test, sources=("left", "right")))
    assert rows == [(0, -1, 0), (0, -1, 1), (1, -1, 0)]
    assert [[list(held) for held in part] for part in members] == [[[0], [1, 2], [3]], [[0, 3], [1], [2]]]
