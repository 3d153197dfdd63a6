"""Natural partition: each source of the data is a client (COVID-FL of FedLD, ISIC2019 of FedMR), or several."""

from typing import ClassVar

import numpy as np
from pydantic import PositiveInt

from partitions.core.base import IntArray, Partitioner, Population, indices_by_class
from partitions.core.registry import partition


@partition("natural")
class Natural(Partitioner):
    """Make one client of each source (hospital, centre, archive), or several of equal size.

    Attributes:
        clients_per_source: clients of each source, next to each other; more than one share its samples at random.
    """

    needs_sources: ClassVar[bool] = True

    clients_per_source: PositiveInt = 1

    def expected(self, samples: int, classes: int, sources: int) -> tuple[int, int]:
        """All samples, and as many clients for each source."""
        return self.clients_per_source * max(1, sources), samples

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """The samples of each source, cut into its clients."""
        assert population.sources is not None  # needs_sources
        sources = indices_by_class(population.sources, population.num_sources)
        parts = [np.array_split(generator.permutation(source), self.clients_per_source) for source in sources]
        return [client for source in parts for client in source]
