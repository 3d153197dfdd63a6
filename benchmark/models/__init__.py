"""Networks, their parameters as one vector, and pre-trained weights."""

from benchmark.paths import folders_of

__path__ += folders_of("models")
