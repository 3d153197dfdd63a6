"""Image files: how they are listed, and how one file becomes an array.

A builder lists files and labels, and nothing is decoded before the list is checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from datasets.core.base import Built, DataError, Files, UInt8Array

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

FORMATS = ("JPEG", "PNG", "BMP", "TIFF")
"""Kinds of files that are decoded, whatever their names say. For others Pillow may start another program."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")


class ImageRow(NamedTuple):
    """A listed image: its file, whether it is for testing, and the indices of its class, attribute and source."""

    path: Path
    test: bool
    label: int
    attribute: int | None = None
    source: int | None = None


def two_parts(rows: Sequence[ImageRow]) -> tuple[Files, Files]:
    """Training and test files of listed images, in their order."""
    parts = []
    for test in (False, True):
        some = [row for row in rows if row.test == test]
        labels = np.array([row.label for row in some], dtype=np.int64)
        columns = [row.attribute for row in some], [row.source for row in some]
        groups = (None if None in column else np.array(column, dtype=np.int64) for column in columns)
        parts.append(Files([row.path for row in some], labels, *groups))
    return parts[0], parts[1]


def open_rgb(path: Path) -> Image.Image:
    """An image file in 8-bit RGB: transparency is dropped; grey of 16 bits or of floats is scaled, not clipped.

    Raises:
        DataError: It cannot be decoded.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            image.load()
            if image.mode.startswith(("I", "F")):  # convert() would turn 16 bits white, and 0..1 black
                return Image.fromarray(as_rgb(np.asarray(image)))
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise bad_image(path, error) from error


def bad_image(path: Path, error: Exception) -> DataError:
    """The error about a file that cannot be decoded."""
    why = " ".join(str(error).split())
    return DataError(f"{path}: got a file that cannot be decoded ({why}); expected an image. Get it again.")


def as_rgb(values: npt.NDArray[np.generic]) -> UInt8Array:
    """An array of any kind as uint8 [H, W, 3].

    Args:
        values: [H, W], [H, W, 1], [H, W, 3] or [H, W, 4] (transparency is dropped). uint8 stays as it is; floats that
            do not exceed 1 count as 0..1, others as 0..255; wider integers that exceed 255 count as 0..65535.

    Raises:
        ValueError: Another shape, no pixels, or values that are no finite numbers.
    """
    shape = values.shape
    if len(shape) not in (2, 3) or 0 in shape or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise ValueError(f"its shape is {shape}; expected H x W or H x W x 3")
    if values.dtype.kind not in "uif" or not np.isfinite(values).all():
        raise ValueError(f"its values are {values.dtype}, or not finite")
    pixels = values.reshape(*shape[:2], -1)[..., :3]
    if pixels.dtype != np.uint8:
        numbers = pixels.astype(np.float64)
        if values.dtype.kind == "f":
            numbers = np.rint(numbers * 255 if numbers.max() <= 1 else numbers)
        elif numbers.max() > 255:
            numbers = numbers // 257
        pixels = numbers.clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(pixels, (*shape[:2], 3)))


@dataclass(frozen=True)
class ToSquare:
    """Decode into size x size pixels, bilinear: ``squash`` both sides, or ``cover`` by the shorter side and crop."""

    size: int
    how: Literal["squash", "cover"] = "squash"
    channels: Literal[1, 3] = 3

    def open(self, path: Path) -> Image.Image:
        """The whole image; other kinds of files and other preprocessing override it. Errors as `open_rgb`."""
        return open_rgb(path)

    def __call__(self, path: Path) -> UInt8Array:
        """The image as uint8 [channels, size, size]. Errors as `open_rgb`."""
        image = self.open(path)
        width, height = image.size
        wanted = (self.size, self.size)
        if self.how == "cover":
            short = min(width, height)
            wanted = (int(self.size * width / short), int(self.size * height / short))
        if (width, height) != wanted:
            image = image.resize(wanted, Image.Resampling.BILINEAR)
        left, top = round((wanted[0] - self.size) / 2), round((wanted[1] - self.size) / 2)
        if wanted != (self.size, self.size):
            image = image.crop((left, top, left + self.size, top + self.size))
        pixels = np.asarray(image if self.channels == 3 else image.convert("L"))
        return np.ascontiguousarray(pixels.reshape(self.size, self.size, self.channels).transpose(2, 0, 1))


@dataclass(frozen=True, eq=False, kw_only=True)
class ListedDataset(Built[Files]):
    """What a builder of image files returns; normalised by ImageNet's mean and deviation if it does not say otherwise.

    ``decode`` makes the array of a file. Its repr must say all that the result depends on.
    """

    mean: tuple[float, ...] | None = IMAGENET_MEAN
    std: tuple[float, ...] | None = IMAGENET_STD
    decode: ToSquare

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of all images."""
        return self.decode.channels, self.decode.size, self.decode.size
