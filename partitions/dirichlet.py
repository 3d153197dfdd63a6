"""Dirichlet partition with balanced sizes, the rule of the lists that FedLD (2024) trains on.

FedLD takes the partition of Yan et al. ("Label-efficient self-supervised federated learning", 2023) and
FedSDC (2025) uses the same family for its NIID-1 setting. For each class: shuffle its samples, draw shares
for the clients from a Dirichlet distribution, set the share of every client that already holds N/K samples to
zero, rescale, and cut at the cumulative shares. All of it again until the smallest client has `min_size`
samples.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, PositiveInt

from partitions.base import AnyGenerator, IntArray, Partitioner, PartitionError, Population, indices_by_class
from partitions.registry import partition

MAX_TRIES = 1000


@partition("dirichlet")
class Dirichlet(Partitioner):
    """Cut each class by Dirichlet shares, with a cap at N/K samples and a minimum size.

    Attributes:
        clients: number of clients K.
        alpha: concentration; 100 is nearly uniform, 0.1 gives a client few classes.
        min_size: the draw is repeated until every client has this many samples.
    """

    clients: PositiveInt
    alpha: float = Field(gt=0)
    min_size: PositiveInt = 10

    def num_clients(self, population: Population) -> int:
        """Return the parameter `clients`."""
        return self.clients

    def check(self, population: Population) -> None:
        """Refuse a minimum size that the population cannot reach."""
        if self.clients * self.min_size > len(population):
            raise self.fail(
                f"{self.clients} clients of at least {self.min_size} samples need "
                f"{self.clients * self.min_size}, the data have {len(population)}. Lower "
                "partition.clients or partition.min_size."
            )

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """Return the clients of the first draw that holds the minimum size."""
        classes = indices_by_class(population.labels, population.num_classes)
        return dirichlet_split(classes, self.clients, self.alpha, self.min_size, generator)


def dirichlet_split(
    classes: list[IntArray],
    clients: int,
    alpha: float,
    min_size: int,
    generator: AnyGenerator,
    max_tries: int = MAX_TRIES,
) -> list[IntArray]:
    """Return the samples of each client, in the order drawn.

    Args:
        classes: positions of the samples of each class, Y arrays.
        clients: number of clients K.
        alpha: concentration of the Dirichlet distribution, > 0.
        min_size: least number of samples of a client.
        generator: numpy generator; a legacy one with the authors' seed gives the authors' counts. Per try and
            class it is asked for one shuffle, then one Dirichlet draw.
        max_tries: how often to draw before giving up.

    Raises:
        PartitionError: if no draw reached the minimum size; says how near the best one came.
    """
    best = 0
    for _ in range(max_tries):
        drawn = _one_draw(classes, clients, alpha, generator)
        smallest = min(len(client) for client in drawn)
        if smallest >= min_size:
            return drawn
        best = max(best, smallest)
    raise PartitionError(
        f"partition dirichlet: none of {max_tries} draws gave each of the {clients} clients {min_size} "
        f"samples (the smallest client had at most {best}). Raise partition.alpha ({alpha:g}), or lower "
        "partition.min_size or partition.clients."
    )


def _one_draw(
    classes: list[IntArray],
    clients: int,
    alpha: float,
    generator: AnyGenerator,
) -> list[IntArray]:
    cap = sum(len(one) for one in classes) / clients
    sizes = np.zeros(clients, dtype=np.int64)
    shares: list[list[IntArray]] = [[] for _ in range(clients)]
    for samples in classes:
        shuffled = samples.copy()
        generator.shuffle(shuffled)
        weights = _weights(generator, clients, alpha, sizes < cap)
        cuts = (np.cumsum(weights) * len(shuffled)).astype(np.int64)[:-1]
        # Weights can add up to 1 - 1e-16: without this, a closed client at the end would get a stray sample.
        cuts[np.flatnonzero(weights)[-1] :] = len(shuffled)
        for client, part in enumerate(np.split(shuffled, cuts)):
            shares[client].append(part)
            sizes[client] += len(part)
    return [np.concatenate(share) for share in shares]


def _weights(generator: AnyGenerator, clients: int, alpha: float, is_open: np.ndarray) -> np.ndarray:
    """Return Dirichlet weights [K], zero for closed clients, with sum 1."""
    weights = generator.dirichlet(np.full(clients, alpha)) * is_open
    total = weights.sum()
    if total > 0:
        return weights / total
    # A small alpha can put all mass on closed clients. A Dirichlet vector rescaled on some of its coordinates
    # is a Dirichlet vector of those, so drawing for the open clients alone continues the same distribution.
    # If all are full (only classes without samples are left), where the cut falls does not matter.
    weights = np.zeros(clients)
    weights[is_open if is_open.any() else slice(None)] = 1.0
    if is_open.any():
        weights[is_open] = generator.dirichlet(np.full(int(is_open.sum()), alpha))
    return weights / weights.sum()
