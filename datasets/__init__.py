"""Image data sets as prepared uint8 arrays: one builder per file, prepared once, loaded in milliseconds.

The way of an image: raw files -> a builder (`mnist.py`, `waterbirds.py`, ...) -> arrays in memory or a list of files ->
`core/prepare.py` writes .npy files and a finish marker -> `load` opens them memory-mapped.
"""

from benchmark.paths import folders_of
from datasets.core.base import DataError, Dataset, Facts, RawDataset, Split
from datasets.core.prepare import is_prepared, load, locate, require_raw_files
from datasets.core.registry import describe, facts, names

__path__ += folders_of(__name__)
