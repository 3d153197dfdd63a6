"""One partition: the clients of a federation, and what is counted of them. Every run draws its own anew."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmark.errors import wrong
from benchmark.heterogeneity import class_counts, group_counts, six_metrics
from partitions.core.base import IntArray, PartitionError, Population
from partitions.core.registry import make

_PURPOSE = int.from_bytes(b"partition", "big")  # separates this random stream from others with the same seed


@dataclass(frozen=True, eq=False)
class Partition:
    """The clients of a federation and their statistics.

    Attributes:
        clients: K ascending arrays of sample indices, int64 [n_k].
        counts: samples per client and class, int64 [K, Y] (a sample given twice counts twice).
        counts_attr: samples per client, class and attribute, int64 [K, Y, A]; None without attributes.
        metrics: GCI, GAI, GSC, CCI, CAI, CSC; None if undefined.
        identity: how it was drawn: scheme, params, seed.
        num_samples: N, size of the population.
    """

    clients: list[IntArray]
    counts: IntArray
    counts_attr: IntArray | None
    metrics: dict[str, float | None]
    identity: dict[str, Any]
    num_samples: int

    @property
    def id(self) -> str:
        """``<scheme>-<12 digits of the digest>``."""
        return f"{self.identity['scheme']}-{self.digest[:12]}"

    @property
    def sizes(self) -> IntArray:
        """Number of samples of each client, int64 [K]."""
        return np.array([len(client) for client in self.clients], dtype=np.int64)

    @property
    def digest(self) -> str:
        """SHA-256 of the indices of all clients."""
        digest = hashlib.sha256()
        for array in (np.concatenate(self.clients), np.cumsum([0, *self.sizes])):
            digest.update(np.concatenate([[len(array)], array]).astype("<i8").tobytes())
        return digest.hexdigest()

    def unassigned(self) -> IntArray:
        """The samples that no client has, ascending (the test data of FedSDC's NIID-2)."""
        return np.setdiff1d(np.arange(self.num_samples), np.concatenate(self.clients))


def make_partition(
    population: Population, name: str, params: Mapping[str, Any] | None, seed: int
) -> Partition:
    """Draw a partition.

    Args:
        population: the samples to cut.
        name: scheme, one of `partitions.names()`.
        params: its parameters (the YAML file without `name` and `seed`).
        seed: integer >= 0.

    Raises:
        PartitionError: Unknown scheme or parameter, or an impossible partition.
    """
    if seed < 0:
        raise PartitionError(wrong("partition.seed", seed, "an integer >= 0 (or null)"))
    scheme = make(name, params)
    clients = scheme.split(population, np.random.default_rng([seed, _PURPOSE]))
    labels, attributes, classes = population.labels, population.attributes, population.num_classes
    counts, groups = class_counts(clients, labels, classes), None
    if attributes is not None:
        groups = group_counts(clients, labels, attributes, classes, population.num_attributes)
    metrics = six_metrics(counts if groups is None else groups)
    identity = {"scheme": name, "params": scheme.model_dump(mode="json"), "seed": seed}
    return Partition(clients, counts, groups, metrics, identity, len(population))
