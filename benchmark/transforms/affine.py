"""Crops, rotations, flips, scales and shears of batches, with one interpolation for all of them.

A geometry consists of an affine map from output pixels to the pixels of a frame, both measured from their centres, and
of the box of the image that fills the frame. The maps of several steps are multiplied, so that the image is
interpolated once. The papers' codes interpolate in each step and round to 8 bits in between.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.core.samples import to_device

Mode = Literal["bilinear", "nearest"]
Outside = Literal["zeros", "reflection"]

CACHED_PIXELS = 160_000
"""Pixels per thread that are processed at once on a CPU: 2.5 times as fast as whole batches of large images."""


def uniform(images: Tensor, low: float, high: float, times: int = 1) -> Tensor:
    """A uniform random number [B] (or ``times`` of them) for each image [B, ...], from torch's generator."""
    return torch.rand(times * len(images), device=images.device) * (high - low) + low


def sometimes(images: Tensor, share: float = 0.5) -> Tensor:
    """True with probability ``share`` for each image: [B]."""
    return torch.rand(len(images), device=images.device) < share


# Maps from output to frame, [B, 2, 2] --------------------------------------------------------------------------------


def rotation(degrees: Tensor) -> Tensor:
    """Rotate images counter-clockwise by ``degrees`` [B]."""
    angle = degrees * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)


def flip(horizontal: Tensor, vertical: Tensor | None = None) -> Tensor:
    """Mirror images left to right and upside down where these booleans [B] are true."""
    x = 1 - 2 * horizontal.float()
    y = torch.ones_like(x) if vertical is None else 1 - 2 * vertical.float()
    return torch.diag_embed(torch.stack([x, y], -1))


def shear(x: Tensor, y: Tensor) -> Tensor:
    """Move rows sideways and columns up by tan ``x``, tan ``y`` [B] (degrees) per pixel from the centre."""
    one = torch.ones_like(x)
    across, down = (x * (math.pi / 180)).tan(), (y * (math.pi / 180)).tan()
    return torch.stack([torch.stack([one, -across], -1), torch.stack([-down, one], -1)], -2)


# Boxes of the image, [B, 4] as (top, left, height, width) ------------------------------------------------------------


def random_boxes(images: Tensor, scale: tuple[float, float]) -> Tensor:
    """Random boxes inside the image: their share of the area is from ``scale``, their ratio from 3/4 to 4/3.

    As in torchvision's RandomResizedCrop, the first of ten draws that fits is taken. If none fits, it is the largest
    central box with such a ratio. Boxes have whole pixels.
    """
    tries, (count, _, height, width) = 10, images.shape
    area = uniform(images, *scale, times=tries) * (height * width)
    ratio = uniform(images, math.log(3 / 4), math.log(4 / 3), times=tries).exp()
    wide, high = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = ((0 < wide) & (wide <= width) & (0 < high) & (high <= height)).view(tries, count)
    first = fits.float().argmax(dim=0, keepdim=True)  # argmax returns the first of equal values
    some = fits.any(dim=0)
    middle_high = float(min(height, round(width * 4 / 3)))
    middle_wide = float(min(width, round(height * 4 / 3)))
    high = torch.where(some, high.view(tries, count).gather(0, first)[0], middle_high)
    wide = torch.where(some, wide.view(tries, count).gather(0, first)[0], middle_wide)
    down, right = torch.rand(2, count, device=images.device).unbind()
    top = torch.where(some, (down * (height - high + 1)).floor(), round((height - middle_high) / 2))
    left = torch.where(some, (right * (width - wide + 1)).floor(), round((width - middle_wide) / 2))
    return torch.stack([top, left, high, wide], -1)


def shifted_boxes(images: Tensor, pad: int) -> Tensor:
    """Boxes of the image's size, shifted by -pad..pad whole pixels in both directions."""
    boxes = whole(images).clone()
    boxes[:, :2] = torch.randint(-pad, pad + 1, (len(images), 2), device=images.device)
    return boxes


def whole(images: Tensor) -> Tensor:
    """Boxes that contain the whole image."""
    return to_device(torch.tensor([0.0, 0.0, *images.shape[2:]]), images.device).expand(len(images), 4)


# Interpolation -------------------------------------------------------------------------------------------------------


def warp(
    images: Tensor,
    size: Sequence[int],
    matrix: Tensor,
    box: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    mode: Mode = "bilinear",
    outside: Outside = "zeros",
) -> Tensor:
    """Apply an affine map to images: output pixel p shows frame pixel M p + t.

    Args:
        images: [B, c, H, W].
        size: Height and width of the output.
        matrix: M [B, 2, 2].
        box: The part of the image that fills the frame, which has the output's size; outside the box everything is
            black. None: the frame is the image.
        shift: t [B, 2] as (x, y), in pixels of the frame.
        mode: How pixels are interpolated.
        outside: Without ``box``, what surrounds the image: black, or the image mirrored at its border.

    Returns:
        float [B, c, *size] in the range of ``images``.
    """
    (count, channels, height, width), device = images.shape, images.device
    extent = to_device(torch.tensor([width, height], dtype=torch.float32), device)
    unit = 2 / extent  # a pixel in grid_sample's coordinates, which go from -1 to 1 over the image
    zoom, centre = _frame(extent.expand(count, 2), size, box)
    if shift is not None:
        centre = centre + zoom * shift
    # The grid is the sum of a term per row and a term per column, which is four times as fast as affine_grid.
    to_image = (unit * zoom)[:, :, None] * matrix
    down, along = (torch.arange(length, device=device) - (length - 1) / 2 for length in size)
    by_column = (to_image[:, :, :1] * along)[:, :, None]
    by_row = (to_image[:, :, 1:] * down + (unit * centre - 1)[:, :, None])[..., None]
    out = torch.empty(count, channels, *size, device=device)
    for some in _pieces(count, math.prod(size), device):
        grid = by_row[some] + by_column[some]
        inside: Tensor | None = None
        if box is not None:
            grid, inside = _confined(grid, box[some].float(), unit)
        grid = grid.permute(0, 2, 3, 1)
        read = F.grid_sample(images[some].float(), grid, mode=mode, padding_mode=outside, align_corners=False)
        out[some] = read if inside is None else read.mul_(inside)
    return out


def _frame(extent: Tensor, size: Sequence[int], box: Tensor | None) -> tuple[Tensor, Tensor]:
    """(pixels of the image per pixel of the frame, the frame's centre in the image), both [B, 2] as (x, y)."""
    if box is None:
        return torch.ones_like(extent), extent / 2
    top, left, high, wide = box.float().unbind(1)
    zoom = torch.stack([wide / size[1], high / size[0]], 1)
    return zoom, torch.stack([left + wide / 2, top + high / 2], 1)


def _pieces(count: int, pixels: int, device: torch.device) -> Iterator[slice]:
    """Slices of images whose intermediate results fit into a core's cache; on a GPU one slice."""
    cores = torch.get_num_threads()
    at_once = max(1, cores * CACHED_PIXELS // pixels) if device.type == "cpu" else max(1, count)
    return (slice(start, start + at_once) for start in range(0, count, at_once))


def _confined(grid: Tensor, box: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Clamp places [B, 2, H, W] to boxes [B, 4]; and whether they were inside [B, 1, H, W]."""
    corner = box[:, :2].flip(1) * unit - 1
    low, high = corner[:, :, None, None], (corner + box[:, 2:].flip(1) * unit)[:, :, None, None]
    unit = unit[:, None, None]
    slack = unit / 1000  # Rounding must not put a pixel on the border outside.
    inside = (grid >= low - slack) & (grid <= high + slack)
    # The outermost pixels extend to the border, as if the crop had been cut out before.
    return grid.clamp(low + unit / 2, high - unit / 2), inside[:, :1] & inside[:, 1:]
