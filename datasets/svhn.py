"""SVHN, cropped digits (the owner's "format 2").

Matlab files with X [32, 32, 3, N] and y in 1..10, where 10 is the digit 0. Mean and deviation are those of FedMR's
public code.
"""

import io
import zlib
from pathlib import Path

import numpy as np

from datasets.core.base import Facts, RawDataset, RawOptions, Split
from datasets.core.download import DownloadTree, RawFolder, fetch
from datasets.core.registry import dataset

TRAIN, TEST = "train_32x32.mat", "test_32x32.mat"
FILES = {TRAIN: "e26dedcc434d2e4c54c9b2d4a06d8373", TEST: "eb5a983be6a315427106f1b164d9cef3"}
BAD_MAT = (
    *(OSError, ValueError, TypeError, LookupError, NotImplementedError),
    *(EOFError, MemoryError, zlib.error),
)
"""What scipy's reader raises, beside its MatReadError, on files that are cut off or of another kind."""
TREE = DownloadTree(
    title="SVHN",
    folders=(".", "SVHN"),
    files=FILES,
    published=FILES,
    page="http://ufldl.stanford.edu/housenumbers/",
    archive="train_32x32.mat (182 MB) and test_32x32.mat (64 MB)",
    mirrors=("http://ufldl.stanford.edu/housenumbers/",),
    licence="non-commercial use only",
)


TOTALS = (("train", "", "", 73_257), ("test", "", "", 26_032))
"""The owner publishes no numbers of images by class."""


@dataset("svhn", options=RawOptions, tree=TREE, facts=lambda _: Facts.of(TOTALS, 10, 32))
def svhn(options: RawOptions, root: Path) -> RawDataset:
    """Street View house numbers: 73,257 + 26,032 colour images of 32 x 32, 10 classes; downloads by itself."""
    folder = fetch(TREE, root)
    return RawDataset(
        train=_read(folder, TRAIN, options.strict),
        test=_read(folder, TEST, options.strict),
        classes=tuple(str(digit) for digit in range(10)),
        mean=(0.43768, 0.44377, 0.47280),
        std=(0.19803, 0.20102, 0.19704),
        expected=TOTALS,
        files=folder.files,
    )


def _read(folder: RawFolder, name: str, strict: bool) -> Split:
    from scipy.io import loadmat  # slow to import and needed only once per cache
    from scipy.io.matlab import MatReadError

    # The checksum first: scipy's reader can crash the process on damaged files.
    content = folder.read(name, verify=strict)
    try:
        arrays = loadmat(io.BytesIO(content))
    except (MatReadError, *BAD_MAT) as error:
        raise folder.bad(name, f"got a file that cannot be read ({error})") from error
    images, labels = np.asarray(arrays.get("X")), np.ravel(arrays.get("y"))
    shape = (32, 32, 3, len(labels))
    if images.dtype != np.uint8 or images.shape != shape or not np.isin(labels, range(1, 11)).all():
        got = f"got {images.dtype} {images.shape} as `X` and {len(labels)} labels as `y`"
        raise folder.bad(name, got, "uint8 (32, 32, 3, N) and N labels from 1 to 10")
    return Split(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.astype(np.int64) % 10)
