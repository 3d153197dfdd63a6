"""Client selection: one file per rule."""

from benchmark.paths import packages_of

__path__ += packages_of(__name__)
