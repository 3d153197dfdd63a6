"""Brightness, contrast, saturation and hue of batches in the range 0..255, drawn for each image; black squares."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmark.transforms.affine import sometimes, uniform


def gray(x: Tensor) -> Tensor:
    """Luma [B, 1, H, W] of RGB images (ITU-R 601, as Pillow and torchvision)."""
    red, green, blue = x.unbind(1)
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]


def _each(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply every value by ``factor`` [B]."""
    return (x * _each(factor)).clamp_(0, 255)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply the difference from the image's mean luma by ``factor`` [B]."""
    luma = gray(x)
    # torch sums a single large image with several threads, which gives other last bits than one thread.
    several = luma.expand(2, -1, -1, -1) if len(x) == 1 else luma
    mean = several.mean(dim=(2, 3), keepdim=True)[: len(x)]
    return torch.lerp(mean.expand_as(x), x, _each(factor)).clamp_(0, 255)


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply the difference from each pixel's luma by ``factor`` [B]."""
    return torch.lerp(gray(x).expand_as(x), x, _each(factor)).clamp_(0, 255)


def hue(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hue of HSV by ``turn`` [B] of the full circle (0.5: the opposite colour)."""
    red, green, blue = x.unbind(1)
    value, low = x.amax(1), x.amin(1)
    chroma = value - low
    safe = torch.where(chroma > 0, chroma, 1.0)
    # The hue in sixths of the circle; the formula depends on which channel is the largest.
    sixth = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    sixth = sixth + 6 * turn.view(-1, 1, 1)
    out = torch.empty_like(x)
    for channel, n in enumerate((5, 3, 1)):
        k = (sixth + n) % 6
        out[:, channel] = value - chroma * torch.minimum(k, 4 - k).clamp_(0, 1)
    return out


def jitter(
    x: Tensor, bright: float = 0.0, contrasted: float = 0.0, saturated: float = 0.0, hued: float = 0.0
) -> Tensor:
    """Change colours with factors drawn from 1 - s to 1 + s for each image and strength s; the hue from -s to s.

    The order of the steps is drawn once for the batch, not for each image as in torchvision. It only matters where
    values are clipped at 0 or 255.
    """
    steps: list[Callable[[Tensor], Tensor]] = []
    for step, strength in ((brightness, bright), (contrast, contrasted), (saturation, saturated)):
        if strength:
            factor = uniform(x, max(0.0, 1 - strength), 1 + strength)
            steps.append(partial(step, factor=factor))
    if hued:
        steps.append(partial(hue, turn=uniform(x, -hued, hued)))
    for number in torch.randperm(len(steps)).tolist():
        x = steps[number](x)
    return x


def brightness_and_contrast(x: Tensor, shift: Tensor, factor: Tensor) -> Tensor:
    """x factor + 255 shift, both [B] (albumentations: contrast around black, brightness as a share of the range)."""
    return (x * _each(factor) + 255 * _each(shift)).clamp_(0, 255)


def sometimes_gray(x: Tensor, share: float) -> Tensor:
    """Make each image gray with probability ``share``."""
    return torch.where(_each(sometimes(x, share)), gray(x), x)


def holes(x: Tensor, most: int, size: int, share: float) -> Tensor:
    """With probability ``share``, set 1 to ``most`` random squares of ``size`` pixels to black."""
    count, _, height, width = x.shape
    number = torch.randint(1, most + 1, (count, 1), device=x.device) * sometimes(x, share)[:, None]
    corner = torch.rand(2, count, most, device=x.device)
    top = (corner[0] * max(1, height - size + 1)).floor()
    left = (corner[1] * max(1, width - size + 1)).floor()
    here = torch.arange(most, device=x.device) < number
    rows = torch.arange(height, device=x.device) - top[:, :, None]
    columns = torch.arange(width, device=x.device) - left[:, :, None]
    in_rows = ((rows >= 0) & (rows < size) & here[:, :, None]).float()
    in_columns = ((columns >= 0) & (columns < size)).float()
    return x * (in_rows.transpose(1, 2) @ in_columns == 0)[:, None]
