"""Partially class-disjoint data: P clients with C classes each (FedMR, TMLR 2023, section 4.1, "PρCς").

The rule is that of the authors' code, and gives its lists for the same seed. Classes: of the P x C places the first Y
get classes 0 .. Y-1, every later one a random class that the client does not have. Samples: each class is shuffled and
cut evenly among its holders. The authors' code deals all samples twice, so that clients overlap (`variant: reference`;
with C = Y it draws from Dirichlet(100000) instead); `variant: paper` deals once.
"""

import random  # noqa: TID251 (seeded instances of its class only, passed in)
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from benchmark.errors import wrong
from partitions.core.base import AnyGenerator, IntArray, Partitioner, Population, indices_by_class
from partitions.core.registry import partition
from partitions.dirichlet import dirichlet_split

IID_ALPHA = 1e5  # of the authors' code, where every client has every class
IID_MIN_SIZE = 10


@partition("pcdd")
class Pcdd(Partitioner):
    """Give each client a fixed number of classes, each class cut evenly among its holders (FedMR).

    If a class has fewer samples than holders, some holders get none; `data partition` shows it.

    Attributes:
        clients: number of clients P.
        classes_per_client: number of classes C of each client.
        variant: `paper` = one pass, disjoint clients; `reference` = the authors' doubled pass, overlapping
            clients.
    """

    clients: PositiveInt
    classes_per_client: PositiveInt
    variant: Literal["paper", "reference"] = "paper"

    def repeats(self, population: Population) -> bool:
        """True for the doubled pass."""
        return self._doubles(population.num_classes)

    def expected(self, samples: int, classes: int, sources: int) -> tuple[int, int]:
        """All samples, twice for the doubled pass."""
        return self.clients, samples * (2 if self._doubles(classes) else 1)

    def _doubles(self, num_classes: int) -> bool:
        return self.variant == "reference" and self.classes_per_client < num_classes

    def check(self, population: Population) -> None:
        """Refuse more classes per client than exist, and too few places for all classes."""
        classes, places = population.num_classes, self.clients * self.classes_per_client
        if self.classes_per_client > classes:
            raise self.fail(
                wrong("partition.classes_per_client", self.classes_per_client, f"at most {classes} (classes)")
            )
        if places < classes:
            raise self.fail(
                f"{self.clients} clients x {self.classes_per_client} classes = {places} places for {classes} "
                f"classes: {classes - places} would be on no client. Raise partition.clients or "
                f"partition.classes_per_client until their product is at least {classes}."
            )

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """The clients; both streams of the authors' code start from one number of `generator`."""
        seed = int(generator.integers(2**32))
        legacy = np.random.RandomState(seed)
        classes = indices_by_class(population.labels, population.num_classes)
        if self.variant == "reference" and self.classes_per_client == population.num_classes:
            # At this alpha the minimum size only matters for data so few that it could not be reached.
            least = min(IID_MIN_SIZE, max(1, len(population) // (2 * self.clients)))
            return dirichlet_split(classes, self.clients, IID_ALPHA, least, legacy)
        held = assign_classes(
            self.clients, self.classes_per_client, population.num_classes, random.Random(seed)
        )
        return deal_samples(classes, held, passes=1 if self.variant == "paper" else 2, generator=legacy)


def assign_classes(
    clients: int, classes_per_client: int, num_classes: int, stream: random.Random
) -> list[list[int]]:
    """The classes of each client, in the order drawn: P lists of C different classes; C is at most Y."""
    in_sequence = iter(range(num_classes))
    held: list[list[int]] = []
    for _ in range(clients):
        classes: list[int] = []
        while len(classes) < classes_per_client:
            drawn = next(in_sequence, None)
            if drawn is None:
                drawn = stream.randint(0, num_classes - 1)
            if drawn not in classes:
                classes.append(drawn)
        held.append(classes)
    return held


def deal_samples(
    classes: list[IntArray], held: list[list[int]], passes: int, generator: AnyGenerator
) -> list[IntArray]:
    """The samples of each client, in the order dealt: pass, then class. Each class must have a holder in `held`."""
    holders = [[k for k, labels in enumerate(held) if label in labels] for label in range(len(classes))]
    shares: list[list[IntArray]] = [[] for _ in held]
    for _ in range(passes):
        for samples, owners in zip(classes, holders, strict=True):
            shuffled = generator.permutation(samples)  # the same stream as a shuffle of a copy
            for client, part in zip(owners, np.array_split(shuffled, len(owners)), strict=True):
                shares[client].append(part)
    return [np.concatenate(share) for share in shares]
