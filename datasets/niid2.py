"""NIID-2 of FedSDC (MICCAI 2025, section 3.1): Matek-19, Acevedo-20 and Bodzas-23 under one map of 13 classes.

The paper does not name the classes. The map is close to that of Salehi et al., https://arxiv.org/abs/2207.00501, and
not confirmed; monoblasts count as monocytes, lymphoblasts as lymphocytes. It keeps 48,917 images.
The test images are those that no client draws. Five clients draw at most 60 images each of a class and source, so 300
at random are the training split here. A run adds to the test split what its clients leave (`rest: test` in
conf/dataset/niid2.yaml). All seeds of a run draw from the same 300.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pydantic import Field

from benchmark.errors import wrong
from datasets import acevedo, bodzas, matek
from datasets.blood_cells import BloodOptions, drawn
from datasets.core.base import DataError, Expected, Facts, published
from datasets.core.folders import Tree
from datasets.core.images import ImageRow, ListedDataset, ToSquare, two_parts
from datasets.core.registry import dataset

SOURCES = ("matek", "acevedo", "bodzas")

CLASSES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "basophil": (("BAS",), ("BA",), ("Basophile",)),
    "eosinophil": (("EOS",), ("EO",), ("Eosinophile",)),
    "erythroblast": (("EBO",), ("ERB",), ("Normoblast",)),
    "myeloblast": (("MYO",), (), ("Myeloblast",)),
    "promyelocyte": (("PMO",), ("PMY",), ()),
    "myelocyte": (("MYB",), ("MY",), ()),
    "metamyelocyte": (("MMZ",), ("MMY",), ()),
    "band neutrophil": (("NGB",), ("BNE",), ("Neutrophile Band",)),
    "segmented neutrophil": (("NGS",), ("SNE",), ("Neutrophile Segment",)),
    "monocyte": (("MOB", "MON"), ("MO",), ("Monocyte",)),
    "lymphocyte": (("LYT",), ("LY",), ("Lymphoblast", "Lymphocyte")),
    "atypical lymphocyte": (("LYA",), (), ()),
    "smudge cell": (("KSC",), (), ()),
}
"""Codes of each class in each of `SOURCES`. Left out: PMB of Matek, IG, NEUTROPHIL and PLATELET of Acevedo."""


TREES = dict(zip(SOURCES, (matek.TREE, acevedo.TREE, bodzas.TREE), strict=True))
TREE = Tree(
    title="NIID-2",
    folders=(".",),
    layout="; ".join(tree.layout for tree in TREES.values()),
    page="; ".join(tree.page for tree in TREES.values()),
    archive="; ".join(f"{tree.title}: {tree.archive}" for tree in TREES.values()),
    sides={source: tree.sides[""] for source, tree in TREES.items()},
    licence="those of its three parts, matek, acevedo and bodzas",
)


class Niid2Options(BloodOptions):
    """Options of NIID-2.

    Attributes:
        pool: Images of a class and source that clients may draw, at most; 5 clients x 60 images in the paper.
    """

    pool: int = Field(default=300, ge=1)


def _expected(options: Niid2Options) -> Expected:
    archives = (matek.PUBLISHED, acevedo.PUBLISHED, bodzas.PUBLISHED)
    totals = [
        [sum(numbers[code] for code in held) for held, numbers in zip(codes, archives, strict=True)]
        for codes in CLASSES.values()
    ]
    train = np.minimum(totals, options.pool)
    return published({"train": train, "test": totals - train}, tuple(CLASSES), SOURCES)


@dataset(
    "niid2",
    options=Niid2Options,
    tree=TREE,
    facts=lambda options: Facts.of(_expected(options), len(CLASSES), options.size, sources=len(SOURCES)),
)
def niid2(options: Niid2Options, root: Path) -> ListedDataset:
    """Three sets of blood cells (Matek-19, Acevedo-20, Bodzas-23): 48,917 images of 13 classes, 224 x 224; by hand."""
    archives = (matek.matek_cells(root), acevedo.acevedo_cells(root), bodzas.bodzas_cells(root))
    rows: list[ImageRow] = []
    largest = 0
    for label, codes in enumerate(CLASSES.values()):
        for source, cells in enumerate(archives):
            paths = [path for code in codes[source] for path in cells[code]]
            rows += drawn(paths, options.pool, (options.seed, source, label), label, source)
            largest = max(largest, len(paths))
    if largest <= options.pool:
        needed = f"less than {largest}, so that some images are left for testing"
        raise DataError(wrong("dataset.options.pool", options.pool, needed))
    return ListedDataset(
        *two_parts(rows),
        classes=tuple(CLASSES),
        sources=SOURCES,
        decode=ToSquare(options.size),
        expected=_expected(options),
    )
