"""Preparation: once, in one step, and anew if the builder, its raw files or the arrays are others."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edited_code import Edit, edited  # noqa: F401
from raw_trees import picture
from tiny_runs import STATELESS, carry_out, index_of, result_of, tiny

from datasets.core import prepare as preparing
from datasets.core.base import DataError, Options, RawDataset, Split, validate
from datasets.core.prepare import current_fingerprint, is_prepared, load, locate, prepare, require_raw_files
from datasets.core.registry import ENTRIES, dataset, get

CELLS = {"classes": 3, "attributes": 2, "sources": 2, "channels": 3, "train_size": 48, "test_size": 24}


def folder_of(cache: Path) -> Path:
    (folder,) = (path for path in cache.iterdir() if not path.name.startswith("."))
    return folder


def test_arrays_are_what_the_builder_returned(tmp_path: Path) -> None:
    raw = get("fake").builder(get("fake").options(**CELLS), tmp_path)
    data = load("fake", CELLS, cache=tmp_path)
    for part, original in ((data.train, raw.train), (data.test, raw.test)):
        assert part.arrays().keys() == {"images", "labels", "attributes", "sources"}
        for field, array in part.arrays().items():
            np.testing.assert_array_equal(array, original.arrays()[field])
            assert array.dtype == (np.uint8 if field == "images" else np.int64)
            assert isinstance(array, np.memmap) and not array.flags.writeable
    assert data.train.images.shape == (48, 3, 8, 8) and len(data.test) == 24
    assert data.classes == ("class0", "class1", "class2") and data.sources == ("source0", "source1")
    # 48 images spread over 3 x 2 x 2 cells: four in each
    cells = data.train.labels * 4 + data.train.attributes * 2 + data.train.sources
    np.testing.assert_array_equal(np.bincount(cells), np.full(12, 4))
    for field, array in data.train.subset(np.array([5, 2])).arrays().items():
        np.testing.assert_array_equal(array, raw.train.arrays()[field][[5, 2]])
    scaled = np.asarray(data.train.images, dtype=np.float64) / 255
    np.testing.assert_allclose(data.mean, scaled.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(data.std, scaled.std(axis=(0, 2, 3)), rtol=1e-9)


def test_defaults_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fingerprint follows the content and not the place."""
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "from_env"))
    first = load("fake").fingerprint
    assert (folder_of(tmp_path / "from_env") / "done.json").is_file()
    monkeypatch.delenv("FEDTABLES_CACHE")
    monkeypatch.chdir(tmp_path)
    assert load("fake").fingerprint == first != load("fake", {"seed": 2}).fingerprint
    assert (tmp_path / ".cache" / "datasets").is_dir()


def test_a_prepared_set_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared cache may be read-only: loading builds nothing, takes no lock and makes no file."""
    place = locate("fake", cache=tmp_path / "cache")
    assert not is_prepared(place) and not (tmp_path / "cache").exists()
    whole = prepare(place).fingerprint
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(preparing, "FileLock", lambda *_: pytest.fail("it was prepared again"))
    assert prepare(place).fingerprint == load("fake", cache=tmp_path / "cache").fingerprint == whole
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train_labels.npy", lambda content: None),
        ("test_images.npy", lambda content: content[:-1]),
        ("test_images.npy", lambda content: b""),
        ("done.json", lambda content: content[:50]),
        ("done.json", lambda content: b"[]"),
    ],
)
def test_damaged_arrays_are_prepared_anew(
    tmp_path: Path, name: str, content: Callable[[bytes], bytes | None]
) -> None:
    whole = load("fake", cache=tmp_path).fingerprint
    path = folder_of(tmp_path) / name
    changed = content(path.read_bytes())
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    assert not is_prepared(locate("fake", cache=tmp_path))
    assert current_fingerprint(folder_of(tmp_path)) == ""
    assert load("fake", cache=tmp_path).fingerprint == whole == current_fingerprint(folder_of(tmp_path))


def test_data_prepare_compares_the_content_of_arrays(tmp_path: Path) -> None:
    """A process that reads the old arrays is not disturbed."""
    data = load("fake", cache=tmp_path)
    before = np.array(data.train.images)
    path = folder_of(tmp_path) / "test_images.npy"
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    assert prepare(locate("fake", cache=tmp_path)).fingerprint == data.fingerprint
    np.testing.assert_array_equal(load("fake", cache=tmp_path).test.images[-1], get("fake").builder(
        get("fake").options(), tmp_path).test.images[-1])  # fmt: skip
    np.testing.assert_array_equal(data.train.images, before)


# Raw files and builder -----------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Raw files of a data set ``mine``: its labels are the numbers in them."""
    get("fake")  # reads all builders
    monkeypatch.setattr(ENTRIES, "found", dict(ENTRIES.found))

    @dataset("mine", options=Options)
    def mine(options: Options, root: Path) -> RawDataset:
        """A set of two files."""
        files = [root / "a.txt", root / "b.txt"]
        split = [np.array([int(name) for name in path.read_text().split()]) for path in files]
        images = np.zeros((4, 1, 8, 8), np.uint8)
        return RawDataset(*(Split(images, labels) for labels in split), ("zero", "one"), files=files)

    folder = tmp_path / "raw"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("0 1 0 1")
    return folder


def later(path: Path) -> None:
    os.utime(path, ns=(time.time_ns() + 10**9,) * 2)


def test_other_raw_files_are_another_set(tmp_path: Path, root: Path) -> None:
    place = locate("mine", root=root, cache=tmp_path / "cache")
    before = prepare(place).fingerprint
    (root / "c.txt").write_text("0")
    assert is_prepared(place)
    (root / "a.txt").write_text("1 1 0 1")
    later(root / "a.txt")
    assert not is_prepared(place) and current_fingerprint(place.folder) == ""
    after = load("mine", root=root, cache=tmp_path / "cache").fingerprint
    assert before != after == current_fingerprint(place.folder)
    (root / "b.txt").unlink()
    assert not is_prepared(place)
    (root / "a.txt").unlink()
    assert is_prepared(place), "prepared arrays can be used without the raw files"


def test_an_image_that_is_added_to_a_folder(tmp_path: Path) -> None:
    """Of one's own images, in a new folder of a class, too. Another file beside them changes nothing."""
    for n, name in enumerate(("x/0.png", "x/1.png", "y/2.png", "y/3.png")):
        picture(tmp_path / "own" / name, n, n)
    place = locate("folder", {"path": str(tmp_path / "own")}, cache=tmp_path / "cache")
    prepare(place)
    (tmp_path / "own/x/notes.txt").touch()
    assert is_prepared(place)
    for name in ("x/4.png", "z/5.png"):
        picture(tmp_path / "own" / name, 5, 5)
        assert not is_prepared(place)
        prepare(place)


READ = {
    "mnist": "MNIST/raw/t10k-labels*",
    "cifar10": "*/batches.meta",
    "svhn": "test_32x32.mat",
    "ham10000": "*/HAM10000_metadata.csv",
    "waterbirds": "*/metadata.csv",
    "retina": "Retina/test.csv",
    "pacs": "PACS/photo/dog/*_003.jpg",
}


@pytest.mark.parametrize("name", READ)
def test_builders_return_what_they_read(tmp_path: Path, raw: Callable[..., Path], name: str) -> None:
    """One of the files of each: a list, an array, an image."""
    root = raw(name)
    options = {"strict": False} | ({"held_out": 2} if name == "ham10000" else {})
    place = locate(name, options, root, tmp_path / "cache")
    prepare(place)
    (path,) = root.glob(READ[name])
    path.unlink()
    assert not is_prepared(place)


def test_another_builder_prepares_anew(tmp_path: Path, edited: Edit) -> None:  # noqa: F811
    place = locate("fake", cache=tmp_path)
    before = prepare(place).fingerprint
    edited("datasets/standin/fake.py", "\nfrom ", "\nimport this\nfrom ")
    assert not is_prepared(place)
    # Only the text has changed and not what this process has imported, so that the data are the same.
    assert prepare(place).fingerprint == before and is_prepared(place)


def test_what_is_missing_is_said_without_a_download(raw: Callable[..., Path], tmp_path: Path) -> None:
    for name, words in (
        ("mnist", "downloads by itself"),
        ("pacs", "got no images; expected the published 9,991"),
    ):
        with pytest.raises(DataError, match=words):
            require_raw_files(locate(name, None, tmp_path / "empty", tmp_path / "cache"))
    require_raw_files(locate("mnist", {"strict": False}, raw("mnist"), tmp_path / "cache"))
    assert not (tmp_path / "cache").exists() and not (tmp_path / "empty").exists()


# Kills and full disks ------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from datasets import load
def deadly(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
Path.replace = deadly
load("fake", cache=Path(sys.argv[1]))
"""


def test_a_kill_leaves_nothing_that_is_read(root: Path, tmp_path: Path) -> None:
    repository = Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED, str(tmp_path / "cache")]
    assert subprocess.run(command, cwd=repository, check=False).returncode == -signal.SIGKILL
    assert not is_prepared(locate("fake", cache=tmp_path / "cache"))
    data = load("fake", cache=tmp_path / "cache")
    assert data.fingerprint == load("fake", cache=tmp_path / "undisturbed").fingerprint


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(preparing, "fingerprint", full)
    with pytest.raises(DataError, match=r"No space left.*; expected .* Set FEDTABLES_CACHE"):
        load("fake", cache=tmp_path)
    monkeypatch.undo()
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    load("fake", cache=tmp_path)


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("train", {"images": np.zeros((4, 1, 8, 8))}, "train images: got float64"),
        ("train", {"images": np.zeros((4, 8, 8), np.uint8)}, r"train images: got uint8 \(4, 8, 8\)"),
        ("test", {"images": np.zeros((4, 3, 8, 8), np.uint8)}, r"test images: got uint8 \(4, 3, 8, 8\)"),
        ("test", {"images": np.zeros((0, 1, 8, 8), np.uint8)}, "test images: got none"),
        ("train", {"labels": np.array([0, 1, 2, 1])}, "labels: got 0 to 2; expected indices of 2 names"),
        ("test", {"labels": np.array([0, -1, 0, 1])}, "labels: got -1 to 1; expected indices of 2 names"),
        ("train", {"labels": np.zeros(3, np.int64)}, r"got int64 \(3,\); expected int64 \(4,\)"),
        ("train", {"attributes": np.zeros(4, np.int64)}, "got 0 to 0; expected indices of 0 names"),
        ("", {"mean": (0.1, 0.2)}, "mean: got 2 numbers; expected 1"),
    ],
)
def test_what_a_builder_returns_is_checked(part: str, changes: dict[str, Any], message: str) -> None:
    split = Split(np.zeros((4, 1, 8, 8), np.uint8), np.array([0, 1, 0, 1]))
    good = RawDataset(split, split, ("a", "b"))
    validate("mine", good)
    more = {part: replace(split, **changes)} if part else changes
    with pytest.raises(DataError, match=message):
        validate("mine", replace(good, **more))


def test_runs_on_other_data_are_carried_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw file is changed after the end of a run: its result is not current any more."""
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))

    def write(value: int) -> None:
        images, labels = np.full((8, 8, 8), value, np.uint8), np.arange(8) % 2
        content = {f"{part}_images": images for part in ("train", "test")}
        np.savez(tmp_path / "own.npz", **content, train_labels=labels, test_labels=labels)

    own = {"name": "arrays", "options": {"path": str(tmp_path / "own.npz")}}
    layer = {"dataset": own, "partition": {"clients": 4}, "train": {"clients_per_round": 2}}
    write(1)
    config = tiny(tmp_path / "results", STATELESS, layer)
    assert carry_out(config).state == "done" and index_of(config).state(config.key) == "done"
    before = result_of(config).origin["data"]
    write(2)
    later(tmp_path / "own.npz")
    assert index_of(config).why(config.key) == "the data"
    assert carry_out(config).state == "done" and index_of(config).state(config.key) == "done"
    assert result_of(config).origin["data"] != before
