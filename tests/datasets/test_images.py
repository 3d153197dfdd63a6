"""Decoding of image files into arrays: pixels, processes, and interruptions."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import CenterCrop, Compose, Resize

from datasets.core import check, decode, prepare, registry
from datasets.core.base import DataError, Options, published
from datasets.core.decode import decode_into
from datasets.core.folders import Place, Tree
from datasets.core.images import BadImage, Files, ListedDataset, ToSquare, open_rgb


def picture(path: Path, width: int, height: int, seed: int = 0, mode: str = "RGB") -> Path:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 4), dtype=np.uint8)
    image = (
        Image.fromarray(values[..., : len(mode)].squeeze(), mode)
        if mode != "L"
        else Image.fromarray(values[..., 0])
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


# One file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(20, 20), (40, 30), (31, 50), (20, 64)])
def test_pixels_are_torchvisions(tmp_path: Path, width: int, height: int) -> None:
    path = picture(tmp_path / "a.png", width, height)
    image = Image.open(path)
    for how, transform in {
        "squash": Resize((20, 20)),
        "cover": Compose([Resize(20), CenterCrop(20)]),
    }.items():
        expected = np.asarray(transform(image)).transpose(2, 0, 1)
        np.testing.assert_array_equal(ToSquare(20, how)(path), expected)  # type: ignore[arg-type]


def test_modes_become_rgb(tmp_path: Path) -> None:
    grey = np.array([[0, 128, 255]], dtype=np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(np.dstack([grey, grey, grey, np.full_like(grey, 7)])).save(tmp_path / "rgba.png")
    # 257 x 128 = 32,896: a 16-bit image of the same grey values, which convert() would turn white.
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    for name in ("grey.png", "rgba.png", "deep.png"):
        image = open_rgb(tmp_path / name)
        assert image.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(image), np.dstack([grey] * 3), err_msg=name)


def test_grey_of_other_numbers_is_scaled_and_not_cut_off(tmp_path: Path) -> None:
    """A tiff of floats in 0..1 is not black, one of 0..255 stays as it is, and 32-bit integers count as 16 bits."""
    grey = np.array([[0, 128, 255]], dtype=np.uint8)
    for name, values in {
        "share.tif": grey.astype(np.float32) / 255,
        "float.tif": grey.astype(np.float32),
        "wide.tif": grey.astype(np.int32) * 257,
    }.items():
        Image.fromarray(values).save(tmp_path / name)
        np.testing.assert_array_equal(
            np.asarray(open_rgb(tmp_path / name)), np.dstack([grey] * 3), err_msg=name
        )
    Image.fromarray(np.full((2, 2), np.nan, np.float32)).save(tmp_path / "none.tif")
    with pytest.raises(BadImage, match="not finite"):
        open_rgb(tmp_path / "none.tif")


def test_a_bad_image_comes_back_from_another_process_as_it_was() -> None:
    bad = BadImage(Path("a.png"), "is no image", "an array", "a full disk")
    again = pickle.loads(pickle.dumps(bad))
    assert isinstance(again, BadImage) and str(again) == str(bad) == "a.png is no image"
    assert (again.expected, again.cause) == ("an array", "a full disk")


# Many files --------------------------------------------------------------------------------------------------


def listed(folder: Path, train: int = 70, test: int = 3, decode: Any = None) -> ListedDataset:
    paths = [folder / f"{n:03}.png" for n in range(train + test)]
    for n, path in enumerate(paths):
        if not os.path.lexists(path):
            picture(path, 9 + n % 5, 8, n)
    labels = np.arange(train + test, dtype=np.int64) % 2
    tree = Tree(title="Pictures", folders=("raw",), page="example.org/pictures", archive="raw.zip")
    return ListedDataset(
        train=Files(paths[:train], labels[:train]),
        test=Files(paths[train:], labels[train:]),
        decode=decode or ToSquare(8, "squash"),
        mean=None,
        std=None,
        places=(Place(tree, folder.parent, folder),),
        classes=("even", "odd"),
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_processes_gives_the_same_arrays(tmp_path: Path, workers: int) -> None:
    data = listed(tmp_path / "raw")
    raw = decode_into(data, tmp_path / "out", "name", workers)
    decode = ToSquare(8, "squash")
    for split, files in ((raw.train, data.train), (raw.test, data.test)):
        assert isinstance(split.images, np.memmap)
        np.testing.assert_array_equal(split.images, np.stack([decode(path) for path in files.paths]))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "test_images.npy",
        "train_images.npy",
    ]


@dataclass(frozen=True)
class Counting:
    """Decodes, and notes every file that it was given."""

    note: Path
    stops_at: str = ""
    size: int = 8

    def __repr__(self) -> str:
        return "Counting"

    def __call__(self, path: Path) -> Any:
        if path.name == self.stops_at:
            raise DataError("stopped here")
        with self.note.open("a") as stream:
            print(path.name, file=stream)
        return ToSquare(8, "squash")(path)


def test_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Chunks of 32: files 0 to 31 are on the disk when file 40 stops it."""
    note, out = tmp_path / "note", tmp_path / "out"
    with pytest.raises(DataError, match="stopped here"):
        decode_into(listed(tmp_path / "raw", decode=Counting(note, "040.png")), out, "name", 1)
    note.unlink()
    data = listed(tmp_path / "raw", decode=Counting(note))
    for path in [*data.train.paths, *data.test.paths]:
        os.utime(path, (1, 1))
    again = decode_into(data, out, "name", 1)
    assert len(note.read_text().split()) == 73, "other times: another list, from the beginning"
    assert len(again.train) == 70


def test_what_is_decoded_is_not_decoded_again(tmp_path: Path) -> None:
    note, out = tmp_path / "note", tmp_path / "out"
    data = listed(tmp_path / "raw", decode=Counting(note, "040.png"))
    with pytest.raises(DataError, match="stopped here"):
        decode_into(data, out, "name", 1)
    note.unlink()
    object.__setattr__(data, "decode", Counting(note))
    raw = decode_into(data, out, "name", 1)
    assert note.read_text().split() == [f"{n:03}.png" for n in range(32, 73)]
    decode = ToSquare(8, "squash")
    np.testing.assert_array_equal(raw.train.images, np.stack([decode(path) for path in data.train.paths]))


class Larger:
    """Gives larger images than it says."""

    size = 8

    def __call__(self, path: Path) -> Any:
        return np.zeros((3, 9, 9), np.uint8)


def test_the_wrong_shape(tmp_path: Path) -> None:
    data = listed(tmp_path / "raw", decode=Larger())
    with pytest.raises(DataError) as caught:
        decode_into(data, tmp_path / "out", "name", 1)
    message = str(caught.value)
    assert "000.png was decoded into uint8 (3, 9, 9) and not into uint8 (3, 8, 8)." in message
    assert "expected:  raw/000.png, an image that gives 3 x 8 x 8\n" in message
    assert "as in a resized copy" in message


# Whole preparations --------------------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registered data set `pictures` of 70 + 3 files below the folder that is returned."""

    def build(options: Options, root: Path) -> ListedDataset:
        """Pictures."""
        return listed(root)

    registry.names()
    monkeypatch.setitem(registry._entries, "pictures", registry.Entry("pictures", build, Options, 1))
    return tmp_path


def test_a_listed_set_is_prepared_like_any_other(pictures: Path) -> None:
    data = prepare.load("pictures", None, pictures / "raw", pictures / "cache")
    assert data.train.images.shape == (70, 3, 8, 8) and not data.train.images.flags.writeable
    share = np.asarray(data.train.images, dtype=np.float64) / 255
    np.testing.assert_allclose(data.mean, share.mean((0, 2, 3)))
    np.testing.assert_allclose(data.std, share.std((0, 2, 3)))
    assert check.check("pictures", None, pictures / "raw", pictures / "cache").ok
    assert [path.name for path in (pictures / "cache").iterdir() if path.is_dir()] == [
        prepare.locate("pictures", None, pictures / "raw", pictures / "cache").folder.name
    ]


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("content", "problem", "found", "cause"),
    [
        (b"", "037.png cannot be decoded as an image", "0 bytes\n", "interrupted"),
        (
            b"<html>not found</html>",
            "037.png cannot be decoded as an image",
            "22 bytes that begin with b'<html>not found<'",
            "a web page saved under this name",
        ),
        (
            b"PK\x03\x04" + bytes(30),
            "037.png cannot be decoded as an image",
            "34 bytes that",
            "an archive under",
        ),
        (None, "037.png cannot be decoded as an image", "60 bytes that begin with b'\\x89PNG", "interrupted"),
        ("link", "037.png cannot be read (No such file", "cannot be read (No such", "a link to nothing"),
    ],
)
def test_a_file_that_is_no_image(
    pictures: Path,
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    workers: str,
    content: Any,
    problem: str,
    found: str,
    cause: str,
) -> None:
    """Of 37 even and 36 odd files an odd one is bad, and two even ones further down are empty."""
    monkeypatch.setenv("FEDTABLES_WORKERS", workers)
    listed(pictures / "raw")
    path = pictures / "raw/037.png"
    if content == "link":
        path.unlink()
        path.symlink_to(pictures / "gone.png")
    else:
        path.write_bytes(path.read_bytes()[:60] if content is None else content)
    for number in ("048", "072"):
        (pictures / f"raw/{number}.png").write_bytes(b"")
    message = refused("pictures", pictures / "raw", decoding=content != "link")
    assert message.startswith(f"Pictures: {problem}")
    assert f"looked at: {path}\n" in message
    assert "expected:  raw/037.png, an image that Pillow can open\n" in message
    assert f"found:     {found}" in message and cause in message.split("cause:")[1].split("get it:")[0]
    assert "73 images expected, 70 found; expected/found: even 37/35, odd 36/35" in message


def test_files_that_may_not_be_looked_at(
    pictures: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder whose names may be read and nothing else: it is no fault of the cache. Files 10 to 19 are in it."""
    stat = Path.stat

    def guarded(path: Path, **options: Any) -> os.stat_result:
        if path.name.startswith("01"):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    listed(pictures / "raw")
    monkeypatch.setattr(Path, "stat", guarded)
    message = refused("pictures", pictures / "raw")
    assert message.startswith("Pictures: 010.png cannot be read (Permission denied).")
    assert "73 images expected, 63 found; expected/found: even 37/32, odd 36/31" in message


def test_the_place_of_a_bad_file_is_the_nearest_one(tmp_path: Path) -> None:
    """Of two sets one may lie in the data root itself."""
    data = listed(tmp_path / "raw", train=3, test=1)
    other = Tree(title="Others", folders=("others",), page="example.org/others", archive="others.zip")
    object.__setattr__(data, "places", (Place(other, tmp_path, tmp_path), *data.places))
    data.train.paths[1].write_bytes(b"")
    with pytest.raises(DataError, match=r"^Pictures: 001\.png"):
        decode_into(data, tmp_path / "out", "name", 1)


def test_what_a_builder_says_of_files_is_kept_with_the_arrays(tmp_path: Path) -> None:
    data = listed(tmp_path / "raw", train=3, test=1)
    expected = published({"train": [[1, 2], [3, 4]], "test": [[5, 6], [7, 8]]}, ("even", "odd"), ("a", "b"))
    assert expected[:3] == (("train", "even", "a", 1), ("train", "even", "b", 2), ("train", "odd", "a", 3))
    assert expected[7] == ("test", "odd", "b", 8) and len(expected) == 8
    assert published({"test": (5, 6)}, ("x", "y")) == (("test", "x", "", 5), ("test", "y", "", 6))
    said = {
        "sources": ("a", "b"),
        "mean": (0.5,) * 3,
        "std": (0.25,) * 3,
        "note": "made up",
        "expected": expected,
    }
    raw = decode_into(replace(data, **said), tmp_path / "out", "name", 1)
    assert {name: getattr(raw, name) for name in said} == said
    assert (raw.classes, raw.attributes) == (("even", "odd"), ())


def test_wrong_labels_are_told_before_anything_is_decoded(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(options: Options, root: Path) -> ListedDataset:
        """Pictures."""
        data = listed(root)
        data.train.labels[3] = 2
        return data

    monkeypatch.setitem(registry._entries, "pictures", registry.Entry("pictures", build, Options, 1))
    monkeypatch.setattr(decode, "_decode_chunk", lambda *_: pytest.fail("decoded"))
    with pytest.raises(DataError, match="train labels: got 0 to 2; expected indices of 2 names"):
        prepare.prepare("pictures", None, pictures / "raw", pictures / "cache")


def test_memory_stays_small(tmp_path: Path) -> None:
    """1.5 GB of arrays, in a process of its own: its peak stays far below them, whatever is read through."""
    code = textwrap.dedent("""
        import json, resource, sys
        from pathlib import Path
        import numpy as np
        from datasets.core.base import channel_moments
        from datasets.core.prepare import _fingerprint
        path = Path(sys.argv[1])
        np.lib.format.open_memmap(path, "w+", np.uint8, (10_000, 3, 224, 224)).flush()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        array = np.load(path, mmap_mode="r")
        channel_moments(array)
        _fingerprint({key: 0 for key in ("classes", "attributes", "sources", "mean", "std")}, {"train_images": array})
        print(json.dumps([before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
    """)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.npy")],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = json.loads(done.stdout)
    assert after - before < 300_000, f"{after - before} KiB more"


def test_a_killed_worker_is_one_message(tmp_path: Path) -> None:
    data = listed(tmp_path / "raw", train=200, decode=Killed())
    with pytest.raises(DataError, match="a process that decodes images was killed"):
        decode_into(data, tmp_path / "out", "name", 2)


class Killed:
    """Kills the process that decodes."""

    size = 8

    def __call__(self, path: Path) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def test_torch_uses_the_mapped_array_in_place(pictures: Path) -> None:
    from benchmark.runs.build import to_tensor

    data = prepare.load("pictures", None, pictures / "raw", pictures / "cache")
    tensor = to_tensor(data.train.images, torch.device("cpu"))
    assert tensor.data_ptr() == data.train.images.ctypes.data
