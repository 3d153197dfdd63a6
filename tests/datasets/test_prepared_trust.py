"""A prepared set is what its builder makes of its raw files and options today, and stays so under a running command."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edited_code import Edit, edited  # noqa: F401
from tiny_runs import STATELESS, bits, folder_of, status_of, tiny

from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError
from benchmark.runs.execute import execute
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.runs.store import ResultsFolder
from datasets.core.base import DataError, Options, RawDataset, Split
from datasets.core.prepare import DamagedError, StaleError, check, is_prepared, load, locate, prepare
from datasets.core.registry import ENTRIES, dataset, get

BUILDER = "datasets/standin/fake.py"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Raw files of a data set ``mine``: its labels are the numbers in them."""
    get("fake")  # reads all builders
    monkeypatch.setattr(ENTRIES, "found", dict(ENTRIES.found))

    @dataset("mine", options=Options)
    def mine(options: Options, root: Path) -> RawDataset:
        """A set of two files."""
        split = [
            np.array([int(name) for name in (root / part).read_text().split()]) for part in ("a.txt", "b.txt")
        ]
        images = np.zeros((4, 1, 8, 8), np.uint8)
        return RawDataset(*(Split(images, labels) for labels in split), ("zero", "one"))

    folder = tmp_path / "raw"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("0 1 0 1")
    return folder


def later(path: Path) -> None:
    os.utime(path, ns=(time.time_ns() + 10**9,) * 2)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda raw: (raw / "a.txt").write_text("1 1 0 1"), "a.txt has changed"),
        (lambda raw: (raw / "a.txt").unlink(), "a.txt is gone"),
        (lambda raw: (raw / "c.txt").write_text("0"), "c.txt is new"),
        (lambda raw: later(raw / "a.txt"), ""),
        (shutil.rmtree, ""),
    ],
    ids=["content", "deleted", "new", "time only", "all gone"],
)
def test_raw_files_are_compared(
    tmp_path: Path, root: Path, change: Callable[[Path], object], why: str
) -> None:
    place = locate("mine", root=root, cache=tmp_path / "cache")
    before = prepare(place)
    change(root)
    assert is_prepared(place) == (not why)
    if why:
        with pytest.raises(StaleError, match=rf"mine: .*{why}\. .*prepared anew"):
            check(place)
    if why != "a.txt is gone":  # else the builder says what it lacks
        data = prepare(place)
        assert (data.fingerprint == before.fingerprint) == (why != "a.txt has changed")
        assert ("cannot be compared" in data.note) == (not root.exists())


def test_raw_files_that_change_while_they_are_read(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = locate("mine", root=root, cache=tmp_path / "cache")
    monkeypatch.setattr("datasets.core.prepare.fingerprint", lambda data: later(root / "a.txt"))
    with pytest.raises(DataError, match="changed while they were prepared"):
        prepare(place)
    assert not is_prepared(place)


def test_folders_of_two_option_sets_that_were_swapped(tmp_path: Path) -> None:
    places = [locate("fake", {"seed": seed}, cache=tmp_path) for seed in (1, 2)]
    prints = [prepare(place).fingerprint for place in places]
    aside = places[0].folder.rename(tmp_path / "aside")
    places[1].folder.rename(places[0].folder)
    aside.rename(places[1].folder)
    for place, fingerprint in zip(places, prints, strict=True):
        with pytest.raises(StaleError, match=r"done\.json is that of another set \(options\)"):
            check(place)
        assert load("fake", place.options.model_dump(), cache=tmp_path).fingerprint == fingerprint


# Runs on prepared data ---------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))
    return tiny(tmp_path / "results", STATELESS)


def state_of(config: RunConfig, **options: Any) -> RunState:
    return RunIndex(ResultsFolder(Path(config.paths.results), **options)).state(config.key)


@pytest.mark.parametrize("keep_cache", [True, False])
def test_a_changed_builder_makes_runs_stale(
    config: RunConfig,
    edited: Edit,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    keep_cache: bool,
) -> None:
    assert execute(config).state == "done"
    before, old = bits(config), status_of(config).data
    assert state_of(config) == "done" and BUILDER in status_of(config).builder
    edited(BUILDER, "\nfrom ", "\nimport this\nfrom ")
    monkeypatch.setattr("datasets.core.prepare._VERIFIED", {})  # as in the next process
    if not keep_cache:
        shutil.rmtree(os.environ["FEDTABLES_CACHE"])
    assert state_of(config) is RunState.STALE
    assert state_of(config, stale="keep") is RunState.DONE
    outcome = execute(config)
    assert outcome.state == "done" and "It was made by other data than there are now." in outcome.message
    # Only the text has changed and not what this process has imported, so that the data are the same.
    assert (bits(config), status_of(config).data, state_of(config)) == (before, old, "done")


def test_an_array_that_changes_under_a_running_command(config: RunConfig) -> None:
    """Three runs in one process: the second finds the array changed in place, before its result is published."""
    first, second, third = (config.model_copy(update={"seed": seed}) for seed in range(3))
    assert execute(first).state == "done"
    path = Path(status_of(first).prepared) / "train_labels.npy"
    whole = path.read_bytes()

    def spoil(round: int, *_: object) -> None:
        stat = path.stat()
        with path.open("r+b") as stream:  # in place, with the old time
            stream.seek(-8, os.SEEK_END)
            stream.write(bytes([whole[-8] ^ 1]))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    with pytest.raises((DamagedError, StorageError), match="are damaged: fingerprint"):
        execute(second, spoil)
    assert status_of(second).state == "failed" and not folder_of(second).result_path.exists()
    with pytest.raises((DamagedError, StorageError), match="are damaged: fingerprint"):
        execute(third)
    path.write_bytes(whole)
    assert execute(second).state == execute(third).state == "done"
