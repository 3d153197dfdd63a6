"""Partition schemes: labels, attributes and sources of a training set in, one index array per client out."""

from partitions.core.base import Partitioner, PartitionError, Population
from partitions.core.heterogeneity import six_metrics, triplet
from partitions.core.registry import describe, make, names, partition
from partitions.core.store import Partition, load, make_partition, partition_id, save

__all__ = [
    "Partition",
    "PartitionError",
    "Partitioner",
    "Population",
    "describe",
    "load",
    "make",
    "make_partition",
    "names",
    "partition",
    "partition_id",
    "save",
    "six_metrics",
    "triplet",
]
