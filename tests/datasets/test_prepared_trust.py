"""A prepared set is what its builder makes of its raw files and options today, and stays so under a running command."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edited_code import Edit, edited  # noqa: F401
from raw_trees import picture
from tiny_runs import STATELESS, bits, carry_out, folder_of, index_of, result_of, tiny

from benchmark.config.schema import RunConfig
from datasets.core.base import DataError, Options, RawDataset, Split
from datasets.core.prepare import StaleError, check, current_fingerprint, is_prepared, load, locate, prepare
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


def unseen(path: Path) -> None:
    """Another content with the same size and time."""
    about = path.stat()
    path.write_text("1 1 0 1")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda raw: (raw / "a.txt").write_text("1 1 0 1 "), "a.txt has changed"),
        (lambda raw: (raw / "a.txt").unlink(), "a.txt is gone"),
        (lambda raw: (raw / "c.txt").write_text("0"), ""),
        (lambda raw: later(raw / "a.txt"), ""),
        (shutil.rmtree, ""),
    ],
    ids=["content", "deleted", "another file", "time only", "all gone"],
)
def test_raw_files_are_compared(
    tmp_path: Path, root: Path, change: Callable[[Path], object], why: str
) -> None:
    place = locate("mine", root=root, cache=tmp_path / "cache")
    before = prepare(place)
    change(root)
    assert is_prepared(place) == (not why)
    assert current_fingerprint(place.folder) == ("" if why else before.fingerprint)
    if why:
        with pytest.raises(StaleError, match=rf"mine: .*{why}\. .*prepared anew"):
            check(place)
    if why != "a.txt is gone":  # else the builder says what it lacks
        data = prepare(place)
        assert (data.fingerprint == before.fingerprint) == (not why)
        assert ("cannot be compared" in data.note) == (not root.exists())


def test_only_a_whole_check_reads_what_has_the_same_size_and_time(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that has only another time is read once, and not by the next process."""
    place = locate("mine", root=root, cache=tmp_path / "cache")
    prepare(place)
    later(root / "b.txt")
    assert is_prepared(place)
    unseen(root / "a.txt")
    with monkeypatch.context() as patch:
        patch.setattr("benchmark.code.of_file", lambda path: pytest.fail(f"{path} was read"))
        assert is_prepared(place)
    with pytest.raises(StaleError, match=r"a\.txt has changed"):
        check(place)


def test_an_image_that_is_added_to_a_folder(tmp_path: Path) -> None:
    """Of one's own images, in a new folder of a class, too. Another file beside them changes nothing."""
    for n, name in enumerate(("x/0.png", "x/1.png", "y/2.png", "y/3.png")):
        picture(tmp_path / "own" / name, n, n)
    options = {"path": str(tmp_path / "own")}
    place = locate("folder", options, cache=tmp_path / "cache")
    for name, stale in (("x/notes.txt", False), ("x/4.png", True), ("z/5.png", True)):
        prepare(place)
        picture(tmp_path / "own" / name.replace("txt", "png"), 5, 5)
        if not stale:
            (tmp_path / "own/x/notes.png").rename(tmp_path / "own" / name)
        assert is_prepared(place) == (not stale)


def test_raw_files_that_change_while_they_are_read(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = locate("mine", root=root, cache=tmp_path / "cache")
    monkeypatch.setattr("datasets.core.prepare.fingerprint", lambda data: later(root / "a.txt"))
    with pytest.raises(DataError, match="changed while they were prepared"):
        prepare(place)
    assert not is_prepared(place)


READ = {
    "mnist": "MNIST/raw/t10k-labels*",
    "cmnist": "MNIST/raw/train-images*",
    "cifar10": "*/batches.meta",
    "svhn": "test_32x32.mat",
    "ham10000": "*/HAM10000_metadata.csv",
    "isic2019": "*/train_test_split",
    "waterbirds": "*/metadata.csv",
    "retina": "Retina/test.csv",
    "covid_fl": "COVID-FL/12_clients/split_real/gz.csv",
    "pacs": "PACS/photo/dog/*_003.jpg",
}


@pytest.mark.parametrize("name", READ)
def test_builders_return_what_they_read(tmp_path: Path, raw: Callable[..., Path], name: str) -> None:
    """One of the files of each: a list, an array, an image."""
    root = raw("mnist" if name == "cmnist" else name)
    options = {"strict": False} | ({"held_out": 2} if name == "ham10000" else {})
    place = locate(name, options, root, tmp_path / "cache")
    prepare(place)
    assert is_prepared(place)
    (path,) = root.glob(READ[name])
    path.unlink()
    assert not is_prepared(place)


def test_folders_of_two_option_sets_that_were_swapped(tmp_path: Path) -> None:
    places = [locate("fake", {"seed": seed}, cache=tmp_path) for seed in (1, 2)]
    prints = [prepare(place).fingerprint for place in places]
    aside = places[0].folder.rename(tmp_path / "aside")
    places[1].folder.rename(places[0].folder)
    aside.rename(places[1].folder)
    for place, fingerprint in zip(places, prints, strict=True):
        with pytest.raises(StaleError, match="has the set of other options"):
            check(place)
        assert load("fake", place.options.model_dump(), cache=tmp_path).fingerprint == fingerprint


# Runs on prepared data ---------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))
    return tiny(tmp_path / "results", STATELESS)


def rounds_of(config: RunConfig) -> list[int]:
    """The rounds that are carried out."""
    rounds: list[int] = []
    assert carry_out(config, lambda round, *_: rounds.append(round)).state == "done"
    return rounds


@pytest.mark.parametrize("keep_cache", [True, False])
def test_a_changed_builder_carries_runs_out_again(
    config: RunConfig,
    edited: Edit,  # noqa: F811
    keep_cache: bool,
) -> None:
    assert len(rounds_of(config)) == 4
    before, data = bits(config), result_of(config).origin["data"]
    edited(BUILDER, "\nfrom ", "\nimport this\nfrom ")
    if not keep_cache:
        shutil.rmtree(os.environ["FEDTABLES_CACHE"])
    assert f"code of {BUILDER}" in index_of(config).why(config.key)
    keep = config.model_copy(update={"runtime": config.runtime.model_copy(update={"stale": "keep"})})
    assert index_of(keep).state(config.key) == "done" and index_of(config).state(config.key) == "differs"
    assert len(rounds_of(config)) == 4 and rounds_of(config) == []
    # Only the text has changed and not what this process has imported, so that the data are the same.
    assert (bits(config), result_of(config).origin["data"]) == (before, data)


def test_a_changed_raw_file_carries_runs_out_again(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between a stop and the next start, and after the end."""

    def write(value: int) -> None:
        images, labels = np.full((8, 8, 8), value, np.uint8), np.arange(8) % 2
        content = {f"{part}_images": images for part in ("train", "test")}
        np.savez(tmp_path / "own.npz", **content, train_labels=labels, test_labels=labels)
        later(tmp_path / "own.npz")

    own = {"name": "arrays", "options": {"path": str(tmp_path / "own.npz")}}
    layer = {"dataset": own, "partition": {"clients": 4}, "train": {"clients_per_round": 2}}
    write(1)
    config = tiny(tmp_path / "results", STATELESS, layer)
    reached: list[int] = []
    assert carry_out(config, lambda n, *_: reached.append(n), lambda: reached[-1] == 1).state == "missing"
    write(2)
    outcome = carry_out(config)
    assert outcome.state == "done" and "these are others now: the data" in outcome.message
    assert rounds_of(config) == []
    before = result_of(config).origin["data"]
    write(3)
    assert index_of(config).why(config.key) == "the data"
    assert len(rounds_of(config)) == 4 and rounds_of(config) == []
    assert result_of(config).origin["data"] != before
    assert "carried out again: " in capsys.readouterr().out
    assert folder_of(config).path.with_name(".seed0.old-1").is_dir()
