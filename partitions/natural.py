"""Natural partition: each source of the data is a client (COVID-FL of FedLD, ISIC2019 of FedMR)."""

from typing import ClassVar

import numpy as np

from partitions.core.base import IntArray, Partitioner, Population, indices_by_class
from partitions.core.registry import partition


@partition("natural")
class Natural(Partitioner):
    """Make one client of each source (hospital, centre, archive); nothing is drawn."""

    needs_sources: ClassVar[bool] = True

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """The samples of each source."""
        assert population.sources is not None  # needs_sources
        return indices_by_class(population.sources, population.num_sources)
