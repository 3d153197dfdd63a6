"""The text of `data list`, `data prepare` and `data check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datasets import registry
from datasets.base import DataError, Options, RawDataset, Split
from datasets.commands import data_check, data_list, data_prepare
from datasets.registry import describe, names


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_list_shows_each_set_and_where_things_are(tmp_path: Path) -> None:
    data_prepare("fake", cache=tmp_path / "cache")
    text = data_list(root=tmp_path / "raw", cache=tmp_path / "cache")
    assert all(name in text and describe(name) in text for name in names())
    rows = {
        line.split("│")[1].strip(): line.split("│")[2].strip() for line in text.splitlines() if "│" in line
    }
    assert rows["fake"] == "yes" and rows["mnist"] == "no"
    assert str(tmp_path / "raw") in text and str(tmp_path / "cache") in text


def test_prepare_and_check(tmp_path: Path) -> None:
    options = {"classes": 3, "attributes": 2, "train_size": 60, "test_size": 30}
    text = data_prepare("fake", options, cache=tmp_path)
    assert "60 training and 30 test images of 1 x 8 x 8, 3 classes" in text and str(tmp_path) in text
    text, ok = data_check("fake", options, cache=tmp_path)
    assert ok and "verified" in text
    row = next(line for line in text.splitlines() if "class2" in line and "attribute1" in line)
    # 60 and 30 images over 6 cells
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["class2", "attribute1", "10", "5"]
    assert any("all" in line and "60" in line and "30" in line for line in text.splitlines())


def test_check_of_nothing_and_of_damage(tmp_path: Path) -> None:
    text, ok = data_check("fake", cache=tmp_path)
    assert not ok and "problem: not prepared" in text and "data prepare" in text
    data_prepare("fake", cache=tmp_path)
    path = next(tmp_path.glob("fake-*/train_images.npy"))
    path.write_bytes(path.read_bytes()[:50])
    text, ok = data_check("fake", cache=tmp_path)
    assert not ok and "train_images.npy has 50 bytes" in text


def cells(text: str, *words: str) -> list[str]:
    """The cells of the first line of a table that begins with these."""
    lines = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in line] for line in lines]
    return next(row for row in rows if row[: len(words)] == list(words))


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """The text of `data check` for a set of 3 images of `a` and 2 of `b` (test 1 and 1) with published counts."""

    def checked(*expected: tuple[str, str, str, int], attributes: bool = False, sources: bool = False) -> str:
        def split(labels: list[int], groups: list[int]) -> Split:
            known = np.array(groups, dtype=np.int64)
            images = np.zeros((len(labels), 1, 2, 2), np.uint8)
            return Split(images, np.array(labels), known if attributes else None, known if sources else None)

        def build(options: Options, root: Path) -> RawDataset:
            """Three and two."""
            return RawDataset(
                split([0, 0, 0, 1, 1], [0, 0, 1, 1, 1]),
                split([0, 1], [0, 1]),
                ("a", "b"),
                ("x", "y") if attributes else (),
                ("x", "y") if sources else (),
                expected=expected,
            )

        registry.names()
        monkeypatch.setitem(registry._entries, "small", registry.Entry("small", build, Options, 1))
        cache = tmp_path / str(len(list(tmp_path.iterdir())))
        data_prepare("small", cache=cache)
        text, ok = data_check("small", cache=cache)
        assert ok, "a difference is shown, and is no damage"
        return text

    return checked


def test_published_counts_stand_beside_those_found(published: Callable[..., str]) -> None:
    text = published(("train", "a", "", 3), ("train", "b", "", 4), ("test", "a", "", 1))
    assert cells(text, "a") == ["a", "3", "3", "1", "1"]
    assert cells(text, "b") == ["b", "2", "4 (-2)", "1", "-"]
    assert "1 of 3 differ" in text


def test_published_counts_that_are_met(published: Callable[..., str]) -> None:
    text = published(("train", "a", "", 3), ("train", "b", "", 2))
    assert "all 2 are met" in text and "(" not in text.split("published counts")[0].split("Images")[1]
    assert "none were known" in published()


@pytest.mark.parametrize("kind", ["attributes", "sources"])
def test_published_counts_per_group(published: Callable[..., str], kind: str) -> None:
    """Of `a` two are x and one is y, both of `b` are y."""
    groups = [("train", "a", "x", 2), ("train", "b", "x", 5), ("train", "", "y", 3), ("train", "a", "", 3)]
    text = published(*groups, ("test", "", "", 7), **{kind: True})
    assert cells(text, "a", "x") == ["a", "x", "2", "2", "1", "-"]
    assert cells(text, "b", "x") == ["b", "x", "0", "5 (-5)", "0", "-"]
    assert cells(text, "all", "y") == ["all", "y", "3", "3", "-", "-"]
    assert cells(text, "a", "all") == ["a", "all", "3", "3", "-", "-"]
    assert cells(text, "all", "all") == ["all", "all", "-", "-", "2", "7 (-5)"]
    assert "2 of 5 differ" in text


def test_published_counts_of_what_is_not_there(published: Callable[..., str]) -> None:
    text = published(("train", "c", "", 9))
    assert cells(text, "c") == ["c", "0", "9 (-9)", "-", "-"]
    text = published(("train", "a", "z", 9), sources=True)
    assert cells(text, "a", "z") == ["a", "z", "0", "9 (-9)", "-", "-"]


def test_unknown_name(tmp_path: Path) -> None:
    for command in (data_prepare, data_check):
        with pytest.raises(DataError, match="did you mean 'mnist'"):
            command("mnits", cache=tmp_path)
