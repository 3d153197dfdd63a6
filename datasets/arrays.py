"""Arrays of one's own in an ``.npz`` file, as `numpy.savez` writes it.

Keys: ``train_images`` and ``test_images``, uint8 [N, H, W] or [N, H, W, C] with 1 or 3 channels; ``train_labels`` and
``test_labels``, whole numbers [N] from 0. If there are any: ``train_attributes``, ``test_attributes``,
``train_sources`` and ``test_sources`` as labels; ``classes``, ``attributes`` and ``sources``, their names.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from benchmark.errors import wrong
from datasets.core.base import FIELDS, PARTS, DataError, RawDataset, Split, UserFileOptions
from datasets.core.folders import Tree
from datasets.core.registry import dataset

NAMES = {"classes": "labels", "attributes": "attributes", "sources": "sources"}
KEYS = (*(f"{part}_{field}" for part in PARTS for field in FIELDS), *NAMES)


class ArraysOptions(UserFileOptions):
    """Options of a file of arrays: only its path."""


@dataset(
    "arrays", options=ArraysOptions, tree=Tree(title="arrays", licence="that of the owner of the images")
)
def arrays(options: ArraysOptions, root: Path) -> RawDataset:
    """Arrays of one's own in an .npz file: uint8 images and labels for training and testing."""
    path = root / Path(options.path or "").name
    if path.suffix != ".npz" or not path.is_file():
        raise DataError(wrong("dataset.options.path", options.path, "an .npz file that numpy.savez wrote"))
    try:
        with np.load(path, allow_pickle=False) as file:
            content = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as arrays ({error}).") from error
    unknown = sorted({*content} - {*KEYS})
    missing = [
        f"{part}_{field}" for part in PARTS for field in FIELDS[:2] if f"{part}_{field}" not in content
    ]
    if unknown or missing:
        problem = f"unknown {', '.join(unknown)}" if unknown else f"no {', '.join(missing)}"
        raise DataError(
            f"{path}: keys: got {problem}; expected {', '.join(KEYS)} (classes and later may be left out)."
        )
    train, test = (_split(path, content, part) for part in PARTS)
    return RawDataset(train, test, **{name: _names(content, name) for name in NAMES}, files=[path])  # type: ignore[arg-type]


def _split(path: Path, content: Mapping[str, np.ndarray], part: str) -> Split:
    images = content[f"{part}_images"]
    shape = images.shape if images.ndim == 4 else (*images.shape, 1)
    if images.dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3):
        got = f"{path}: {part}_images: got {images.dtype} {images.shape}"
        raise DataError(f"{got}; expected uint8 [N, H, W] or [N, H, W, C] with 1 or 3 channels.")
    numbers: dict[str, Any] = {}
    for field in FIELDS[1:]:
        values = content.get(f"{part}_{field}")
        if values is not None and (values.dtype.kind not in "iu" or values.shape != (len(images),)):
            got = f"{path}: {part}_{field}: got {values.dtype} {values.shape}"
            raise DataError(f"{got}; expected whole numbers [{len(images)}].")
        numbers[field] = None if values is None else values.astype(np.int64)
    return Split(np.ascontiguousarray(images.reshape(shape).transpose(0, 3, 1, 2)), **numbers)


def _names(content: Mapping[str, np.ndarray], name: str) -> tuple[str, ...]:
    """The names in the file, or else the numbers that are used."""
    if name in content:
        return tuple(map(str, content[name]))
    used = [content[key] for key in (f"{part}_{NAMES[name]}" for part in PARTS) if key in content]
    return tuple(map(str, range(max((int(values.max(initial=-1)) for values in used), default=-1) + 1)))
