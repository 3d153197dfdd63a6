"""The client lists that are shipped with Retina, image by image beside those of the rule that their authors publish.

Zeng et al., FedLD, MICCAI 2024, https://arxiv.org/abs/2408.12300, section 3.1; lists and rule are those of Yan et al.,
"Label-efficient self-supervised federated learning", 2023

Reads the lists and `labels.csv` only: no image is decoded, nothing is prepared, no run is needed.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from benchmark.analyses.registry import RetinaSplitsOptions
from benchmark.heterogeneity import class_counts
from benchmark.reports.tables import Table, text_table
from datasets.core.images import ListedDataset
from datasets.retina import CLIENTS, SPLITS, RetinaOptions, retina
from partitions.core.base import Population
from partitions.dirichlet import Dirichlet

ALPHAS = {1: 100.0, 2: 1.0, 3: 0.5}
"""Of the splits, in the arXiv text; the MICCAI text has 0.1 for split 2."""
SEED = 2022
"""Seed of numpy's legacy generator that the authors use for each split."""

NOTES = (
    f"By rule: partition dirichlet with legacy_seed {SEED}, which preset paper of the tables takes. both: images that "
    "list and rule give to the same client. figure: normal + diseased, read off the authors' figure to 3 images.",
    "Equal sizes with few images in common: the rule went over the images in another order than that of labels.csv.",
)


def retina_splits(options: RetinaSplitsOptions) -> Table:
    """Retina's shipped client lists (FedLD) beside those of their authors' rule."""
    root = Path(options.data or os.environ.get("FEDTABLES_DATA") or "data").expanduser().absolute()
    rows: list[dict[str, object]] = []
    for split in SPLITS:
        listed = retina(RetinaOptions.model_validate({"split": split}), root)
        assert isinstance(listed, ListedDataset)
        rows += compared(listed, split)
    title = "FedLD (MICCAI 2024): Retina's client lists and the rule that made them"
    return text_table("fedld_retina_splits", title, pd.DataFrame(rows), NOTES)


def compared(listed: ListedDataset, split: int) -> list[dict[str, object]]:
    """A row per client of a split, from the data set with its lists as sources."""
    labels, sources = listed.train.labels, listed.train.sources
    assert sources is not None
    people = Population(labels, len(listed.classes))
    scheme = Dirichlet(clients=CLIENTS, alpha=ALPHAS[split], legacy_seed=SEED)
    by_rule = scheme.split(people, np.random.default_rng(0))
    by_list = [np.flatnonzero(sources == client) for client in range(CLIENTS)]
    counts = [class_counts(clients, labels, 2).tolist() for clients in (by_list, by_rule)]
    texts = ([" + ".join(map(str, pair)) for pair in pairs] for pairs in (*counts, SPLITS[split]))
    both = [len(np.intersect1d(*images)) for images in zip(by_list, by_rule, strict=True)]
    names = ("client", "listed", "by rule", "figure", "both")
    rows = zip(listed.sources, *texts, both, strict=True)
    return [{"split": split, **dict(zip(names, row, strict=True))} for row in rows]
