"""Mistakes in raw files: changes of a small tree, for tables of (data set, change, parts of the message)."""

import gzip
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

Change = Callable[[Path], object]


def unchanged(root: Path) -> None:
    """The tree is right but for its numbers of images."""


def remove(*names: str) -> Change:
    """Delete files or folders, given as patterns."""

    def change(root: Path) -> None:
        for path in [path for name in names for path in sorted(root.glob(name))]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def write(name: str, content: bytes | str = b"") -> Change:
    """Write a file anew, or make a folder if the name ends in a slash."""

    def change(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return change


def cut(name: str, size: int) -> Change:
    """Keep the first bytes of a file."""
    return lambda root: (root / name).write_bytes((root / name).read_bytes()[:size])


def replace(name: str, old: str, new: str) -> Change:
    """Change a text."""

    def change(root: Path) -> None:
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return change


def move(old: str, new: str) -> Change:
    """Rename the files that fit a pattern; `{}` in the new name is the old one's stem."""

    def change(root: Path) -> None:
        found = sorted(root.glob(old))
        assert found
        for path in found:
            target = path.parent / new.format(path.stem)
            target.parent.mkdir(exist_ok=True, parents=True)
            path.rename(target)

    return change


def picture(name: str, size: tuple[int, int] = (9, 9)) -> Change:
    def change(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size).save(root / name)

    return change


def array(name: str, values: Any) -> Change:
    return lambda root: np.save(root / name, values, allow_pickle=True)


def matlab(**arrays: Any) -> Change:
    return lambda root: savemat(root / "train_32x32.mat", {k: np.asarray(v) for k, v in arrays.items()})


def batch(name: str, **content: Any) -> Change:
    return write(f"cifar-10-batches-py/{name}", pickle.dumps(content, protocol=4))


def idx(name: str, *shape: int, magic: int = 2051, extra: int = 0, packed: bool = True) -> Change:
    header = struct.pack(f">{1 + len(shape)}I", magic, *shape)
    content = header + bytes(int(np.prod(shape)) + extra)
    return write(name, gzip.compress(content) if packed else content)


def each(*changes: Change) -> Change:
    return lambda root: [change(root) for change in changes]


class Mistake(NamedTuple):
    """What is changed in a data set's tree (`empty`: in an empty root), and parts of the message."""

    name: str
    tree: str
    change: Change
    options: dict[str, Any]
    words: tuple[str, ...]
    decoding: bool


def mistake(
    name: str, change: Change, *words: str, tree: str = "", decoding: bool = False, **options: Any
) -> Any:
    """A `Mistake` as the parameter of a test."""
    return pytest.param(Mistake(name, tree or name, change, options, words, decoding), id=name)


def hint(name: str, found: str, word: str) -> Any:
    """Only a file or folder of this name is there."""
    return mistake(name, write(found), word, tree="empty")
