"""From uint8 images to network inputs, on whole batches and on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.errors import ConfigError, nearest


@dataclass(frozen=True)
class Normalise:
    """uint8 [B, c, H, W] -> float [B, c, H, W] with the data set's mean and standard deviation (0..1 scale)."""

    scale: Tensor
    shift: Tensor
    memory_format: torch.memory_format

    @classmethod
    def of(
        cls,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        dtype: torch.dtype,
        device: torch.device,
        channels_last: bool,
    ) -> Normalise:
        """(x/255 - mean)/std as one multiply and one add per pixel."""
        deviation = torch.tensor(std, dtype=torch.float64)
        scale = 1 / (255 * deviation)
        shift = -torch.tensor(mean, dtype=torch.float64) / deviation
        form = torch.channels_last if channels_last else torch.contiguous_format
        return cls(
            scale.to(device, dtype).view(1, -1, 1, 1),
            shift.to(device, dtype).view(1, -1, 1, 1),
            memory_format=form,
        )

    def __call__(self, images: Tensor) -> Tensor:
        """Normalised copy of ``images``; float images are only brought to the right type."""
        x = images.to(self.scale.dtype, memory_format=self.memory_format)
        return x.mul_(self.scale).add_(self.shift)


Augment = Callable[[Tensor], Tensor]


def _crop(images: Tensor, pad: int, mode: str) -> Tensor:
    """Each image shifted by its own random offset of up to ``pad`` pixels; borders reflected or zero."""
    count, _, height, width = images.shape
    padded = F.pad(images.float(), (pad, pad, pad, pad), mode=mode).to(images.dtype)
    top = torch.randint(0, 2 * pad + 1, (count, 1, 1), device=images.device)
    left = torch.randint(0, 2 * pad + 1, (count, 1, 1), device=images.device)
    rows = top + torch.arange(height, device=images.device).view(1, -1, 1)
    columns = left + torch.arange(width, device=images.device).view(1, 1, -1)
    each = torch.arange(count, device=images.device).view(-1, 1, 1)
    return padded.permute(0, 2, 3, 1)[each, rows, columns].permute(0, 3, 1, 2)


def _flip(images: Tensor) -> Tensor:
    """Each image mirrored with probability 1/2."""
    mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(3), images)


def _reflect_crop_flip(images: Tensor) -> Tensor:
    return _flip(_crop(images, 4, "reflect"))


def _crop_flip(images: Tensor) -> Tensor:
    return _flip(_crop(images, 4, "constant"))


AUGMENTATIONS: dict[str, Augment | None] = {
    "none": None,
    "reflect_crop_flip": _reflect_crop_flip,
    "crop_flip": _crop_flip,
}


def augmentation(name: str) -> Augment | None:
    """The augmentation called ``name`` on uint8 batches; it draws from torch's generator, which the loop seeds."""
    if name not in AUGMENTATIONS:
        known = ", ".join(AUGMENTATIONS)
        raise ConfigError(f"train.augment: came {name!r}.{nearest(name, AUGMENTATIONS)} Allowed: {known}.")
    return AUGMENTATIONS[name]
