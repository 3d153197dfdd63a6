"""Client selection: one file per rule."""

from benchmark.paths import folders_of

__path__ += folders_of("methods/selection")
