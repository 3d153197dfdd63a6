"""From uint8 images to network inputs, on whole batches and on the device."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.errors import ConfigError, wrong
from benchmark.transforms.affine import (
    flip,
    random_boxes,
    rotation,
    shear,
    shifted_boxes,
    sometimes,
    uniform,
    warp,
    whole,
)
from benchmark.transforms.colour import brightness_and_contrast, holes, jitter, sometimes_gray


@dataclass(frozen=True)
class Normalise:
    """uint8 [B, c, H, W] -> float [B, c, H, W]: (x/255 - mean)/std as one multiply and one add per pixel.

    ``first`` crops or resizes the images before that.
    """

    scale: Tensor
    shift: Tensor
    memory_format: torch.memory_format
    first: Callable[[Tensor], Tensor] | None = None

    @classmethod
    def of(
        cls,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        dtype: torch.dtype,
        device: torch.device,
        channels_last: bool,
    ) -> "Normalise":
        """For a data set's mean and standard deviation on the scale 0..1."""
        deviation = torch.tensor(std, dtype=torch.float64)
        scale = 1 / (255 * deviation)
        shift = -torch.tensor(mean, dtype=torch.float64) / deviation
        form = torch.channels_last if channels_last else torch.contiguous_format
        scale, shift = (values.to(device, dtype).view(1, -1, 1, 1) for values in (scale, shift))
        return cls(scale, shift, form)

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise ``images`` in the range 0..255. uint8 images are copied; float images may be overwritten."""
        if self.first is not None:
            images = self.first(images)
        # The memory format is changed last: with channels_last a factor per channel takes ten times as long.
        x = images.to(self.scale.dtype, memory_format=torch.contiguous_format)
        return x.mul_(self.scale).add_(self.shift).to(memory_format=self.memory_format)


Augment = Callable[[Tensor], Tensor]


def _crop_and_flip(images: Tensor, pad: int, reflect: bool = False) -> Tensor:
    """Shift each image by up to ``pad`` pixels, with a reflected or black border; mirror it with probability 1/2."""
    count, _, height, width = images.shape
    top, left = (torch.randint(0, 2 * pad + 1, (count,), device=images.device) for _ in range(2))
    mirrored = torch.rand(count, device=images.device) < 0.5
    # torch reflects floats only.
    wide = F.pad(images.float(), [pad] * 4, mode="reflect") if reflect else F.pad(images, [pad] * 4)
    padded = wide.to(images.dtype)
    # Every possible crop is a view of the padded image, so that whole rows are copied.
    both = torch.stack([padded, padded.flip(3)]).unfold(3, height, 1).unfold(4, width, 1)
    image = torch.arange(count, device=images.device)
    return both[mirrored.long(), image, :, top, torch.where(mirrored, 2 * pad - left, left)]


# Augmentations of the papers' codes ------------------------------------------------------------------------------

RETINA_SIZE, BIRD_SIZE, SKIN_SIZE = 384, 224, 200
"""Image sizes of FedLD, FedDiverse (WaterBirds) and FLamby (ISIC2019), in training and evaluation."""


def _turn(images: Tensor, degrees: float) -> Tensor:
    """Rotations by up to ``degrees`` in both directions."""
    return rotation(uniform(images, -degrees, degrees))


def _crop_turn_flip(images: Tensor, scale: tuple[float, float]) -> Tensor:
    """FedLD's code: a random crop resized to 384 pixels, rotated by up to 10 degrees, mirrored."""
    box = random_boxes(images, scale)
    matrix = _turn(images, 10) @ flip(sometimes(images))
    return warp(images, (RETINA_SIZE, RETINA_SIZE), matrix, box)


def _blood(images: Tensor) -> Tensor:
    """FedSDC's code on blood cells: a random crop at the stored size, mirrored, rotated; colour jitter or gray."""
    box, turn = random_boxes(images, (0.8, 1.0)), _turn(images, 180)
    cropped = warp(images, images.shape[2:], flip(sometimes(images)) @ turn, box)
    return sometimes_gray(jitter(cropped, 0.2, 0.2, 0.2, 0.2), 0.5)


def _ham10000(images: Tensor) -> Tensor:
    """FedDisco's and FedSDC's code on HAM10000: mirrored in both directions, rotated; colour jitter."""
    mirrored = flip(sometimes(images), sometimes(images))
    turned = warp(images, images.shape[2:], mirrored @ _turn(images, 20), whole(images), mode="nearest")
    return jitter(turned, 0.1, 0.1, 0.0, 0.1)


def _cifar100(images: Tensor) -> Tensor:
    """FedMR's code on CIFAR-100: shifted by up to 4 pixels, mirrored, rotated by up to 15 degrees."""
    box, turn = shifted_boxes(images, 4), _turn(images, 15)
    return warp(images, images.shape[2:], flip(sometimes(images)) @ turn, box, mode="nearest")


def _isic2019(images: Tensor) -> Tensor:
    """FLamby's code: scaled by .93 to 1.07, rotated by up to 50 degrees, mirrored, sheared, cropped to 200; holes.

    Each step except the crop happens to half of the images, which is albumentations' default.
    """
    count, _, height, width = images.shape
    device = images.device

    def maybe(values: Tensor, neutral: float = 0.0) -> Tensor:
        return torch.where(sometimes(images), values, neutral)

    scale = maybe(uniform(images, 0.93, 1.07), 1.0)
    turn = rotation(maybe(uniform(images, -50, 50)))
    # One of three with equal probability: horizontal, vertical, both.
    kind = maybe(torch.randint(1, 4, (count,), device=device).float())
    mirrored = flip((kind == 1) | (kind == 3), (kind == 2) | (kind == 3))
    slant = shear(*(maybe(uniform(images, -0.1, 0.1)) for _ in range(2)))
    matrix = turn @ mirrored @ slant / scale[:, None, None]
    # A random position of the crop inside the scaled image.
    room = torch.stack([scale * width - SKIN_SIZE, scale * height - SKIN_SIZE], 1).clamp(min=0)
    place = (torch.rand(count, 2, device=device) - 0.5) * room
    shift = (matrix @ place[:, :, None])[:, :, 0]
    x = warp(images, (SKIN_SIZE, SKIN_SIZE), matrix, shift=shift, outside="reflection")
    light = sometimes(images)
    brightness = torch.where(light, uniform(images, -0.15, 0.15), 0.0)
    contrast = torch.where(light, uniform(images, 0.9, 1.1), 1.0)
    return holes(brightness_and_contrast(x, brightness, contrast), 8, 16, 0.5)


def _waterbirds(images: Tensor) -> Tensor:
    """FedDiverse's code: the central 224 pixels, padded with black by 24, a random crop of 224; mirrored."""
    return _crop_and_flip(_middle(images, BIRD_SIZE), 24)


def _middle(images: Tensor, size: int) -> Tensor:
    height, width = images.shape[2:]
    if min(height, width) < size:
        expected = f"at least {size}, since train.augment crops {size} x {size} pixels, or train.augment=none"
        raise ConfigError(wrong("dataset.options.size", min(height, width), expected))
    top, left = round((height - size) / 2), round((width - size) / 2)
    return images[:, :, top : top + size, left : left + size]


def _shorter_side(images: Tensor, size: int) -> Tensor:
    """Resize the shorter side to ``size`` pixels, then crop the centre."""
    # The import takes a second, and few runs need it.
    from torchvision.transforms.v2.functional import resize

    return _middle(resize(images, [size], antialias=True), size)


@dataclass(frozen=True)
class Augmentation:
    """What happens to uint8 images [B, c, H, W] before they are normalised.

    Attributes:
        train: In training: random, from torch's generator. Returns uint8 or float in the range 0..255.
        evaluation: In evaluation: deterministic. None: the images as they are stored.
        rgb: Whether it needs three channels.
    """

    train: Augment
    evaluation: Augment | None = None
    rgb: bool = False


_RETINA_EVALUATION = partial(_shorter_side, size=RETINA_SIZE)

AUGMENTATIONS: dict[str, Augmentation | None] = {
    "none": None,
    "reflect_crop_flip": Augmentation(partial(_crop_and_flip, pad=4, reflect=True)),
    "crop_flip": Augmentation(partial(_crop_and_flip, pad=4)),
    "cifar100": Augmentation(_cifar100),
    "retina": Augmentation(partial(_crop_turn_flip, scale=(0.6, 1.0)), _RETINA_EVALUATION),
    "covid_fl": Augmentation(partial(_crop_turn_flip, scale=(0.8, 1.2)), _RETINA_EVALUATION),
    "blood": Augmentation(_blood, rgb=True),
    "ham10000": Augmentation(_ham10000, rgb=True),
    "isic2019": Augmentation(_isic2019, partial(_middle, size=SKIN_SIZE)),
    "waterbirds": Augmentation(_waterbirds, partial(_middle, size=BIRD_SIZE)),
}


def augmentation(name: str, channels: int = 3) -> Augmentation | None:
    """The augmentation called ``name`` for images with ``channels`` channels. Raises `ConfigError` if there is none."""
    if name not in AUGMENTATIONS:
        expected = f"one of {', '.join(AUGMENTATIONS)}"
        raise ConfigError(wrong("train.augment", name, expected, known=AUGMENTATIONS))
    chain = AUGMENTATIONS[name]
    if chain is not None and chain.rgb and channels != 3:
        allowed = ", ".join(key for key, a in AUGMENTATIONS.items() if a is None or not a.rgb)
        expected = f"one of {allowed} for images with {channels} channel(s)"
        raise ConfigError(wrong("train.augment", name, expected))
    return chain
