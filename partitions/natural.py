"""Natural partition: each source of the data is a client (COVID-FL of FedLD, ISIC2019 of FedMR)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from partitions.core.base import IntArray, Partitioner, Population, indices_by_class
from partitions.core.registry import partition


@partition("natural")
class Natural(Partitioner):
    """Make one client of each source (hospital, centre, archive); nothing is drawn."""

    needs_sources: ClassVar[bool] = True

    def num_clients(self, population: Population) -> int:
        """The number of sources."""
        return population.num_sources

    def check(self, population: Population) -> None:
        """Refuse a source without samples (sub-sampling can empty a small one)."""
        assert population.sources is not None  # needs_sources
        for source, size in enumerate(np.bincount(population.sources, minlength=population.num_sources)):
            if not size:
                raise self.fail(
                    f"{population.name_of('source', source)} has no sample, so its client would be empty. Keep "
                    "more samples (dataset.train_per_class)."
                )

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """The samples of each source."""
        assert population.sources is not None  # needs_sources
        return indices_by_class(population.sources, population.num_sources)
