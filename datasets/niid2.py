"""NIID-2 of FedSDC (MICCAI 2025, section 3.1): Matek-19, Acevedo-20 and Bodzas-23 under one map of 13 classes.

The paper does not say which classes; the map is that of earlier work on the same three sets, and is not confirmed. It
keeps 48,917 images.

The test images are those that no client draws, so they are known only after the clients. A client draws at most 60
images of a class, and a source has five clients: no more than 300 images of a class and source are ever for training.
That many, at random, are the training split here, all others the test split; a run adds to the test data what its
clients leave (`rest: test` in conf/dataset/niid2.yaml). For one run this is the same as a draw from all images. Runs of
several seeds draw from the same 300, so one preparation serves all seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pydantic import Field

from benchmark.errors import wrong
from datasets import acevedo, bodzas, matek
from datasets.blood_cells import BloodOptions, in_two, labelled
from datasets.core.base import DataError, Facts
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
    pools: list[list[Path]] = [[] for _ in CLASSES]
    others: list[list[Path]] = [[] for _ in CLASSES]
    sources: tuple[list[int], list[int]] = ([], [])
    expected: list[tuple[str, str, str, int]] = []
    largest = 0
    for label, (name, codes) in enumerate(CLASSES.items()):
        for source, archive in enumerate(archives):
            paths = archive.of(codes[source])
            largest = max(largest, len(paths))
            pool, other = in_two(paths, options.pool, np.random.RandomState([options.seed, source, label]))
            pools[label] += pool
            others[label] += other
            sources[0].extend([source] * len(pool))
            sources[1].extend([source] * len(other))
            total = sum(archive.published[code] for code in codes[source])
            held = min(total, options.pool)
            expected += [
                ("train", name, SOURCES[source], held),
                ("test", name, SOURCES[source], total - held),
            ]
    if not any(others):
        needed = (
            f"less than {largest} (the most images of a class and source), so that some are left for testing"
        )
        where = "in conf/dataset/niid2.yaml or with dataset.options.pool"
        raise DataError(f"niid2: {wrong('pool', options.pool, needed, where=where)}")
    return ListedDataset(
        train=labelled(pools, np.asarray(sources[0], dtype=np.int64)),
        test=labelled(others, np.asarray(sources[1], dtype=np.int64)),
        decode=ToSquare(options.size),
        places=tuple(archive.place for archive in archives),
        classes=tuple(CLASSES),
        sources=SOURCES,
        note="; ".join(f"{archive.place.tree.title}: {archive.note}" for archive in archives if archive.note),
        expected=tuple(expected) if options.strict else (),
    )
