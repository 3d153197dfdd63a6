"""SVHN, cropped digits (the owner's "format 2").

Matlab files with X [32, 32, 3, N] and y in 1..10, where 10 is the digit 0.
Mean and deviation are those of FedMR's public code (notes on the data sets, section 10).
"""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np

from datasets.core.base import Facts, RawDataset, Split
from datasets.core.download import RawOptions, RawTree, bad_file, folder_of, read_bytes, verify
from datasets.core.registry import dataset

TRAIN, TEST = "train_32x32.mat", "test_32x32.mat"
MD5 = {TRAIN: "e26dedcc434d2e4c54c9b2d4a06d8373", TEST: "eb5a983be6a315427106f1b164d9cef3"}
# What scipy's reader raises, beside its MatReadError, on files that are cut off or are something else.
BAD_MAT = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    NotImplementedError,
    EOFError,
    MemoryError,
    zlib.error,
)
TREE = RawTree(
    title="SVHN",
    folders=(".", "SVHN", "svhn", "SVHN/SVHN", "svhn/svhn"),
    files=(TRAIN, TEST),
    page="http://ufldl.stanford.edu/housenumbers/",
    archive="train_32x32.mat (182 MB) and test_32x32.mat (64 MB)",
    torchvision="SVHN",
    arguments=({"split": "train"}, {"split": "test"}),
    sizes={TRAIN: 182_040_794, TEST: 64_275_384},
    images={TRAIN: 73_257, TEST: 26_032},
    hints={
        "extra_32x32.mat": "only the extra part, which is not used",
        "train.tar*": "format 1 (whole house numbers); format 2, cropped digits, is needed",
        "digitStruct.mat": "format 1 (whole house numbers); format 2, cropped digits, is needed",
    },
)


def _facts(options: RawOptions) -> Facts:
    return Facts(73_257, 26_032, 10, 3, 32, raw=TREE.archive, page=TREE.page)


@dataset("svhn", options=RawOptions, facts=_facts)
def svhn(options: RawOptions, root: Path) -> RawDataset:
    """Street View house numbers: 73,257 + 26,032 colour images of 32 x 32, 10 classes; downloads by itself."""
    folder = folder_of(TREE, root)
    return RawDataset(
        train=_read(folder / TRAIN, options.strict),
        test=_read(folder / TEST, options.strict),
        classes=tuple(str(digit) for digit in range(10)),
        mean=(0.43768, 0.44377, 0.47280),
        std=(0.19803, 0.20102, 0.19704),
        # The owner publishes totals; the classes are not even.
        expected=(("train", "", "", TREE.images[TRAIN]), ("test", "", "", TREE.images[TEST])),
    )


def _read(path: Path, strict: bool) -> Split:
    from scipy.io import loadmat  # slow to import and needed only once per cache
    from scipy.io.matlab import MatReadError

    content = read_bytes(TREE, path)
    if strict:  # before reading it: scipy's reader can crash the process on damaged files
        verify(TREE, path, content, MD5[path.name])
    try:
        arrays = loadmat(io.BytesIO(content))
    except (MatReadError, *BAD_MAT) as error:
        problem = f"{path.name} cannot be read as a Matlab file ({error})."
        raise bad_file(
            TREE, path, problem, "a download that broke off, or another file under this name"
        ) from error
    images, labels = arrays.get("X"), arrays.get("y")
    if (
        images is None
        or labels is None
        or images.dtype != np.uint8
        or images.ndim != 4
        or images.shape[:3] != (32, 32, 3)
    ):
        problem = f"{path.name} lacks `X` (uint8, 32 x 32 x 3 x N) or `y`."
        raise bad_file(TREE, path, problem, "another Matlab file under this name")
    digits = labels.ravel().astype(np.int64)
    odd = np.setdiff1d(digits, np.arange(1, 11))
    if len(digits) != images.shape[3] or len(digits) == 0 or len(odd):
        problem = (
            f"{path.name} has {len(digits)} labels for {images.shape[3]} images"
            f"{f', some of them {odd[:5].tolist()}' if len(odd) else ''}; "
            "one per image from 1 to 10 belongs there (10 is the digit 0)."
        )
        raise bad_file(TREE, path, problem, "another Matlab file, or labels already changed to 0..9")
    return Split(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits % 10)
