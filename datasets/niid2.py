"""NIID-2 of FedSDC (MICCAI 2025, section 3.1): Matek-19, Acevedo-20 and Bodzas-23 under one map of 13 classes.

The paper does not name the classes; the map is that of earlier work on the same three sets. It keeps 48,917 images.
The test images are those that no client draws. Five clients draw at most 60 images each of a class and source, so 300
at random are the training split here. A run adds to the test split what its clients leave (`rest: test` in
conf/dataset/niid2.yaml). All seeds of a run draw from the same 300.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from benchmark.errors import wrong
from datasets import acevedo, bodzas, matek
from datasets.blood_cells import BloodOptions, drawn
from datasets.core.base import DataError, Facts, Int64Array, published
from datasets.core.images import ListedDataset, ToSquare, two_parts
from datasets.core.lists import check_not_empty
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


class Niid2Options(BloodOptions):
    """Options of NIID-2.

    Attributes:
        pool: Images of a class and source that clients may draw, at most; 5 clients x 60 images in the paper.
    """

    pool: int = Field(default=300, ge=1)


def _facts(options: Niid2Options) -> Facts:
    modules = (matek, acevedo, bodzas)
    totals = _totals([module.PUBLISHED for module in modules])
    train = np.minimum(totals, options.pool)
    raw = "; ".join(f"{module.TREE.title}: {module.TREE.archive}" for module in modules)
    page = "; ".join(module.TREE.page for module in modules)
    sizes = int(train.sum()), int((totals - train).sum())
    return Facts(*sizes, len(CLASSES), 3, options.size, len(SOURCES), raw, page)


def _totals(published: Sequence[Mapping[str, int]]) -> Int64Array:
    """Published images of each class in each source, int64 [13, 3]."""
    return np.array(
        [
            [sum(numbers[code] for code in own) for own, numbers in zip(codes, published, strict=True)]
            for codes in CLASSES.values()
        ]
    )


@dataset(
    "niid2", options=Niid2Options, facts=_facts, licence="those of its three parts: matek, acevedo, bodzas"
)
def niid2(options: Niid2Options, root: Path) -> ListedDataset:
    """Three sets of blood cells (Matek-19, Acevedo-20, Bodzas-23): 48,917 images of 13 classes, 224 x 224; by hand."""
    archives = (
        matek.matek_cells(root, options.strict),
        acevedo.acevedo_cells(root, options.strict),
        bodzas.bodzas_cells(root, options.strict),
    )
    import pandas as pd  # slow to import

    parts = []
    for label, codes in enumerate(CLASSES.values()):
        for source, archive in enumerate(archives):
            check_not_empty(archive.place, {code: len(archive.cells[code]) for code in codes[source]})
            paths = archive.of(codes[source])
            train = drawn(len(paths), options.pool, (options.seed, source, label))
            parts.append(pd.DataFrame({"path": paths, "label": label, "source": source, "test": ~train}))
    if all(len(part) <= options.pool for part in parts):
        needed = f"less than {max(map(len, parts))}, so that some images are left for testing"
        raise DataError(wrong("dataset.options.pool", options.pool, needed))
    totals = _totals([archive.published for archive in archives])
    counts = {"train": np.minimum(totals, options.pool), "test": np.maximum(totals - options.pool, 0)}
    return ListedDataset(
        *two_parts(pd.concat(parts)),
        classes=tuple(CLASSES),
        sources=SOURCES,
        decode=ToSquare(options.size),
        places=tuple(archive.place for archive in archives),
        expected=published(counts, tuple(CLASSES), SOURCES),
    )
