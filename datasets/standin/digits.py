"""scikit-learn's bundled handwritten digits: the data that need no download.

Source: the test part of the UCI "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998), 1,797
images of 8 x 8 in 17 shades of grey. scikit-learn ships no split into train and test, so the one here is ours.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datasets.core.base import Options, RawDataset, Split
from datasets.core.registry import dataset

NAMES = tuple(str(digit) for digit in range(10))
TEST_SHARE = 0.2


class DigitsOptions(Options):
    """The digits have no options."""


def split_digits() -> tuple[Split, Split]:
    """Training and test digits, uint8 [N, 1, 8, 8]: 80/20 within each class, the same split each time.

    Both are in the original order. Everything made of digits (see `standin.py`) keeps to this split.
    """
    from sklearn.datasets import load_digits  # slow to import and needed only once per cache

    bundle = load_digits()
    images = np.rint(bundle.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bundle.target.astype(np.int64)
    # RandomState's stream is frozen by numpy's policy, so the split does not move with numpy's version.
    generator = np.random.RandomState(0)
    held_out = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        members = generator.permutation(np.flatnonzero(labels == digit))
        held_out[members[: round(TEST_SHARE * len(members))]] = True
    return Split(images[~held_out], labels[~held_out]), Split(images[held_out], labels[held_out])


@dataset("digits", options=DigitsOptions)
def digits(options: DigitsOptions, root: Path) -> RawDataset:
    """Handwritten digits bundled with scikit-learn: 1,797 grey images of 8 x 8, 10 classes; no download."""
    train, test = split_digits()
    return RawDataset(train=train, test=test, classes=NAMES)
