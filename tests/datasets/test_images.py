"""Decoding of image files into arrays."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image
from raw_trees import picture
from torchvision.transforms.v2 import CenterCrop, Compose, Resize

from datasets.core.arrays import decode_into
from datasets.core.base import DataError, published
from datasets.core.images import Files, ListedDataset, ToSquare, open_rgb


@pytest.mark.parametrize(("width", "height"), [(20, 20), (40, 30), (31, 50), (20, 64)])
def test_pixels_are_torchvisions(tmp_path: Path, width: int, height: int) -> None:
    picture(tmp_path / "a.png", 0, 0, height, width)
    image = Image.open(tmp_path / "a.png")
    squashed, covered = Resize((20, 20))(image), Compose([Resize(20), CenterCrop(20)])(image)
    for how, expected in (("squash", squashed), ("cover", covered)):
        decoded = ToSquare(20, how)(tmp_path / "a.png")  # type: ignore[arg-type]
        np.testing.assert_array_equal(decoded, np.asarray(expected).transpose(2, 0, 1))


GREY = np.array([[0, 128, 255]], dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("grey.png", GREY),
        ("rgba.png", np.dstack([GREY, GREY, GREY, np.full_like(GREY, 7)])),
        # 257 x 128 = 32,896: a 16-bit image of the same grey values, which convert() would turn white.
        ("deep.png", GREY.astype(np.uint16) * 257),
        ("share.tif", GREY.astype(np.float32) / 255),
    ],
)
def test_modes_become_rgb(tmp_path: Path, name: str, values: np.ndarray) -> None:
    """Numbers of other kinds are scaled and not cut off."""
    Image.fromarray(values).save(tmp_path / name)
    image = open_rgb(tmp_path / name)
    assert image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(image), np.dstack([GREY] * 3))


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"PK\x03\x04" + bytes(30), None, EPS])
def test_a_file_that_is_no_image(tmp_path: Path, content: bytes | None) -> None:
    """Empty, a web page, an archive, cut off, and a format for which Pillow would start another program."""
    path = tmp_path / "a.png"
    picture(path, 0, 0)
    path.write_bytes(path.read_bytes()[:60] if content is None else content)
    with pytest.raises(DataError, match=r"a\.png: got a file that cannot be decoded .*; expected an image"):
        open_rgb(path)


def listed(folder: Path, decode: ToSquare) -> ListedDataset:
    """70 images for training and 3 for testing."""
    paths = [folder / f"{n:03}.png" for n in range(73)]
    for n, path in enumerate(paths):
        picture(path, 0, n, 8, 9 + n % 5)
    labels = np.arange(73, dtype=np.int64) % 2
    return ListedDataset(
        train=Files(paths[:70], labels[:70]),
        test=Files(paths[70:], labels[70:]),
        decode=decode,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        classes=("even", "odd"),
        note="made up",
        expected=published({"train": [35, 35], "test": [1, 2]}, ("even", "odd")),
    )


def test_threads_decode_each_image_to_its_place(tmp_path: Path) -> None:
    data = listed(tmp_path, ToSquare(8))
    raw = decode_into(data, tmp_path, "name")
    for split, part in ((raw.train, data.train), (raw.test, data.test)):
        assert isinstance(split.images, np.memmap) and not split.images.flags.writeable
        np.testing.assert_array_equal(split.images, np.stack([data.decode(path) for path in part.paths]))
        np.testing.assert_array_equal(split.labels, part.labels)
    for name in ("classes", "mean", "std", "note", "expected"):
        assert getattr(raw, name) == getattr(data, name)
    assert raw.expected[1] == ("train", "odd", "", 35)


def test_the_wrong_shape(tmp_path: Path) -> None:
    larger = Mock(size=8, channels=3, return_value=np.zeros((3, 9, 9), np.uint8))
    with pytest.raises(DataError, match=r"\.png: decoded into uint8 \(3, 9, 9\); expected uint8 \(3, 8, 8\)"):
        decode_into(listed(tmp_path, larger), tmp_path, "name")
