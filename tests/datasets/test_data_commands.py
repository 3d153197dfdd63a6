"""The text of `data list`, `data prepare` and `data check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets.base import DataError
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


def test_unknown_name(tmp_path: Path) -> None:
    for command in (data_prepare, data_check):
        with pytest.raises(DataError, match="did you mean 'mnist'"):
            command("mnits", cache=tmp_path)
