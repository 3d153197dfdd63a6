"""The algorithms: one file each, the vocabulary they share, and the registry that finds them."""

from benchmark.paths import folders_of

__path__ += folders_of(__name__)
