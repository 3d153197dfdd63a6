"""Colours of batches, held against torchvision on single images and against arithmetic by hand."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from benchmark.transforms import colour


def images(count: int = 3) -> Tensor:
    """Random colours, and among them black, white, grey and the six pure ones."""
    x = torch.from_numpy(np.random.default_rng(0).uniform(0, 255, (count, 3, 6, 7)).astype(np.float32))
    pure = [(0, 0, 0), (1, 1, 1), (0.5, 0.5, 0.5), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)]
    x[:, :, 0, :] = 255 * torch.tensor(pure).T
    return x


PAIRS: dict[str, tuple[Callable, Callable, tuple[float, ...]]] = {
    "brightness": (colour.brightness, tv.adjust_brightness, (0.0, 0.8, 1.3)),
    "contrast": (colour.contrast, tv.adjust_contrast, (0.0, 0.8, 1.3)),
    "saturation": (colour.saturation, tv.adjust_saturation, (0.0, 0.8, 1.3)),
    "hue": (colour.hue, tv.adjust_hue, (-0.5, -0.1, 0.37)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_each_image_with_its_own_factor_as_torchvision(name: str) -> None:
    """torchvision takes the luma's weights to four digits, .2989 for red: a tenth of a grey value at most."""
    ours, theirs, factors = PAIRS[name]
    x = images()
    kept = x.clone()
    out = ours(x, torch.tensor(factors))
    assert torch.equal(x, kept)
    for image, changed, factor in zip(x, out, factors, strict=True):
        expected = 255 * theirs(image / 255, factor)
        torch.testing.assert_close(changed, expected, rtol=0, atol=0.2)


def test_jitter_draws_for_each_image_between_the_bounds() -> None:
    """All images are the same uniform grey, which only brightness changes: 100 times .8 to 1.2."""
    x = torch.full((3000, 3, 2, 2), 100.0)
    torch.manual_seed(0)
    out = colour.jitter(x, 0.2, 0.2, 0.2, 0.2)
    factors = out[:, 0, 0, 0] / 100
    torch.testing.assert_close(out, (100 * factors).view(-1, 1, 1, 1).expand_as(x), rtol=0, atol=1e-3)
    assert float(factors.min()) > 0.799
    assert float(factors.max()) < 1.201
    assert float(factors.mean()) == pytest.approx(1.0, abs=0.01)
    assert float(factors.std()) == pytest.approx(0.4 / 12**0.5, abs=0.005)
    assert torch.equal(colour.jitter(x[:2]), x[:2])


def test_some_images_lose_their_colours() -> None:
    x = images(1).expand(2000, 3, 6, 7)
    torch.manual_seed(0)
    out = colour.sometimes_gray(x, 0.5)
    without = (out[:, 0] == out[:, 1]).all(dim=(1, 2)) & (out[:, 0] == out[:, 2]).all(dim=(1, 2))
    assert float(without.float().mean()) == pytest.approx(0.5, abs=0.05)
    assert torch.equal(out[~without], x[~without])
    expected = 255 * tv.rgb_to_grayscale(x[0] / 255, 3)
    torch.testing.assert_close(out[without][0], expected, rtol=0, atol=0.1)


def test_holes() -> None:
    x = torch.ones(2000, 3, 40, 50)
    torch.manual_seed(0)
    black = colour.holes(x, 3, 8, 0.5) == 0
    assert torch.equal(black[:, 0], black[:, 2])
    covered = black[:, 0].sum(dim=(1, 2))
    assert float((covered > 0).float().mean()) == pytest.approx(0.5, abs=0.05)
    one = covered == 64
    assert int(covered[covered > 0].min()) == 64  # one whole square at least, none cut by the border
    assert int(covered.max()) <= 3 * 64
    # One of 1, 2, 3 holes, evenly; two or three rarely hide behind one another.
    assert float(one.sum() / (covered > 0).sum()) == pytest.approx(1 / 3, abs=0.05)
    rows = black[one, 0].any(dim=2).float().argmax(dim=1)
    assert (int(rows.min()), int(rows.max())) == (0, 32)
    assert torch.equal(colour.holes(x[:9], 3, 8, 0.0), x[:9])
