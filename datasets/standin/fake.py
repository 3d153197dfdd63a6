"""A tiny set of coloured noise for tests: any number of classes, attributes, sources and channels, no files."""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from datasets.core.base import Options, RawDataset, Split
from datasets.core.folders import Tree
from datasets.core.registry import dataset


class FakeOptions(Options):
    """Shape of the fake set; `noise` is the standard deviation around each class's pattern, in grey values."""

    classes: int = Field(default=2, ge=2)
    attributes: int = Field(default=0, ge=0)
    sources: int = Field(default=0, ge=0)
    train_size: int = Field(default=64, ge=1)
    test_size: int = Field(default=32, ge=1)
    channels: Literal[1, 3] = 1
    size: int = Field(default=8, ge=4)
    noise: float = Field(default=30.0, ge=0)
    seed: int = 0


@dataset("fake", options=FakeOptions, tree=Tree(title="fake", licence="none: made-up images of this project"))
def fake(options: FakeOptions, root: Path) -> RawDataset:
    """Tiny random images for tests: one fixed pattern per class plus noise, no download."""
    shape = (options.channels, options.size, options.size)
    patterns = np.random.RandomState([options.seed, 0]).uniform(60, 180, (options.classes, *shape))
    return RawDataset(
        train=_split(options, patterns, options.train_size, np.random.RandomState([options.seed, 1])),
        test=_split(options, patterns, options.test_size, np.random.RandomState([options.seed, 2])),
        classes=tuple(f"class{k}" for k in range(options.classes)),
        attributes=tuple(f"attribute{a}" for a in range(options.attributes)),
        sources=tuple(f"source{s}" for s in range(options.sources)),
        note="random images, for tests only",
    )


def _split(options: FakeOptions, patterns: np.ndarray, count: int, generator: np.random.RandomState) -> Split:
    # Counting through classes, then attributes, then sources fills every cell as evenly as `count` allows.
    index = np.arange(count, dtype=np.int64)
    labels = index % options.classes
    attributes = index // options.classes % max(options.attributes, 1)
    sources = index // (options.classes * max(options.attributes, 1)) % max(options.sources, 1)
    images = patterns[labels] + generator.normal(0, options.noise, (count, *patterns.shape[1:]))
    # An attribute lights up the upper left corner, a source shifts the whole image.
    images[:, :, :2, :2] += 50 * attributes[:, None, None, None]
    images += 15 * sources[:, None, None, None]
    return Split(
        np.clip(np.rint(images), 0, 255).astype(np.uint8),
        labels,
        attributes if options.attributes else None,
        sources if options.sources else None,
    )
