"""Drawing of the stand-ins' images: scikit-learn's digits shifted, coloured, cluttered and made noisy.

All functions work on batches of ink (float [N, H, W], 0 paper .. 1 ink) or images (float [N, C, H, W], 0..1) and draw
from the generator they are given. `RandomState` is used because numpy freezes its stream: committed results stay valid.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Generator = np.random.RandomState


# Nine positions, the original first: the first use of each digit is the digit as it is.
SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))


def shift(ink: Floats, which: Integers) -> Floats:
    """Each image of [N, H, W] moved by `SHIFTS[which % 9]` (down, right); the edge is filled with 0."""
    padded = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
    height, width = ink.shape[1:]
    moved = np.empty_like(ink)
    for number, (down, right) in enumerate(SHIFTS):
        rows = which % len(SHIFTS) == number
        moved[rows] = padded[rows, 1 - down : 1 - down + height, 1 - right : 1 - right + width]
    return moved


def grey(ink: Floats, attributes: Integers, cue: float, generator: Generator) -> Floats:
    """Bright ink on black: one channel."""
    return ink[:, None]


def colour(ink: Floats, attributes: Integers, cue: float, generator: Generator) -> Floats:
    """Ink in one channel of three: attribute 0 is red, 1 is green, as in CMNIST."""
    images = np.zeros((len(ink), 3, *ink.shape[1:]))
    images[np.arange(len(ink)), attributes] = ink
    return images


def scene(ink: Floats, attributes: Integers, cue: float, generator: Generator) -> Floats:
    """Light ink on a background that shows the attribute as far as `cue` (0..1): 0 warm waves, 1 cold speckles."""
    count, height, width = ink.shape
    warm_or_cold = np.array([[0.12, 0.01, -0.13], [-0.12, -0.01, 0.13]])[attributes]
    tints = np.array([0.30, 0.29, 0.27]) + cue * warm_or_cold
    tints += generator.normal(0, 0.05, (count, 3))
    phase = generator.uniform(0, 2 * np.pi, (count, 1))
    waves = 0.08 * np.sin(np.arange(height) * 1.6 + phase)[:, :, None] * np.ones(width)
    speckles = 0.15 * (generator.uniform(size=(count, height, width)) < 0.15)
    texture = cue * np.where((attributes == 0)[:, None, None], waves, speckles)
    light = generator.normal(0.85, 0.05, (count, 3))
    return _blend(tints[:, :, None, None] + texture[:, None], light, ink)


def clutter(ink: Floats, attributes: Integers, cue: float, generator: Generator) -> Floats:
    """Light ink on a darker background, both of any colour, with pieces of other digits at the left and right edge."""
    count, _, width = ink.shape
    crowded = ink.copy()
    left, right = ink[generator.permutation(count)], ink[generator.permutation(count)]
    crowded[:, :, :2] = np.maximum(crowded[:, :, :2], 0.6 * left[:, :, width - 4 : width - 2])
    crowded[:, :, -2:] = np.maximum(crowded[:, :, -2:], 0.6 * right[:, :, 2:4])
    paper = generator.uniform(0.0, 0.35, (count, 3))
    slope = generator.normal(0, 0.05, (count, 1, 1, 1)) * np.linspace(-1, 1, width)
    light = paper + generator.uniform(0.4, 0.65, (count, 3))
    return _blend(paper[:, :, None, None] + slope, light, crowded)


def stain(ink: Floats, attributes: Integers, cue: float, generator: Generator) -> Floats:
    """Purple ink on pale pink, both varying from image to image, like a stained smear."""
    count = len(ink)
    paper = np.array([0.90, 0.80, 0.84]) + generator.normal(0, 0.04, (count, 3))
    dye = np.array([0.32, 0.12, 0.42]) + generator.normal(0, 0.08, (count, 3))
    return _blend(paper[:, :, None, None], dye, ink)


Style = Callable[[Floats, Integers, float, Generator], Floats]
STYLES: dict[str, Style] = {style.__name__: style for style in (grey, colour, scene, clutter, stain)}


def appear(images: Floats, appearances: Integers) -> Floats:
    """Images [N, C, H, W] with the gain, offset, blur and inversion of the source of this number.

    Number 0 leaves the images as they are; the cycles have different lengths, so that the first 60 numbers differ.
    """
    from scipy.ndimage import gaussian_filter  # slow to import

    shown = images.copy()
    for number in np.unique(appearances):
        gain, offset = (1.0, 0.75, 0.9, 0.6, 0.8)[number % 5], (0.0, 0.2, 0.1, 0.3)[number % 4]
        blurred, inverted = number % 4 in (1, 2), number % 3 == 2
        rows = appearances == number
        part = images[rows]
        part = gaussian_filter(part, sigma=(0, 0, 0.5, 0.5)) if blurred else part
        part = 1 - part if inverted else part
        shown[rows] = gain * part + offset * (1 - gain)
    return shown


def finish(images: Floats, noise: float, generator: Generator) -> npt.NDArray[np.uint8]:
    """Normal noise of standard deviation `noise` (0..1 scale) on top, then uint8."""
    noisy = images + generator.normal(0, noise, images.shape)
    return np.clip(np.rint(255 * noisy), 0, 255).astype(np.uint8)


def _blend(paper: Floats, dye: Floats, ink: Floats) -> Floats:
    """Ink [N, H, W] of the colours `dye` [N, 3] over paper that broadcasts to [N, 3, H, W]."""
    return paper * (1 - ink[:, None]) + dye[:, :, None, None] * ink[:, None]
