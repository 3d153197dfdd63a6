"""Uniform partition: every client is a random sample of the same population."""

import numpy as np
from pydantic import PositiveInt

from partitions.core.base import IntArray, Partitioner, Population
from partitions.core.registry import partition


@partition("iid")
class Iid(Partitioner):
    """Shuffle all samples and deal them evenly; sizes differ by at most one.

    Attributes:
        clients: number of clients. (For the same number of samples of each class everywhere, use `pcdd` with
            classes_per_client = all classes.)
    """

    clients: PositiveInt

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """K slices of one permutation."""
        return np.array_split(generator.permutation(len(population)), self.clients)
