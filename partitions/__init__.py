"""Partition schemes: labels, attributes and sources of a training set in, one index array per client out."""

from benchmark.paths import folders_of
from partitions.core.base import Partitioner, PartitionError, Population
from partitions.core.partition import Partition, make_partition
from partitions.core.registry import make, names, partition

__path__ += folders_of(__name__)
