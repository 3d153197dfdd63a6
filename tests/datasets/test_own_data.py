"""`dataset=folder` and `dataset=arrays`: the user's own images."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_trees import picture

from datasets import load
from datasets.core.base import DataError, Dataset
from partitions import Population, make


@pytest.fixture
def pictures(tmp_path: Path) -> Callable[..., Path]:
    """Writes ``each`` images in each of some folders of a new folder, and returns it."""

    def write(*folders: str, each: int = 5) -> Path:
        for folder in folders:
            for n in range(each):
                picture(tmp_path / "mine" / folder / f"{n}.png", len(folder), n)
        return tmp_path / "mine"

    return write


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Dataset]:
    def prepare_and_load(name: str, path: Path | str | None, **options: Any) -> Dataset:
        given = {"path": None if path is None else str(path), **options}
        return load(name, given, tmp_path / "data", tmp_path / "cache")

    return prepare_and_load


def test_classes_alone(pictures: Callable[..., Path], loaded: Callable[..., Dataset]) -> None:
    """Of 5 images of each class a fifth is for testing; other seeds draw others."""
    top = pictures("cat", "dog")
    (top / "cat" / ".hidden.png").touch()
    (top / "notes.txt").touch()
    data = loaded("folder", top, size=8)
    assert data.classes == ("cat", "dog") and data.sources == ()
    assert data.train.labels.tolist() == [0] * 4 + [1] * 4 and data.test.labels.tolist() == [0, 1]
    assert data.train.images.shape == (8, 3, 8, 8)
    assert loaded("folder", top, size=8, channels=1).train.images.shape == (8, 1, 8, 8)
    prints = {loaded("folder", top, size=8, seed=seed).fingerprint for seed in range(4)}
    assert len(prints) > 1
    assert len(loaded("folder", top, size=8, test_share=0.6).test) == 6


def test_sites_are_the_clients(pictures: Callable[..., Path], loaded: Callable[..., Dataset]) -> None:
    data = loaded("folder", pictures("north/a", "north/b", "south/a"), size=8)
    assert data.classes == ("a", "b") and data.sources == ("north", "south")
    assert data.train.sources is not None and len(data.test) == 3
    people = Population(data.train.labels, 2, sources=data.train.sources, num_sources=2)
    clients = make("natural").split(people, np.random.default_rng(0))
    assert [len(client) for client in clients] == [8, 4]


def test_train_and_test(pictures: Callable[..., Path], loaded: Callable[..., Dataset]) -> None:
    """A test set may have no sites."""
    data = loaded("folder", pictures("train/north/a", "train/south/b", "test/a", "test/b"), size=8)
    assert (len(data.train), len(data.test), data.sources) == (10, 10, ("north", "south"))
    assert data.test.sources is None and data.test.labels.tolist() == [0] * 5 + [1] * 5


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        (("a", "b/deep"), r"5 of 10 images elsewhere, as .*deep/0\.png"),
        (("a/b/c/d",), "5 of 5 images elsewhere"),
        (("train", "test"), "images elsewhere"),
        (("train/a", "test/b"), "classes in test/ that train/ lacks: b"),
        (("train/a", "test/a/b/c"), "images elsewhere"),
        ((), r"dataset\.options\.path: got '.*mine'; expected the folder of images"),
    ],
)
def test_folders_that_do_not_fit(
    pictures: Callable[..., Path], loaded: Callable[..., Dataset], folders: tuple[str, ...], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        loaded("folder", pictures(*folders))
    for name in ("folder", "arrays"):
        with pytest.raises(DataError, match=r"dataset\.options\.path: got None; expected"):
            loaded(name, None)


GOOD = {
    "train_images": np.arange(4 * 6 * 6 * 3, dtype=np.uint8).reshape(4, 6, 6, 3),
    "train_labels": np.array([0, 1, 0, 1], dtype=np.int32),
    "test_images": np.zeros((2, 6, 6, 3), np.uint8),
    "test_labels": np.array([1, 0]),
}


def test_arrays(tmp_path: Path, loaded: Callable[..., Dataset]) -> None:
    np.savez(tmp_path / "mine.npz", **GOOD)
    data = loaded("arrays", tmp_path / "mine.npz")
    np.testing.assert_array_equal(data.train.images, GOOD["train_images"].transpose(0, 3, 1, 2))
    assert data.classes == ("0", "1") and data.train.labels.tolist() == [0, 1, 0, 1] and data.sources == ()
    grey = {key: array[..., 0] if "images" in key else array for key, array in GOOD.items()}
    np.savez(tmp_path / "grey.npz", **grey, classes=["no", "yes"], train_sources=[0, 2, 1, 1])
    data = loaded("arrays", tmp_path / "grey.npz")
    assert data.train.images.shape == (4, 1, 6, 6) and data.classes == ("no", "yes")
    assert data.sources == ("0", "1", "2") and data.test.sources is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_labels": None}, "keys: got no train_labels; expected train_images, train_labels, "),
        ({"labels": np.zeros(4)}, "keys: got unknown labels; expected train_images"),
        (
            {"train_images": np.zeros((4, 6, 6, 3))},
            r"train_images: got float64 \(4, 6, 6, 3\); expected uint8 \[N",
        ),
        ({"test_images": np.zeros((2, 3, 6, 6), np.uint8)}, r"got uint8 \(2, 3, 6, 6\); .* 1 or 3 channels"),
        ({"train_labels": np.zeros(3, int)}, r"train_labels: got int64 \(3,\); expected whole numbers \[4\]"),
        ({"test_sources": np.zeros(2)}, r"test_sources: got float64 \(2,\); expected whole numbers \[2\]"),
        ({"test_labels": np.array([-1, 0])}, "test labels: got -1 to 0; expected indices of 2 names"),
        ({"classes": np.array(["only"])}, "train labels: got 0 to 1; expected indices of 1 names"),
        ({"classes": np.array([{}], dtype=object)}, "cannot be read as arrays"),
    ],
)
def test_arrays_that_do_not_fit(
    tmp_path: Path, loaded: Callable[..., Dataset], changes: dict[str, Any], words: str
) -> None:
    content = {key: array for key, array in (GOOD | changes).items() if array is not None}
    np.savez(tmp_path / "mine.npz", **content)
    with pytest.raises(DataError, match=words):
        loaded("arrays", tmp_path / "mine.npz")
