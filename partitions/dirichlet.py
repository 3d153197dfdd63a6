"""Dirichlet partition with balanced sizes, the rule of the lists that FedLD (2024) trains on.

FedLD takes the partition of Yan et al. ("Label-efficient self-supervised federated learning", 2023) and
FedSDC (2025) uses the same family for its NIID-1 setting. For each class: shuffle its samples, draw shares
for the clients from a Dirichlet distribution, set the share of every client that already holds N/K samples to
zero, rescale, and cut at the cumulative shares. All of it again until the smallest client has `min_size`
samples.

Their lists come from numpy's legacy generator, started at 2022 for each list, over the images in the order of
`labels.csv`: `legacy_seed: 2022` makes them again.
"""

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from partitions.core.base import (
    AnyGenerator,
    IntArray,
    Partitioner,
    PartitionError,
    Population,
    indices_by_class,
)
from partitions.core.registry import partition

MAX_DRAWS = 200_000
"""Tries x classes before giving up, a few seconds. FedLD's figure 2 (alpha 0.01, 2 classes) needs over 1,000 tries."""


@partition("dirichlet")
class Dirichlet(Partitioner):
    """Cut each class by Dirichlet shares, with a cap at N/K samples and a minimum size.

    Attributes:
        clients: number of clients K.
        alpha: concentration; 100 is nearly uniform, 0.1 gives a client few classes.
        min_size: the draw is repeated until every client has this many samples.
        legacy_seed: None draws from the run's generator; a number starts the generator of the authors' code
            there, so that the clients are theirs and the same for every seed of a run.
    """

    clients: PositiveInt
    alpha: float = Field(gt=0)
    min_size: PositiveInt = 10
    legacy_seed: NonNegativeInt | None = Field(default=None, lt=2**32)

    def check(self, population: Population) -> None:
        """Refuse a minimum size that the population cannot reach."""
        if self.clients * self.min_size > len(population):
            raise self.fail(
                f"{self.clients} clients of at least {self.min_size} samples need {self.clients * self.min_size}, "
                f"the data have {len(population)}. Lower partition.clients or partition.min_size."
            )

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        """The clients of the first draw in which each has the minimum size."""
        classes = indices_by_class(population.labels, population.num_classes)
        stream = generator if self.legacy_seed is None else np.random.RandomState(self.legacy_seed)
        return dirichlet_split(classes, self.clients, self.alpha, self.min_size, stream)


def dirichlet_split(
    classes: list[IntArray], clients: int, alpha: float, min_size: int, generator: AnyGenerator
) -> list[IntArray]:
    """The samples of each client, class by class.

    Args:
        classes: positions of the samples of each class, Y arrays.
        clients: number of clients K.
        alpha: concentration of the Dirichlet distribution, > 0.
        min_size: least number of samples of a client.
        generator: a legacy one (`RandomState`) is called as the authors' code calls it, a shuffle before each
            Dirichlet draw, so that their seed gives their splits; any other shuffles the accepted draw only.
            Like theirs it may leave a full last client one sample more, if rounded weights sum to less than 1.

    Raises:
        PartitionError: No draw reached the minimum size.
    """
    as_authors = isinstance(generator, np.random.RandomState)
    tries = max(1, MAX_DRAWS // len(classes))
    cap = sum(len(samples) for samples in classes) / clients
    best = 0
    for _ in range(tries):
        shuffled: list[IntArray] = []
        cuts: list[IntArray] = []
        sizes = np.zeros(clients, dtype=np.int64)
        for samples in classes:
            if as_authors:
                shuffled.append(generator.permutation(samples))  # the same stream as a shuffle of a copy
            weights = _weights(generator, clients, alpha, sizes < cap)
            cuts.append(_cut(weights, len(samples), clients if as_authors else None))
            sizes += np.diff(cuts[-1])
        best = max(best, int(sizes.min()))
        if best >= min_size:
            shuffled = shuffled or [generator.permutation(samples) for samples in classes]
            parts = [np.split(samples, cut[1:-1]) for samples, cut in zip(shuffled, cuts, strict=True)]
            return [np.concatenate(client) for client in zip(*parts, strict=True)]
    raise PartitionError(
        f"partition dirichlet: none of {tries} draws gave each of the {clients} clients {min_size} samples (the "
        f"smallest client had at most {best}). Raise partition.alpha ({alpha:g}), or lower partition.min_size or "
        "partition.clients."
    )


def _cut(weights: np.ndarray, samples: int, last: int | None) -> IntArray:
    """The K + 1 positions at which that many samples are cut for the clients; `last` takes the rest."""
    cuts = np.concatenate([[0], np.cumsum(weights) * samples]).astype(np.int64)
    # Weights can add up to 1 - 1e-16: without this, a sample would be lost, or go to a closed client.
    cuts[np.flatnonzero(weights)[-1] + 1 if last is None else last :] = samples
    return cuts


def _weights(generator: AnyGenerator, clients: int, alpha: float, is_open: np.ndarray) -> np.ndarray:
    """Dirichlet weights [K], zero for closed clients, with sum 1."""
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
