"""CMNIST as FedDiverse uses it: MNIST cut at digit 5, each digit red or green at random.

As in the authors' public code, images stay 28 x 28, the colour does not depend on the class, and the mean and deviation
of grey MNIST are used for all three channels.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from datasets.core.base import Facts, RawDataset, RawOptions, Split, published
from datasets.core.registry import dataset
from datasets.mnist import MNIST, MNIST_COUNTS, read

SEED = 42
CLASSES, COLOURS = ("digit < 5", "digit >= 5"), ("red", "green")
TEST_CELLS = ((2571, 2568), (2505, 2356))
"""Test images by class and colour that the authors' code makes."""


@dataset(
    "cmnist",
    options=RawOptions,
    tree=replace(MNIST.tree, licence=f"that of MNIST, of which it is made: {MNIST.tree.licence}"),
    facts=lambda _: Facts.of(MNIST_COUNTS, 2, 28),
)
def cmnist(options: RawOptions, root: Path) -> RawDataset:
    """Coloured MNIST of FedDiverse: digit < 5 or >= 5, red or green independent of it; made from MNIST's files."""
    train, test, files = read(MNIST, root, options.strict)
    return RawDataset(
        train=colour(train),
        test=colour(test),
        classes=CLASSES,
        attributes=COLOURS,
        mean=(0.1307,) * 3,
        std=(0.3081,) * 3,
        expected=published({"test": TEST_CELLS}, CLASSES, COLOURS),
        files=files,
    )


def colour(split: Split) -> Split:
    """Grey digits [N, 1, H, W] with labels 0..9 as CMNIST: [N, 3, H, W], two classes, attribute 0 red, 1 green.

    The generator starts anew for each split and colours all of class 0 first, then all of class 1.
    """
    generator = np.random.RandomState(SEED)
    labels = (split.labels >= 5).astype(np.int64)
    attributes = np.empty_like(labels)
    for label in (0, 1):
        members = np.flatnonzero(labels == label)
        attributes[members] = generator.binomial(1, 0.5, len(members))
    images = np.zeros((len(split), 3, *split.images.shape[2:]), dtype=np.uint8)
    images[np.arange(len(split)), attributes] = split.images[:, 0]
    return Split(images, labels, attributes)
