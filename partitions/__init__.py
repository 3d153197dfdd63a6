"""Partition schemes: labels, attributes and sources of a training set in, one index array per client out."""

from partitions.base import Partitioner, PartitionError, Population
from partitions.heterogeneity import six_metrics, triplet
from partitions.registry import describe, make, names, partition
from partitions.store import Partition, load, make_partition, partition_id, save

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
