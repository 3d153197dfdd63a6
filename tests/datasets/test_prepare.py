"""Preparation: once, in one step, whatever is killed, raced, cut off or damaged in between."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from datasets.core import prepare as preparing
from datasets.core.base import DataError, RawDataset, Split
from datasets.core.prepare import DamagedError, check, is_prepared, load, locate, prepare
from datasets.core.registry import get

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
    part = data.train.subset(np.array([5, 2]))
    for field, array in part.arrays().items():
        np.testing.assert_array_equal(array, raw.train.arrays()[field][[5, 2]])
    assert len(data.train.subset(data.train.labels == 0)) == 16
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
    assert check(locate("fake", cache=tmp_path / "cache")) is None
    assert not is_prepared(locate("fake", cache=tmp_path / "cache")) and not (tmp_path / "cache").exists()
    whole = load("fake", cache=tmp_path).fingerprint
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(preparing, "validate", lambda *_: pytest.fail("it was built again"))
    monkeypatch.setattr(preparing, "FileLock", lambda *_: pytest.fail("a lock was taken"))
    data = check(locate("fake", cache=tmp_path))
    assert data is not None and data.fingerprint == load("fake", cache=tmp_path).fingerprint == whole
    prepare(locate("fake", cache=tmp_path))
    assert is_prepared(locate("fake", cache=tmp_path)) and not is_prepared(
        locate("fake", {"seed": 5}, cache=tmp_path)
    )
    assert sorted(tmp_path.rglob("*")) == before


# Damage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train_labels.npy", lambda content: None, r"train_labels\.npy: got 0 bytes"),
        ("test_images.npy", lambda content: content[:0], r"test_images\.npy: got 0 bytes; expected 2,176"),
        ("test_images.npy", lambda content: content[:-1], r"got 2,175 bytes; expected 2,176"),
        ("test_images.npy", lambda content: b"x" * len(content), "not a readable array"),
        ("train_images.npy", lambda content: content[:-1] + bytes([content[-1] ^ 1]), "fingerprint: got "),
        ("test_images.npy", lambda content: content[:1000] + bytes(1176), "fingerprint: got "),
        (
            "test_labels.npy",
            lambda content: content[:-8] + bytes([content[-8] ^ 1]) + bytes(7),
            "fingerprint: ",
        ),
        (
            "done.json",
            lambda content: re.sub(rb'"std": \[\s*0.', b'"std": [1.', content),
            "fingerprint: got ",
        ),
    ],
)
def test_damage_is_named_and_prepare_heals_it(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes | None], message: str
) -> None:
    """32 test images of 8 x 8 are 2,048 bytes after a header of 128. A run compares sizes, `check` reads all."""
    whole = load("fake", cache=tmp_path).fingerprint
    path = folder_of(tmp_path) / name
    before = path.read_bytes()
    changed = change(before)
    assert changed != before
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    for read in (check, lambda place: load("fake", cache=tmp_path)):
        if read is check or "fingerprint" not in message:
            with pytest.raises(DamagedError, match=message) as caught:
                read(locate("fake", cache=tmp_path))
            assert str(folder_of(tmp_path)) in str(caught.value)
    assert is_prepared(locate("fake", cache=tmp_path)) == ("fingerprint" in message)
    prepare(locate("fake", cache=tmp_path))
    data = check(locate("fake", cache=tmp_path))
    assert data is not None and data.fingerprint == whole


@pytest.mark.parametrize("content", ['{"arrays": {"a": 1}}', '{"identity": 1', "", "[]", '{"identity": 1}'])
def test_half_a_marker_means_prepare_anew(tmp_path: Path, content: str) -> None:
    whole = load("fake", cache=tmp_path).fingerprint
    marker = folder_of(tmp_path) / "done.json"
    marker.write_text(content)
    assert not is_prepared(locate("fake", cache=tmp_path))
    assert load("fake", cache=tmp_path).fingerprint == whole
    assert is_prepared(locate("fake", cache=tmp_path))


def test_mapped_arrays_survive_a_new_preparation(tmp_path: Path) -> None:
    """A process that reads the old arrays is not disturbed when another prepares anew."""
    images = load("fake", cache=tmp_path).train.images
    before = np.array(images)
    prepare(locate("fake", cache=tmp_path), force=True)
    np.testing.assert_array_equal(images, before)


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
preparing.prepare(preparing.locate("fake", cache=cache), force=sys.argv[4] == "anew")
"""


# fake has four arrays and the marker: fsync number 1 to 5. The only rename makes the folder appear; where there is one
# already it is the second, after that of the old folder.
@pytest.mark.parametrize(
    ("moment", "call", "how"),
    [("fsync", 1, ""), ("fsync", 5, ""), ("replace", 1, ""), ("replace", 1, "anew"), ("replace", 2, "anew")],
)
def test_a_kill_leaves_nothing_that_is_read(
    root: Path, tmp_path: Path, moment: str, call: int, how: str
) -> None:
    whole = load("fake", cache=tmp_path / "undisturbed").fingerprint
    cache = tmp_path / "cache"
    if how == "anew":
        load("fake", cache=cache)
    command = [sys.executable, "-c", KILLED, str(cache), moment, str(call), how]
    assert subprocess.run(command, cwd=root, check=False).returncode == -signal.SIGKILL
    assert any(path.suffix == ".partial" for path in cache.iterdir()), "it was not killed while writing"
    assert is_prepared(locate("fake", cache=cache)) == ((call, how) == (1, "anew"))
    assert load("fake", cache=cache).fingerprint == whole
    prepare(locate("fake", cache=cache), force=True)
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".lock"]


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
    time.sleep(0.2)
    return get("fake").builder(get("fake").options(), root)
(place / f"ready{sys.argv[2]}").touch()
while not (place / "go").exists():
    time.sleep(0.005)
print(load("slow", cache=place / "cache").fingerprint)
"""


def test_processes_that_prepare_at_once_build_it_once(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    racers = [
        subprocess.Popen([*command, str(k)], cwd=root, stdout=subprocess.PIPE, text=True) for k in range(2)
    ]
    deadline = time.monotonic() + 300
    while not all((tmp_path / f"ready{k}").exists() for k in range(2)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (tmp_path / "go").touch()
    prints = [racer.communicate(timeout=300)[0].strip() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert len(set(prints)) == 1 and len(prints[0]) == 64
    assert (tmp_path / "built").read_text() == "x"


@pytest.mark.parametrize(
    ("moment", "error"), [("validate", DataError("no")), ("fingerprint", OSError(28, os.strerror(28)))]
)
def test_a_builder_that_fails_or_a_full_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, error: Exception
) -> None:
    monkeypatch.setattr(preparing, moment, Mock(side_effect=error))
    with pytest.raises(DataError, match="no$" if moment == "validate" else "free some space"):
        load("fake", cache=tmp_path)
    monkeypatch.undo()
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    load("fake", cache=tmp_path)


# The builder's contract ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("train", {"images": np.zeros((4, 1, 8, 8))}, "train images: got float64"),
        ("train", {"images": np.zeros((4, 8, 8), np.uint8)}, r"train images: got uint8 \(4, 8, 8\)"),
        ("test", {"images": np.zeros((4, 3, 8, 8), np.uint8)}, r"test images: got \(3, 8, 8\)"),
        ("test", {"images": np.zeros((0, 1, 8, 8), np.uint8)}, "test has no images; expected N > 0"),
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
    preparing.validate("mine", good)
    more = {part: replace(split, **changes)} if part else changes
    with pytest.raises(DataError, match=message):
        preparing.validate("mine", replace(good, **more))
