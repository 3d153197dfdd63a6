"""Decoding of image files into arrays: pixels, threads, and interruptions."""

import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from raw_trees import picture
from torchvision.transforms.v2 import CenterCrop, Compose, Resize

from benchmark.runs.build import to_tensor
from datasets.core import prepare, registry
from datasets.core.base import DataError, Options, published
from datasets.core.decode import decode_into
from datasets.core.folders import Tree
from datasets.core.images import Files, ListedDataset, ToSquare, open_rgb

# One file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(20, 20), (40, 30), (31, 50), (20, 64)])
def test_pixels_are_torchvisions(tmp_path: Path, width: int, height: int) -> None:
    picture(tmp_path / "a.png", 0, 0, height, width)
    image = Image.open(tmp_path / "a.png")
    squashed, covered = Resize((20, 20))(image), Compose([Resize(20), CenterCrop(20)])(image)
    for how, expected in (("squash", squashed), ("cover", covered)):
        decoded = ToSquare(20, how)(tmp_path / "a.png")  # type: ignore[arg-type]
        np.testing.assert_array_equal(decoded, np.asarray(expected).transpose(2, 0, 1))


GREY = np.array([[0, 128, 255]], dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("grey.png", GREY),
        ("rgba.png", np.dstack([GREY, GREY, GREY, np.full_like(GREY, 7)])),
        # 257 x 128 = 32,896: a 16-bit image of the same grey values, which convert() would turn white.
        ("deep.png", GREY.astype(np.uint16) * 257),
        ("share.tif", GREY.astype(np.float32) / 255),
    ],
)
def test_modes_become_rgb(tmp_path: Path, name: str, values: np.ndarray) -> None:
    """Numbers of other kinds are scaled and not cut off."""
    Image.fromarray(values).save(tmp_path / name)
    image = open_rgb(tmp_path / name)
    assert image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(image), np.dstack([GREY] * 3))


# Many files --------------------------------------------------------------------------------------------------


def listed(folder: Path, train: int = 70, test: int = 3, decode: Any = None) -> ListedDataset:
    paths = [folder / f"{n:03}.png" for n in range(train + test)]
    for n, path in enumerate(paths):
        if not os.path.lexists(path):
            picture(path, 0, n, 8, 9 + n % 5)
    labels = np.arange(train + test, dtype=np.int64) % 2
    return ListedDataset(
        train=Files(paths[:train], labels[:train]),
        test=Files(paths[train:], labels[train:]),
        decode=decode or ToSquare(8, "squash"),
        mean=None,
        std=None,
        classes=("even", "odd"),
    )


class Counting:
    """Decodes, and notes every file that it was given."""

    size, channels = 8, 3

    def __init__(self, stops_at: str = "") -> None:
        self.stops_at = stops_at
        self.seen: list[str] = []

    def __repr__(self) -> str:
        return "Counting"

    def __call__(self, path: Path) -> Any:
        if path.name == self.stops_at:
            raise DataError("stopped here")
        self.seen.append(path.name)
        return ToSquare(8)(path)


def test_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Chunks of 32: files 0 to 31 are on the disk when file 40 stops it. Files of other times are another list."""
    for times, first in ((None, 32), ((1, 1), 0)):
        with pytest.raises(DataError, match="stopped here"):
            decode_into(listed(tmp_path / "raw", decode=Counting("040.png")), tmp_path / "out", "name")
        decode = Counting()
        data = listed(tmp_path / "raw", decode=decode)
        for path in (*data.train.paths, *data.test.paths) if times else ():
            os.utime(path, times)
        raw = decode_into(data, tmp_path / "out", "name")
        assert decode.seen == [f"{n:03}.png" for n in range(first, 73)]
        np.testing.assert_array_equal(raw.train.images, np.stack([decode(path) for path in data.train.paths]))


def test_the_wrong_shape(tmp_path: Path) -> None:
    larger = Mock(size=8, channels=3, return_value=np.zeros((3, 9, 9), np.uint8))
    with pytest.raises(DataError) as caught:
        decode_into(listed(tmp_path / "raw", decode=larger), tmp_path / "out", "name")
    assert "000.png was decoded into uint8 (3, 9, 9) and not into uint8 (3, 8, 8)" in str(caught.value)


# Whole preparations --------------------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registered data set `pictures` of 70 + 3 files below the folder that is returned."""

    def build(options: Options, root: Path) -> ListedDataset:
        """Pictures."""
        return listed(root)

    registry.names()
    tree = Tree(title="Pictures", folders=("raw",), page="example.org/pictures", archive="raw.zip")
    entry = registry.RegisteredDataset("pictures", build, Options, tree)
    monkeypatch.setitem(registry.ENTRIES.found, "pictures", [(__name__, entry)])
    return tmp_path


def test_several_threads_prepare_the_same_arrays(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTABLES_WORKERS", "2")
    data = prepare.load("pictures", None, pictures / "raw", pictures / "cache")
    files, decode = listed(pictures / "raw"), ToSquare(8, "squash")
    for split, part in ((data.train, files.train), (data.test, files.test)):
        assert isinstance(split.images, np.memmap) and not split.images.flags.writeable
        np.testing.assert_array_equal(split.images, np.stack([decode(path) for path in part.paths]))
    share = np.asarray(data.train.images, dtype=np.float64) / 255
    np.testing.assert_allclose(data.mean, share.mean((0, 2, 3)))
    np.testing.assert_allclose(data.std, share.std((0, 2, 3)))
    assert prepare.check(prepare.locate("pictures", None, pictures / "raw", pictures / "cache")) is not None
    assert sorted(path.suffix for path in (pictures / "cache").iterdir()) == ["", ".lock"]
    # PyTorch uses the mapped array in place.
    assert to_tensor(data.train.images, torch.device("cpu")).data_ptr() == data.train.images.ctypes.data


def header(width: int, height: int) -> bytes:
    """A PNG of so many pixels, without them."""
    chunk = b"IHDR" + struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    size, checksum = struct.pack(">I", 13), struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + size + chunk + checksum + bytes(4) + b"IDAT"


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize(
    ("content", "workers", "words"),
    [
        (b"", "1", "cannot be decoded as an image; found:     0 bytes ; interrupted"),
        (b"<html>not found</html>", "2", "cannot be decoded; 22 bytes that begin with b'<html>; a web page"),
        (b"PK\x03\x04" + bytes(30), "1", "cannot be decoded; 34 bytes; an archive under"),
        (None, "1", "cannot be decoded; 60 bytes that begin with b'\\x89PNG; interrupted"),
        (EPS, "1", "cannot be decoded as an image (none of JPEG, PNG, BMP, TIFF)"),
        # 2**26 are 8,192 x 8,192; Pillow alone refuses 20,000 x 20,000.
        (header(8193, 8192), "1", "(8,193 x 8,192 pixels; expected at most 67,108,864)"),
        (header(20_000, 20_000), "1", "(20,000 x 20,000 pixels; expected at most 67,108,864)"),
        ("link", "2", "cannot be read (No such file; found:     a link to ; a link to nothing"),
    ],
)
def test_a_file_that_is_no_image(
    pictures: Path,
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    content: Any,
    workers: str,
    words: str,
) -> None:
    monkeypatch.setenv("FEDTABLES_WORKERS", workers)
    listed(pictures / "raw")
    path = pictures / "raw/037.png"
    if content == "link":
        path.unlink()
        path.symlink_to(pictures / "gone.png")
    else:
        path.write_bytes(path.read_bytes()[:60] if content is None else content)
    message = refused("pictures", pictures / "raw", decoding=True)
    assert message.startswith("Pictures: 037.png cannot be ") and f"looked at: {path}\n" in message
    assert "expected:  037.png, an image\n" in message
    assert [word for word in words.split("; ") if word not in message] == [], message


def test_what_a_builder_says_of_files_is_kept_with_the_arrays(tmp_path: Path) -> None:
    expected = published({"train": [[1, 2], [3, 4]], "test": [[5, 6], [7, 8]]}, ("even", "odd"), ("a", "b"))
    assert expected[:3] == (("train", "even", "a", 1), ("train", "even", "b", 2), ("train", "odd", "a", 3))
    said = {
        "sources": ("a", "b"),
        "mean": (0.5,) * 3,
        "std": (0.25,) * 3,
        "note": "made up",
        "expected": expected,
    }
    data = replace(listed(tmp_path / "raw", train=3, test=1), **said)
    raw = decode_into(data, tmp_path / "out", "name")
    assert {name: getattr(raw, name) for name in said} == said and raw.classes == ("even", "odd")


def test_memory_stays_small(root: Path, tmp_path: Path) -> None:
    """450 MB of arrays, in a process of its own: its peak stays far below them, whatever is read through."""
    code = """
import resource, sys
from pathlib import Path
import numpy as np
from datasets.core.base import Dataset, Split
from datasets.core.prepare import channel_moments, fingerprint
path = Path(sys.argv[1])
np.lib.format.open_memmap(path, "w+", np.uint8, (3_000, 3, 224, 224)).flush()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
split = Split(np.load(path, mmap_mode="r"), np.zeros(3_000, np.int64))
channel_moments(split.images)
fingerprint(Dataset(split, split, (), mean=(), std=(), name="", fingerprint=""))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "a.npy")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150_000, f"{done.stdout} KiB more"
