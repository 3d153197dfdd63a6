"""PACS: objects as art paintings, cartoons, photographs and sketches (Li et al., ICCV 2017, arXiv 1710.03077).

A source is a domain, so that `partition=natural` makes each domain a client. The owners' lists cut each domain into
about 90 % for training and 10 % for validation, and test on the whole of a domain that is left out: `leave_out`. They
have no test images of the domains of training. Where all four are trained on, a fifth of each class and domain is drawn
here for testing, the share that DomainBed (Gulrajani and Lopez-Paz, ICLR 2021) holds out of a domain.
"""

from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from datasets.blood_cells import drawn, training_share
from datasets.core.base import Expected, Facts, RawOptions, published
from datasets.core.folders import Tree, files_in, find
from datasets.core.images import ImageRow, ListedDataset, ToSquare, two_parts
from datasets.core.registry import dataset

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
PUBLISHED = {
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
"""Images of each class by domain, counted in the copy below; the sums by domain are the paper's, 9,991 in all."""
TREE = Tree(
    title="PACS",
    folders=("PACS", "kfold", "Homework3-PACS*"),
    layout="PACS/{" + ",".join(PUBLISHED) + "}/{" + ",".join(CLASSES) + "}/*.jpg (sketch: *.png)",
    page="https://github.com/MachineLearning2020/Homework3-PACS",
    archive="its folder PACS (about 200 MB; commit d586a6c)",
    sides={"": 227},
    licence="not stated (images of Caltech-256, Sketchy, TU-Berlin and Google Images)",
)


class PacsOptions(RawOptions):
    """Options of PACS.

    Attributes:
        size: Pixels of each side; images of another size are squashed to it.
        leave_out: A domain that is tested on, whole, after training on all images of the other three; None: all four
            domains in both parts.
        seed: Of the draw of test images without `leave_out`.
    """

    size: int = Field(default=227, ge=8)
    leave_out: Literal["art_painting", "cartoon", "photo", "sketch"] | None = None
    seed: int = Field(default=0, ge=0)

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains of training, in the order of the sources."""
        return tuple(domain for domain in PUBLISHED if domain != self.leave_out)


def _expected(options: PacsOptions) -> Expected:
    counts = np.transpose([PUBLISHED[domain] for domain in options.domains])
    if options.leave_out:
        tested = published({"test": PUBLISHED[options.leave_out]}, CLASSES)
        return published({"train": counts}, CLASSES, options.domains) + tested
    train = [[training_share(number) for number in row] for row in counts]
    return published({"train": train, "test": np.subtract(counts, train)}, CLASSES, options.domains)


def _facts(options: PacsOptions) -> Facts:
    return Facts.of(_expected(options), len(CLASSES), options.size, sources=len(options.domains))


@dataset("pacs", options=PacsOptions, tree=TREE, facts=_facts)
def pacs(options: PacsOptions, root: Path) -> ListedDataset:
    """PACS, objects in four domains: 9,991 images of 7 classes, 227 x 227, 80 % or three domains for training."""
    top = find(TREE, root, PUBLISHED).folder
    rows: list[ImageRow] = []
    for (label, name), domain in product(enumerate(CLASSES), PUBLISHED):
        paths = files_in(top / domain / name, (".jpg", ".png"))
        if domain == options.leave_out:
            rows += [ImageRow(path, True, label) for path in paths]
        else:
            source = options.domains.index(domain)
            number = len(paths) if options.leave_out else training_share(len(paths))
            rows += drawn(paths, number, (options.seed, source, label), label, source)
    return ListedDataset(
        *two_parts(rows),
        classes=CLASSES,
        sources=options.domains,
        decode=ToSquare(options.size),
        expected=_expected(options),
    )
