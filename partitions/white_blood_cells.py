"""The NIID-2 partition of FedSDC (MICCAI 2025, section 3.1): three blood cell archives, five clients each.

Each client of an archive draws 5-6 classes and 20-60 images of each; images that nobody drew are test data
(`rest: test`). The authors published no lists. Here clients draw one after the other from what is left, and a class
that has less than the least number of images left is not drawn.
"""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import AfterValidator, Field, PositiveInt

from partitions.core.base import IntArray, Partitioner, Population
from partitions.core.registry import partition


def _ascending(limits: tuple[int, int]) -> tuple[int, int]:
    if limits[0] > limits[1]:
        raise ValueError(f"got {list(limits)}; expected [least, most]")
    return limits


Limits = Annotated[tuple[PositiveInt, PositiveInt], AfterValidator(_ascending)]


@partition("white_blood_cells")
class WhiteBloodCells(Partitioner):
    """Let each client of a source draw a few classes and a few images of each (FedSDC, NIID-2).

    Attributes:
        clients_per_source: clients made from each source.
        classes_per_client: least and most number of classes of a client.
        samples_per_class: least and most number of images of each class of a client, before scaling.
        scale: factor on both, for a smaller stand-in; the least number stays at least 1.
    """

    needs_sources: ClassVar[bool] = True

    clients_per_source: PositiveInt = 5
    classes_per_client: Limits = (5, 6)
    samples_per_class: Limits = (20, 60)
    scale: float = Field(default=1.0, gt=0)

    def expected(self, samples: int, classes: int, sources: int) -> tuple[int, int]:
        """The mean of the draw, as if no class ran out: 15 clients x 5.5 classes x 40 images in the paper."""
        clients = self.clients_per_source * sources
        fewest, most = (min(number, classes) for number in self.classes_per_client)
        drawn = clients * (fewest + most) * sum(self.limits()) / 4
        return clients, min(samples, round(drawn))

    def limits(self) -> tuple[int, int]:
        """The least and most number of images of one class on one client, scaled."""
        least, most = (int(round(number * self.scale, 9) + 0.5) for number in self.samples_per_class)
        return max(least, 1), max(most, least, 1)

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """The clients, source by source."""
        clients = []
        for source in range(population.num_sources):
            here = [
                np.flatnonzero((population.sources == source) & (population.labels == label))
                for label in range(population.num_classes)
            ]
            left = [generator.permutation(samples) for samples in here]
            for _ in range(self.clients_per_source):
                clients.append(self._one_client(left, population.name_of("source", source), generator))
        return clients

    def _one_client(self, left: list[IntArray], source: str, generator: np.random.Generator) -> IntArray:
        """Take one client's images from the front of `left` (one array per class), shortened in place."""
        least, most = self.limits()
        fewest, largest = self.classes_per_client
        able = [label for label, samples in enumerate(left) if len(samples) >= least]
        if len(able) < fewest:
            raise self.fail(
                f"{source} has only {len(able)} classes with {least} or more images left, a client needs {fewest}. "
                "Lower partition.scale, partition.samples_per_class or partition.clients_per_source."
            )
        number = min(int(generator.integers(fewest, largest + 1)), len(able))
        taken = []
        for label in generator.choice(able, size=number, replace=False):
            wanted = int(generator.integers(least, most + 1))
            taken.append(left[label][:wanted])
            left[label] = left[label][wanted:]
        return np.concatenate(taken)
