"""Crops, rotations, flips, scales and shears of whole batches, each image with its own, in one interpolation.

A geometry is an affine map from the pixels of the output to those of a frame, both counted from their centres, and a
box of the image that fills the frame. The maps of several steps are multiplied, and the image is read once. Reference
codes read it anew in each step, with 8-bit rounding in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Mode = Literal["bilinear", "nearest"]
Outside = Literal["zeros", "reflection"]

CACHED_PIXELS = 160_000
"""Pixels per thread that are read in one go on a CPU: 2.5 times as fast as whole batches of large images."""


def uniform(count: int, low: float, high: float, device: torch.device) -> Tensor:
    """One number per image [count], from torch's generator."""
    return torch.rand(count, device=device) * (high - low) + low


def sometimes(count: int, share: float, device: torch.device) -> Tensor:
    """Whether something happens to an image [count], with this probability."""
    return torch.rand(count, device=device) < share


# Maps from output to frame, [B, 2, 2] --------------------------------------------------------------------------------


def rotation(degrees: Tensor) -> Tensor:
    """Turn images counter-clockwise by ``degrees`` [B]."""
    angle = degrees * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)


def flip(horizontal: Tensor, vertical: Tensor | None = None) -> Tensor:
    """Mirror images left to right and upside down where these booleans [B] say so."""
    x = 1 - 2 * horizontal.float()
    y = torch.ones_like(x) if vertical is None else 1 - 2 * vertical.float()
    return torch.diag_embed(torch.stack([x, y], -1))


def shear(x: Tensor, y: Tensor) -> Tensor:
    """Move rows sideways and columns up by the tangent of ``x``, ``y`` [B], in degrees, per pixel from the centre."""
    one = torch.ones_like(x)
    across, down = (x * (math.pi / 180)).tan(), (y * (math.pi / 180)).tan()
    return torch.stack([torch.stack([one, -across], -1), torch.stack([-down, one], -1)], -2)


# Boxes of the image, [B, 4] as (top, left, height, width) ------------------------------------------------------------


def random_boxes(
    count: int, height: int, width: int, scale: tuple[float, float], device: torch.device
) -> Tensor:
    """Boxes with a share of the area drawn from ``scale`` and a ratio of 3/4 to 4/3, whole pixels, inside the image.

    As torchvision's RandomResizedCrop: one that does not fit is drawn anew, at most ten times in all; then the largest
    box in the middle that has a ratio from 3/4 to 4/3 is taken.
    """
    tries = 10
    area = uniform(tries * count, *scale, device) * (height * width)
    ratio = uniform(tries * count, math.log(3 / 4), math.log(4 / 3), device).exp()
    wide, high = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = ((0 < wide) & (wide <= width) & (0 < high) & (high <= height)).view(tries, count)
    first = fits.float().argmax(dim=0, keepdim=True)  # of equal ones the first
    some = fits.any(dim=0)
    middle_high, middle_wide = (
        float(min(height, round(width * 4 / 3))),
        float(min(width, round(height * 4 / 3))),
    )
    high = torch.where(some, high.view(tries, count).gather(0, first)[0], middle_high)
    wide = torch.where(some, wide.view(tries, count).gather(0, first)[0], middle_wide)
    down, right = torch.rand(2, count, device=device).unbind()
    top = torch.where(some, (down * (height - high + 1)).floor(), round((height - middle_high) / 2))
    left = torch.where(some, (right * (width - wide + 1)).floor(), round((width - middle_wide) / 2))
    return torch.stack([top, left, high, wide], -1)


def shifted_boxes(count: int, height: int, width: int, pad: int, device: torch.device) -> Tensor:
    """Boxes of the image's size, moved by -pad..pad whole pixels in both directions."""
    corner = torch.randint(-pad, pad + 1, (count, 2), device=device).float()
    return torch.cat([corner, corner.new_tensor([height, width]).expand(count, 2)], dim=1)


def whole(count: int, height: int, width: int, device: torch.device) -> Tensor:
    """The whole image, as boxes."""
    return torch.tensor([0.0, 0.0, height, width], device=device).expand(count, 4)


# Reading -------------------------------------------------------------------------------------------------------------


def warp(
    images: Tensor,
    size: tuple[int, int],
    matrix: Tensor,
    box: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    mode: Mode = "bilinear",
    outside: Outside = "zeros",
) -> Tensor:
    """Images [B, c, H, W] as float [B, c, *size] in the range they came in: output pixel p shows frame pixel M p + t.

    ``matrix`` M [B, 2, 2], ``shift`` t [B, 2] in pixels of the frame as (x, y). With ``box`` the frame has the size of
    the output and is filled with this part of the image; what lies outside the box is black, as behind a crop that is
    rotated. Without, frame and image have the same pixels, and ``outside`` says what lies around it: black, or the
    image mirrored at its border.
    """
    (count, channels, height, width), (rows, columns) = images.shape, size
    device = images.device
    extent = torch.tensor([width, height], device=device, dtype=torch.float32)
    if box is None:
        zoom, centre = torch.ones(count, 2, device=device), (extent / 2).expand(count, 2)
    else:
        top, left, high, wide = box.float().unbind(1)
        zoom = torch.stack([wide / columns, high / rows], 1)
        centre = torch.stack([left + wide / 2, top + high / 2], 1)
    if shift is not None:
        centre = centre + zoom * shift
    # grid_sample counts from -1 to 1 over the image. The grid is a sum of one term per row and one per column, which is
    # four times as fast as affine_grid; x and y are planes of their own, which later steps go through in one piece.
    unit = 2 / extent
    to_image = (unit * zoom)[:, :, None] * matrix
    along = torch.arange(columns, device=device) - (columns - 1) / 2
    down = torch.arange(rows, device=device) - (rows - 1) / 2
    by_column = (to_image[:, :, :1] * along)[:, :, None]
    by_row = (to_image[:, :, 1:] * down + (unit * centre - 1)[:, :, None])[..., None]
    edges = None
    if box is not None:
        corner = torch.stack([left, top], 1) * unit - 1
        edges = corner, corner + torch.stack([wide, high], 1) * unit
    out = torch.empty(count, channels, rows, columns, device=device)
    for some in _pieces(count, rows * columns, device):
        grid = by_row[some] + by_column[some]
        inside = None
        if edges is not None:
            grid, inside = _confined(grid, edges[0][some], edges[1][some], unit)
        read = F.grid_sample(
            images[some].float(),
            grid.permute(0, 2, 3, 1),
            mode=mode,
            padding_mode=outside,
            align_corners=False,
        )
        out[some] = read if inside is None else read.mul_(inside)
    return out


def _pieces(count: int, pixels: int, device: torch.device) -> Iterator[slice]:
    """So many images at a time that what is computed for them stays in a core's cache; on a GPU all at once."""
    cores = torch.get_num_threads()
    each = max(1, cores * CACHED_PIXELS // pixels) if device.type == "cpu" else max(1, count)
    return (slice(start, start + each) for start in range(0, count, each))


def _confined(grid: Tensor, low: Tensor, high: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Places [B, 2, H, W] moved into boxes from ``low`` to ``high`` [B, 2]; whether they were inside [B, 1, H, W]."""
    low, high, unit = low[:, :, None, None], high[:, :, None, None], unit[:, None, None]
    slack = unit / 1000  # a pixel on the border is inside, whatever the last bits say
    inside = (grid >= low - slack) & (grid <= high + slack)
    # The outermost pixels are stretched to the border, as by a resize that knows nothing beyond the crop.
    return grid.clamp(low + unit / 2, high - unit / 2), inside[:, :1] & inside[:, 1:]
