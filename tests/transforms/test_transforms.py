"""Normalisation and augmentation of uint8 batches."""

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import CenterCrop, Compose, Resize

from benchmark.errors import ConfigError
from benchmark.transforms.augmentation import AUGMENTATIONS, Augment, Normalise, augmentation


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


def drawn(name: str) -> Augment:
    """What an augmentation does in training."""
    chain = augmentation(name)
    assert chain is not None
    return chain.train


@pytest.mark.parametrize("name", ["crop_flip", "reflect_crop_flip"])
def test_crop_and_flip_keep_whole_rows_of_pixels(name: str) -> None:
    """Every image is a shifted, perhaps mirrored, copy: the pixel that stays inside keeps its channels together."""
    images = torch.from_numpy(np.random.default_rng(0).integers(1, 256, (64, 3, 8, 8), dtype=np.uint8))
    torch.manual_seed(0)
    out = drawn(name)(images)
    assert out.shape == images.shape
    assert out.dtype == torch.uint8
    for before, after in zip(images, out, strict=True):
        known = {tuple(pixel) for pixel in before.permute(1, 2, 0).reshape(-1, 3).tolist()}
        pixels = {tuple(pixel) for pixel in after.permute(1, 2, 0).reshape(-1, 3).tolist()}
        assert pixels - known <= ({(0, 0, 0)} if name == "crop_flip" else set())
        assert len(pixels & known) >= 16  # shifted by at most 4 of 8 pixels in each direction


# The reference codes' ------------------------------------------------------------------------------------------

# (height and width of what is stored, of what the network sees)
SIZES = {
    "crop_flip": ((32, 32), (32, 32)),
    "reflect_crop_flip": ((32, 32), (32, 32)),
    "cifar100": ((32, 32), (32, 32)),
    "retina": ((256, 256), (384, 384)),
    "covid_fl": ((256, 256), (384, 384)),
    "blood": ((224, 224), (224, 224)),
    "ham10000": ((56, 56), (56, 56)),
    "isic2019": ((224, 224), (200, 200)),
    "waterbirds": ((256, 256), (224, 224)),
}
CHAINS = {
    "retina": [Resize(384), CenterCrop(384)],
    "covid_fl": [Resize(384), CenterCrop(384)],
    "waterbirds": [CenterCrop(224)],
    "isic2019": [CenterCrop(200)],
}
"""Evaluation in torchvision's words, where it is more than the image as it is stored."""


def noise(count: int, *size: int) -> torch.Tensor:
    generator = np.random.default_rng(0)
    return torch.from_numpy(generator.integers(0, 256, (count, 3, *size), dtype=np.uint8))


@pytest.mark.parametrize("name", SIZES)
def test_sizes_draws_and_threads(name: str) -> None:
    """Training and evaluation have the same size; images have draws of their own, the same on any number of threads."""
    stored, seen = SIZES[name]
    images = noise(1, *stored).expand(4, 3, *stored)
    kept, augment = images.clone(), drawn(name)
    outcomes = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        for part in (images, images[:1]):
            torch.manual_seed(5)
            outcomes.append(augment(part))
    out = outcomes[0]
    assert torch.equal(out, outcomes[2])
    assert torch.equal(outcomes[1], outcomes[3])
    assert out.shape == (4, 3, *seen)
    assert 0 <= float(out.min()) < float(out.max()) <= 255.001
    assert len({tuple(image.flatten()[::97].tolist()) for image in out}) == 4
    evaluation = AUGMENTATIONS[name].evaluation
    evaluated = images if evaluation is None else evaluation(images)
    assert torch.equal(evaluated, Compose(CHAINS[name])(images) if name in CHAINS else images)
    assert evaluated.shape == out.shape
    assert torch.equal(images, kept)


def test_waterbirds_are_shifted_by_at_most_24_pixels() -> None:
    """The middle pixel of 256 is that of 224; what comes in from outside is black."""
    image = torch.full((1, 3, 256, 256), 7, dtype=torch.uint8)
    image[:, :, 128, 128] = 250
    torch.manual_seed(0)
    out = drawn("waterbirds")(image.expand(300, 3, 256, 256))
    places = (out[:, 0] == 250).nonzero()
    assert len(places) == 300
    away = places[:, 1] - 112
    assert (int(away.min()), int(away.max())) == (-24, 24)
    first = int(away[0])
    black = (out[0, 0] == 0).all(dim=1).sum()
    assert int(black) == abs(first)


@pytest.mark.parametrize(
    ("name", "channels", "message"),
    [
        ("crop_flp", 3, r"got 'crop_flp'; .*none, .*Did you mean 'crop_flip'"),
        ("blood", 1, r"got 'blood'; .*none, .*1 channel"),
    ],
)
def test_mistakes(name: str, channels: int, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"train\.augment: {message}"):
        augmentation(name, channels)
    with pytest.raises(ConfigError, match=r"dataset\.options\.size: got 64; expected at least 224"):
        drawn("waterbirds")(noise(2, 64, 64))
    assert augmentation("none") is None
    assert augmentation("cifar100", 1) is not None
