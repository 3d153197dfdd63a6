"""Metrics of the user's repositories. Those that every evaluation records are in ``benchmark/engine/evaluation.py``."""

from benchmark.paths import packages_of

__path__ += packages_of(__name__)
