"""SVHN, cropped digits (the owner's "format 2").

Matlab files with X [32, 32, 3, N] and y in 1..10, where 10 is the digit 0. Mean and deviation are those of FedMR's
public code.
"""

import io
import zlib
from pathlib import Path

import numpy as np

from datasets.core.base import Facts, RawDataset, RawOptions, Split
from datasets.core.download import DownloadTree, RawFile, RawFolder, fetch
from datasets.core.registry import dataset

TRAIN, TEST = "train_32x32.mat", "test_32x32.mat"
BAD_MAT = (
    *(OSError, ValueError, TypeError, LookupError, NotImplementedError),
    *(EOFError, MemoryError, zlib.error),
)
"""What scipy's reader raises, beside its MatReadError, on files that are cut off or of another kind."""
FORMAT_1 = "format 1 (whole house numbers); format 2, cropped digits, is needed"
TREE = DownloadTree(
    title="SVHN",
    folders=(".", "SVHN"),
    files={
        TRAIN: RawFile("e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
        TEST: RawFile("eb5a983be6a315427106f1b164d9cef3", 64_275_384),
    },
    page="http://ufldl.stanford.edu/housenumbers/",
    archive="train_32x32.mat (182 MB) and test_32x32.mat (64 MB)",
    mirrors=("http://ufldl.stanford.edu/housenumbers/",),
    hints={
        "extra_32x32.mat": "only the extra part, which is not used",
        "train.tar*": FORMAT_1,
        "digitStruct.mat": FORMAT_1,
    },
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
        raise folder.bad(name, f"cannot be read as a Matlab file ({error})") from error
    images, labels = np.asarray(arrays.get("X")), np.asarray(arrays.get("y"))
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3) or not labels.ndim:
        raise folder.bad(name, "lacks `X` (uint8, 32 x 32 x 3 x N) or `y`")
    digits = labels.ravel().astype(np.int64)
    odd = np.setdiff1d(digits, np.arange(1, 11))
    if len(digits) != images.shape[3] or not len(digits) or len(odd):
        numbers = f"{len(digits)} labels for {images.shape[3]} images"
        raise folder.bad(name, f"has {numbers}, others than 1 to 10: {odd[:5].tolist()}")
    return Split(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits % 10)
