"""Crops, rotations, flips, scales and shears of batches, held against torchvision on single images."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from benchmark.transforms.affine import (
    Mode,
    flip,
    random_boxes,
    rotation,
    shifted_boxes,
    warp,
    whole,
)

MODES: tuple[Mode, ...] = ("bilinear", "nearest")


def noise(height: int = 12, width: int = 9, count: int = 2) -> Tensor:
    generator = np.random.default_rng(0)
    return torch.from_numpy(generator.integers(0, 256, (count, 3, height, width), dtype=np.uint8))


def smooth(side: int = 40) -> Tensor:
    """One image [1, 3, side, side] without edges, so that two interpolations in a row are nearly one."""
    y, x = torch.meshgrid(torch.arange(side) / side, torch.arange(side) / side, indexing="ij")
    channels = [100 + 80 * torch.sin(3 * x + y), 120 + 60 * torch.cos(2 * y - x), 90 + 90 * x * y]
    return torch.stack(channels)[None]


def blank(count: int, height: int, width: int) -> Tensor:
    return torch.zeros(1).expand(count, 1, height, width)


def some(*values: float) -> Tensor:
    return torch.tensor(values)


def interior(x: Tensor, share: float = 0.3) -> Tensor:
    """The middle of the images, which no border reaches."""
    h, w = (int(n * share) for n in x.shape[-2:])
    return x[..., h : x.shape[-2] - h, w : x.shape[-1] - w]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("boxed", [False, True])
def test_flips_are_exact_and_each_images_own(mode: Mode, boxed: bool) -> None:
    images = noise(count=4)
    horizontal, vertical = torch.tensor([[False, True, False, True], [False, False, True, True]])
    box = whole(images) if boxed else None
    out = warp(images, (12, 9), flip(horizontal, vertical), box, mode=mode)
    expected = [images[0], images[1].flip(2), images[2].flip(1), images[3].flip(1, 2)]
    torch.testing.assert_close(out, torch.stack(expected).float(), rtol=0, atol=2e-3)


@pytest.mark.parametrize("angle", [-170.0, -10.0, 7.5, 45.0, 90.0])
def test_rotation(angle: float) -> None:
    """torchvision's rotate; nearest pixels may differ where a place falls between two."""
    image = noise(21, 21, 1)
    nearest = warp(image, (21, 21), rotation(some(angle)), whole(image), mode="nearest")
    expected = tv.rotate(image, angle, InterpolationMode.NEAREST)
    assert float((nearest == expected).float().mean()) > 0.98
    bilinear = warp(smooth(), (40, 40), rotation(some(angle)))
    expected = tv.rotate(smooth(), angle, InterpolationMode.BILINEAR)
    torch.testing.assert_close(interior(bilinear), interior(expected), rtol=0, atol=0.02)


def test_what_is_rotated_in_is_black() -> None:
    """Outside of the crop, not only outside of the image: the corners of a square turned by 45 degrees."""
    image = torch.full((1, 1, 60, 60), 200, dtype=torch.uint8)
    out = warp(image, (40, 40), rotation(some(45.0)), torch.tensor([[10.0, 10.0, 40.0, 40.0]]))[0, 0]
    y, x = torch.meshgrid(torch.arange(40) - 19.5, torch.arange(40) - 19.5, indexing="ij")
    away = (x.abs() + y.abs()) / math.sqrt(2)
    assert bool((out[away > 20.1] == 0).all())
    torch.testing.assert_close(out[away < 19.9], torch.full_like(out[away < 19.9], 200))


@pytest.mark.parametrize("box", [(0, 0, 12, 9), (2, 1, 7, 6), (5, 0, 4, 9), (3, 3, 1, 1)])
def test_crops_as_torchvision_resizes_them(box: tuple[int, int, int, int]) -> None:
    """The pixels at the border of the crop are stretched, those beyond it are not looked at."""
    image = noise(count=1)
    out = warp(image, (20, 20), torch.eye(2)[None], torch.tensor([box], dtype=torch.float32))
    expected = tv.resized_crop(image.float(), *box, [20, 20], InterpolationMode.BILINEAR, antialias=True)
    torch.testing.assert_close(out, expected, rtol=0, atol=0.01)


def test_a_shift_moves_the_frame() -> None:
    """Two pixels to the right and one down in the image: the output's content moves left and up."""
    image = noise(count=1)
    out = warp(image, (6, 5), torch.eye(2)[None], shift=torch.tensor([[2.0, 1.0]]), mode="nearest")
    assert torch.equal(out, image[:, :, 4:10, 4:9].float())  # (12 - 6)/2 + 1 and (9 - 5)/2 + 2


def test_shifted_boxes_are_crops_of_a_padded_image() -> None:
    image = noise(12, 9, 1)
    padded = np.pad(image.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)))
    torch.manual_seed(0)
    boxes = shifted_boxes(image.expand(500, 3, 12, 9), 4)
    assert {tuple(b) for b in boxes[:, 2:].tolist()} == {(12.0, 9.0)}
    assert sorted(set(boxes[:, 0].tolist())) == sorted(set(boxes[:, 1].tolist())) == list(range(-4, 5))
    for box in boxes[:20]:
        top, left = (int(v) + 4 for v in box[:2])
        out = warp(image, (12, 9), torch.eye(2)[None], box[None], mode="nearest")
        np.testing.assert_array_equal(out, padded[:, :, top : top + 12, left : left + 9])


# Draws -----------------------------------------------------------------------------------------------------------


def test_boxes_follow_the_rule_of_random_resized_crop() -> None:
    torch.manual_seed(0)
    boxes = random_boxes(blank(4000, 256, 256), (0.6, 1.0))
    top, left, high, wide = boxes.unbind(1)
    assert torch.equal(boxes, boxes.round())
    assert bool(((top >= 0) & (left >= 0) & (top + high <= 256) & (left + wide <= 256)).all())
    share = high * wide / 256**2
    assert float(share.min()) > 0.59
    assert float(share.max()) < 1.01
    ratio = (wide / high).log()
    assert float(ratio.abs().max()) < math.log(4 / 3) + 0.01
    assert abs(float(ratio.mean())) < 0.02
    # What does not fit is drawn anew, so large areas are rarer than small ones, and nearly square.
    assert float((share < 0.7).float().mean()) > float((share > 0.9).float().mean())
    # Places are uniform among those that there are.
    movable = high < 250
    assert float((top / (256 - high))[movable].mean()) == pytest.approx(0.5, abs=0.03)
    small = random_boxes(blank(4000, 256, 256), (0.2, 0.4))
    area = small[:, 2] * small[:, 3] / 256**2
    assert float(area.mean()) == pytest.approx(0.3, abs=0.005)  # here nearly all fit: uniform from .2 to .4
    assert float(area.std()) == pytest.approx(0.2 / math.sqrt(12), abs=0.005)
