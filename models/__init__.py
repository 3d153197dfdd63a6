"""Networks that a file of ``conf/model`` names, one file each. Those of the papers are in ``benchmark/models``."""

from benchmark.paths import packages_of

__path__ += packages_of(__name__)
