"""Preparation: once, in one step, whatever is killed, raced, cut off or damaged in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from datasets.core import prepare as preparing
from datasets.core.base import DataError, RawDataset, Split
from datasets.core.check import check
from datasets.core.prepare import is_prepared, load, prepare
from datasets.core.registry import get

CELLS = {"classes": 3, "attributes": 2, "sources": 2, "channels": 3, "train_size": 48, "test_size": 24}


def folder_of(cache: Path) -> Path:
    (folder,) = (path for path in cache.iterdir() if not path.name.startswith("."))
    return folder


def damage(cache: Path, name: str = "train_images.npy") -> Path:
    """Change the last byte of a prepared array, keeping its size."""
    path = folder_of(cache) / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    return path


def test_arrays_are_what_the_builder_returned(tmp_path: Path) -> None:
    raw = get("fake").builder(get("fake").options(**CELLS), tmp_path)
    data = load("fake", CELLS, cache=tmp_path)
    for part, original in ((data.train, raw.train), (data.test, raw.test)):
        assert part.arrays().keys() == {"images", "labels", "attributes", "sources"}
        for field, array in part.arrays().items():
            np.testing.assert_array_equal(array, original.arrays()[field])
            assert array.dtype == (np.uint8 if field == "images" else np.int64)
    assert data.train.images.shape == (48, 3, 8, 8) and len(data.test) == 24
    assert data.classes == ("class0", "class1", "class2") and data.sources == ("source0", "source1")
    # 48 images spread over 3 x 2 x 2 cells: four in each
    cells = data.train.labels * 4 + data.train.attributes * 2 + data.train.sources
    np.testing.assert_array_equal(np.bincount(cells), np.full(12, 4))


def test_images_are_mapped_read_only(tmp_path: Path) -> None:
    images = load("fake", cache=tmp_path).train.images
    assert isinstance(images, np.memmap) and not images.flags.writeable


def test_mean_and_std_are_those_of_the_training_images(tmp_path: Path) -> None:
    data = load("fake", CELLS, cache=tmp_path)
    scaled = np.asarray(data.train.images, dtype=np.float64) / 255
    np.testing.assert_allclose(data.mean, scaled.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(data.std, scaled.std(axis=(0, 2, 3)), rtol=1e-9)


def test_subset(tmp_path: Path) -> None:
    split = load("fake", CELLS, cache=tmp_path).train
    part = split.subset([5, 2])
    np.testing.assert_array_equal(part.labels, split.labels[[5, 2]])
    np.testing.assert_array_equal(part.images[1], split.images[2])
    np.testing.assert_array_equal(part.sources, np.asarray(split.sources)[[5, 2]])
    assert len(split.subset([])) == 0
    assert len(split.subset(split.labels == 0)) == 16
    with pytest.raises(DataError, match=r"expected 0\.\.47"):
        split.subset([48])
    with pytest.raises(DataError, match="list of indices"):
        split.subset([0.5])


def test_fingerprint_follows_content_and_not_the_place(tmp_path: Path) -> None:
    first = load("fake", {"seed": 1}, cache=tmp_path / "a").fingerprint
    assert load("fake", {"seed": 1}, cache=tmp_path / "b").fingerprint == first
    assert load("fake", {"seed": 2}, cache=tmp_path / "a").fingerprint != first
    assert len(first) == 64


def test_defaults_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "from_env"))
    load("fake")
    assert (folder_of(tmp_path / "from_env") / "done.json").is_file()
    monkeypatch.delenv("FEDTABLES_CACHE")
    monkeypatch.chdir(tmp_path)
    load("fake")
    assert (folder_of(tmp_path / ".cache" / "datasets") / "done.json").is_file()


def test_a_prepared_set_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load("fake", cache=tmp_path)
    monkeypatch.setattr(preparing, "validate", lambda *_: pytest.fail("it was built again"))
    load("fake", cache=tmp_path)
    prepare("fake", cache=tmp_path)
    assert is_prepared("fake", cache=tmp_path)
    assert not is_prepared("fake", {"seed": 5}, cache=tmp_path)


def test_loading_imports_no_heavy_package(root: Path, tmp_path: Path) -> None:
    prepare("digits", cache=tmp_path)
    code = (
        "import sys; from pathlib import Path; from datasets import load\n"
        f"load('digits', cache=Path({str(tmp_path)!r}))\n"
        "print([m for m in ('torch', 'torchvision', 'sklearn', 'scipy.io') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Damage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_cut_off_array_is_named_and_prepare_heals_it(tmp_path: Path, keep: int) -> None:
    whole = load("fake", cache=tmp_path).fingerprint
    path = folder_of(tmp_path) / "test_images.npy"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=rf"test_images.npy: got [\d,]+ bytes; expected {size:,}") as caught:
        load("fake", cache=tmp_path)
    assert str(folder_of(tmp_path)) in str(caught.value)
    assert not is_prepared("fake", cache=tmp_path)
    assert not check("fake", cache=tmp_path).ok
    prepare("fake", cache=tmp_path)
    assert load("fake", cache=tmp_path).fingerprint == whole
    assert check("fake", cache=tmp_path).ok


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    load("fake", cache=tmp_path)
    (folder_of(tmp_path) / "train_labels.npy").unlink()
    with pytest.raises(DataError, match=r"train_labels\.npy is missing"):
        load("fake", cache=tmp_path)


@pytest.mark.parametrize("name", ["train_images.npy", "test_labels.npy"])
def test_one_changed_byte_is_found_by_check_and_healed_by_prepare(tmp_path: Path, name: str) -> None:
    load("fake", cache=tmp_path)
    assert check("fake", cache=tmp_path).ok
    path = damage(tmp_path, name)
    changed = path.read_bytes()
    report = check("fake", cache=tmp_path)
    assert not report.ok and "fingerprint" in report.problems[0]
    prepare("fake", cache=tmp_path)
    assert path.read_bytes() != changed
    assert check("fake", cache=tmp_path).ok


def test_a_file_of_the_right_size_that_is_no_array(tmp_path: Path) -> None:
    load("fake", cache=tmp_path)
    path = folder_of(tmp_path) / "train_images.npy"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(DataError, match="not a readable array"):
        load("fake", cache=tmp_path)
    prepare("fake", cache=tmp_path)
    load("fake", cache=tmp_path)


@pytest.mark.parametrize(
    "content", ['{"format": 999, "arrays": {"a": 1}}', '{"format": 1', "", "[]", '{"format": 1}']
)
def test_another_format_or_half_a_marker_means_prepare_anew(tmp_path: Path, content: str) -> None:
    whole = load("fake", cache=tmp_path).fingerprint
    marker = folder_of(tmp_path) / "done.json"
    marker.write_text(content)
    assert not is_prepared("fake", cache=tmp_path)
    assert load("fake", cache=tmp_path).fingerprint == whole
    assert json.loads(marker.read_text())["format"] == preparing.FORMAT


def test_mapped_arrays_survive_a_new_preparation(tmp_path: Path) -> None:
    """A process that reads the old arrays is not disturbed when another prepares anew."""
    images = load("fake", cache=tmp_path).train.images
    before = np.array(images)
    prepare("fake", cache=tmp_path, force=True)
    np.testing.assert_array_equal(images, before)


# Check --------------------------------------------------------------------------------------------------------------


def test_check_counts_every_cell(tmp_path: Path) -> None:
    load("fake", CELLS, cache=tmp_path)
    report = check("fake", CELLS, cache=tmp_path)
    train = {(c.label, c.attribute, c.source): c.images for c in report.counts if c.split == "train"}
    assert len(train) == 12 and set(train.values()) == {4}
    assert sum(c.images for c in report.counts if c.split == "test") == 24


def test_check_of_an_unprepared_set_writes_nothing(tmp_path: Path) -> None:
    report = check("fake", cache=tmp_path / "cache")
    assert not report.ok and "not prepared" in report.problems[0]
    assert not (tmp_path / "cache").exists()


# Kills and races ----------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from datasets.core import prepare as preparing
cache, moment, call = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
original, seen = getattr(os, moment), []
def deadly(*arguments):
    seen.append(1)
    if len(seen) == call:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments)
setattr(os, moment, deadly)
preparing.prepare("fake", cache=cache, force=len(sys.argv) > 4)
"""


def kill_while_preparing(root: Path, cache: Path, moment: str, call: int, *more: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(cache), moment, str(call), *more], cwd=root, check=False
    )
    assert done.returncode == -signal.SIGKILL


# fake has four arrays and the marker: fsync number 1 to 5; the only rename makes the folder appear.
@pytest.mark.parametrize(("moment", "call"), [("fsync", 1), ("fsync", 3), ("fsync", 5), ("replace", 1)])
def test_a_killed_preparation_leaves_nothing_that_is_read(
    root: Path, tmp_path: Path, moment: str, call: int
) -> None:
    cache = tmp_path / "cache"
    kill_while_preparing(root, cache, moment, call)
    assert any(".tmp-" in path.name for path in cache.iterdir())  # it was killed in the middle of writing
    assert not is_prepared("fake", cache=cache)
    data = load("fake", cache=cache)
    assert data.fingerprint == load("fake", cache=tmp_path / "undisturbed").fingerprint
    assert check("fake", cache=cache).ok
    assert not any(".tmp-" in path.name for path in cache.iterdir())


@pytest.mark.parametrize("call", [1, 2])
def test_a_kill_between_old_and_new_set(root: Path, tmp_path: Path, call: int) -> None:
    """Preparing anew renames twice: the old folder aside, the new one in."""
    whole = load("fake", cache=tmp_path).fingerprint
    kill_while_preparing(root, tmp_path, "replace", call, "force")
    assert load("fake", cache=tmp_path).fingerprint == whole
    assert check("fake", cache=tmp_path).ok


RACER = """
import sys, time
from pathlib import Path
from datasets import load
from datasets.core.base import Options
from datasets.core.registry import dataset, get
place = Path(sys.argv[1])
@dataset("slow", options=Options)
def slow(options, root):
    "A set that takes its time."
    with open(place / "built", "a") as log:
        log.write("x")
    time.sleep(0.5)
    return get("fake").builder(get("fake").options(), root)
(place / f"ready{sys.argv[2]}").touch()
while not (place / "go").exists():
    time.sleep(0.005)
print(load("slow", cache=place / "cache").fingerprint)
"""


def test_processes_that_prepare_at_once_build_it_once(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    racers = [
        subprocess.Popen([*command, str(k)], cwd=root, stdout=subprocess.PIPE, text=True) for k in range(3)
    ]
    deadline = time.monotonic() + 300
    while not all((tmp_path / f"ready{k}").exists() for k in range(3)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (tmp_path / "go").touch()
    prints = [racer.communicate(timeout=300)[0].strip() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert len(set(prints)) == 1 and len(prints[0]) == 64
    assert (tmp_path / "built").read_text() == "x"


def test_a_builder_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DataError("no")

    monkeypatch.setattr(preparing, "validate", refuse)
    with pytest.raises(DataError, match="no"):
        load("fake", cache=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


# The folder ---------------------------------------------------------------------------------------------------------


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="FEDTABLES_CACHE") as caught:
        load("fake", cache=tmp_path / "file" / "cache")
    assert str(tmp_path / "file" / "cache") in str(caught.value)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(preparing.os, "fsync", full)
    with pytest.raises(DataError, match="free some space"):
        load("fake", cache=tmp_path)
    monkeypatch.undo()
    assert not any(".tmp-" in path.name for path in tmp_path.iterdir())
    load("fake", cache=tmp_path)


def test_a_prepared_set_loads_without_write_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared cache may be read-only: loading takes no lock and makes no file."""
    load("fake", cache=tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(preparing, "FileLock", lambda *_: pytest.fail("a lock was taken"))
    load("fake", cache=tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


# The builder's contract ---------------------------------------------------------------------------------------------


def split(count: int = 4, **changes: np.ndarray) -> Split:
    fields = {"images": np.zeros((count, 1, 8, 8), np.uint8), "labels": np.arange(count, dtype=np.int64) % 2}
    return Split(**{**fields, **changes})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (RawDataset(split(images=np.zeros((4, 1, 8, 8))), split(), ("a", "b")), "float64"),
        (RawDataset(split(images=np.zeros((4, 8, 8), np.uint8)), split(), ("a", "b")), r"\(4, 8, 8\)"),
        (RawDataset(split(), split(0), ("a", "b")), "N > 0"),
        (RawDataset(split(), split(), ("a",)), "got 0 to 1; expected indices of 1 names"),
        (
            RawDataset(split(labels=np.zeros(3, np.int64)), split(), ("a", "b")),
            r"got int64 \(3,\); expected int64 \(4,\)",
        ),
        (
            RawDataset(split(attributes=np.zeros(4, np.int64)), split(), ("a", "b")),
            "attributes: got 0 to 0",
        ),
        (
            RawDataset(split(), split(images=np.zeros((4, 3, 8, 8), np.uint8)), ("a", "b")),
            r"test images: got \(3, 8, 8\)",
        ),
        (RawDataset(split(), split(), ("a", "b"), mean=(0.1, 0.2)), "mean: got 2 numbers; expected 1"),
    ],
)
def test_what_a_builder_returns_is_checked(raw: RawDataset, message: str) -> None:
    with pytest.raises(DataError, match=message):
        preparing.validate("mine", raw)
