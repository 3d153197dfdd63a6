"""Normalisation and augmentation of uint8 batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmark.engine.transforms import Normalise, augmentation
from benchmark.errors import ConfigError


@pytest.mark.parametrize("channels_last", [False, True])
def test_normalise(channels_last: bool) -> None:
    """(x/255 - mean)/std per channel: 0 -> -.5/.25 = -2, 255 -> .5/.25 = 2, and with mean 0, std .5: 0 -> 0,
    51 -> .4."""
    normalise = Normalise.of((0.5, 0.0), (0.25, 0.5), torch.float64, torch.device("cpu"), channels_last)
    images = torch.tensor([[[[0, 255]], [[0, 51]]]], dtype=torch.uint8)
    kept = images.clone()
    out = normalise(images)
    np.testing.assert_allclose(out, [[[[-2, 2]], [[0, 0.4]]]], rtol=0, atol=1e-14)
    assert out.dtype == torch.float64
    assert torch.equal(images, kept)


def batch() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(1, 256, size=(64, 3, 8, 8), dtype=np.uint8))


@pytest.mark.parametrize("name", ["crop_flip", "reflect_crop_flip"])
def test_crop_and_flip_keep_whole_rows_of_pixels(name: str) -> None:
    """Every image is a shifted, perhaps mirrored, copy: the pixel that stays inside keeps its channels together."""
    images = batch()
    augment = augmentation(name)
    assert augment is not None
    torch.manual_seed(0)
    out = augment(images)
    assert out.shape == images.shape
    assert out.dtype == torch.uint8
    for before, after in zip(images, out, strict=True):
        known = {tuple(pixel) for pixel in before.permute(1, 2, 0).reshape(-1, 3).tolist()}
        pixels = {tuple(pixel) for pixel in after.permute(1, 2, 0).reshape(-1, 3).tolist()}
        assert pixels - known <= ({(0, 0, 0)} if name == "crop_flip" else set())
        assert len(pixels & known) >= 16  # shifted by at most 4 of 8 pixels in each direction
    assert len({tuple(image.flatten().tolist()) for image in augment(images[:1].expand(64, 3, 8, 8))}) > 20
    torch.manual_seed(0)
    assert torch.equal(augment(images), out)


def test_offsets_and_mirrors_are_uniform() -> None:
    """One bright pixel in the middle of 17 x 17: shifts of -4..4 and both mirrors, all about equally often."""
    images = torch.zeros(8100, 1, 17, 17, dtype=torch.uint8)
    images[:, 0, 8, 8] = 9
    augment = augmentation("crop_flip")
    assert augment is not None
    torch.manual_seed(1)
    places = augment(images)[:, 0].nonzero()[:, 1:] - 8
    assert len(places) == 8100
    cells = np.bincount(((places[:, 0] + 4) * 9 + places[:, 1] + 4).numpy(), minlength=81)
    assert cells.min() > 100 - 5 * 10
    assert cells.max() < 100 + 5 * 10
    corner = torch.zeros(2000, 1, 17, 17, dtype=torch.uint8)
    corner[:, 0, 8, 6] = 9  # two left of the middle: mirrored, two right of it
    mirrored = (augment(corner)[:, 0].nonzero()[:, 2] - 8).float().mean()
    assert abs(float(mirrored)) < 5 * ((4 + 20 / 3) / 2000) ** 0.5  # variance: +-2 and a shift of -4..4


def test_none_and_mistakes() -> None:
    assert augmentation("none") is None
    with pytest.raises(
        ConfigError, match=r"train\.augment: came 'crop_flp'\. Did you mean 'crop_flip'\? Allowed: none, "
    ):
        augmentation("crop_flp")
