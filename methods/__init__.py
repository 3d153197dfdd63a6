"""The algorithms: one file each, the vocabulary they share, and the registry that finds them."""

from benchmark.paths import packages_of

__path__ += packages_of(__name__)
