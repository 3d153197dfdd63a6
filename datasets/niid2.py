"""NIID-2 of FedSDC (MICCAI 2025, section 3.1): Matek-19, Acevedo-20 and Bodzas-23 under one map of 13 classes.

The paper does not name the classes; the map is that of earlier work on the same three sets. It keeps 48,917 images.
The test images are those that no client draws. Five clients draw at most 60 images each of a class and source, so 300
at random are the training split here. A run adds to the test split what its clients leave (`rest: test` in
conf/dataset/niid2.yaml). All seeds of a run draw from the same 300.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pydantic import Field

from benchmark.errors import wrong
from datasets import acevedo, bodzas, matek
from datasets.blood_cells import BloodOptions, in_two
from datasets.core.base import DataError, Facts, Files, published
from datasets.core.images import ListedDataset, ToSquare
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
    sizes = [
        sum(module.PUBLISHED[code] for code in codes[source])
        for codes in CLASSES.values()
        for source, module in enumerate(modules)
    ]
    train = sum(min(number, options.pool) for number in sizes)
    raw = "; ".join(f"{module.TREE.title}: {module.TREE.archive}" for module in modules)
    page = "; ".join(module.TREE.page for module in modules)
    return Facts(train, sum(sizes) - train, len(CLASSES), 3, options.size, len(SOURCES), raw, page)


@dataset("niid2", options=Niid2Options, facts=_facts)
def niid2(options: Niid2Options, root: Path) -> ListedDataset:
    """Three sets of blood cells (Matek-19, Acevedo-20, Bodzas-23): 48,917 images of 13 classes, 224 x 224; by hand."""
    archives = (
        matek.matek_cells(root, options.strict),
        acevedo.acevedo_cells(root, options.strict),
        bodzas.bodzas_cells(root, options.strict),
    )
    for source, archive in enumerate(archives):
        used = [code for codes in CLASSES.values() for code in codes[source]]
        check_not_empty(archive.place, {code: len(archive.cells[code]) for code in used}, least=1)
    paths: dict[str, list[Path]] = {"train": [], "test": []}
    cells: dict[str, list[tuple[int, int]]] = {"train": [], "test": []}
    counts = {part: np.zeros((len(CLASSES), len(SOURCES)), dtype=np.int64) for part in paths}
    for label, codes in enumerate(CLASSES.values()):
        for source, archive in enumerate(archives):
            generator = np.random.RandomState([options.seed, source, label])
            halves = in_two(archive.of(codes[source]), options.pool, generator)
            for part, half in zip(paths, halves, strict=True):
                paths[part] += half
                cells[part] += [(label, source)] * len(half)
            total = sum(archive.published[code] for code in codes[source])
            counts["train"][label, source] = min(total, options.pool)
            counts["test"][label, source] = total - min(total, options.pool)
    if not paths["test"]:
        most = max(Counter(cells["train"]).values())
        needed = (
            f"less than {most} (the most images of a class and source), so that some are left for testing"
        )
        where = "in conf/dataset/niid2.yaml or with dataset.options.pool"
        raise DataError(f"niid2: {wrong('pool', options.pool, needed, where=where)}")
    return ListedDataset(
        train=_files(paths["train"], cells["train"]),
        test=_files(paths["test"], cells["test"]),
        decode=ToSquare(options.size),
        places=tuple(archive.place for archive in archives),
        classes=tuple(CLASSES),
        sources=SOURCES,
        note="; ".join(f"{archive.place.tree.title}: {archive.note}" for archive in archives if archive.note),
        expected=published(counts, tuple(CLASSES), SOURCES) if options.strict else (),
    )


def _files(paths: list[Path], cells: list[tuple[int, int]]) -> Files:
    labels, sources = np.array(cells, dtype=np.int64).T.copy()
    return Files(paths, labels, sources=sources)
