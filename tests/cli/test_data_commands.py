"""The text of `data list`, `data prepare` and `data check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmark.__main__ import main
from benchmark.cli.data import data_check, data_list, data_prepare
from datasets.core import registry
from datasets.core.base import DataError, Options, RawDataset, Split
from datasets.core.registry import describe, names, option_values


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
    assert not ok and "train_images.npy: got 50 bytes" in text


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
        with pytest.raises(DataError, match="Did you mean 'mnist'"):
            command("mnits", cache=tmp_path)


# Options on the command line -----------------------------------------------------------------------------------------


def test_options_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As options or as runs spell them; each choice is a set of its own, and `check` has to name it, too."""
    cache = f"cache={tmp_path / 'cache'}"
    assert main(["data", "prepare", "fake", "classes=3", "train_size=60", cache]) == 0
    assert "60 training and 32 test images of 1 x 8 x 8, 3 classes" in capsys.readouterr().out
    words = ["dataset.options.classes=3", "+dataset.options.train_size=60", cache, f"results={tmp_path}"]
    assert main(["data", "check", "fake", *words]) == 0
    assert "verified" in capsys.readouterr().out
    assert main(["data", "check", "fake", cache]) == 1
    assert "not prepared" in capsys.readouterr().out


def test_options_come_on_top_of_those_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """conf/dataset/digits_ham.yaml has seven classes of colour; only the noise is changed."""
    words = ["data", "prepare", "digits_ham", f"cache={tmp_path}"]
    assert main([*words, "noise=0.0"]) == 0 and main(words) == 0
    first, second = (part for part in capsys.readouterr().out.split("standin: ")[1:])
    assert "of 3 x 8 x 8, 7 classes" in first and "of 3 x 8 x 8, 7 classes" in second
    assert len(list(tmp_path.glob("standin-*"))) == 2


def test_an_option_goes_to_every_set_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "nothing"
    assert main(["data", "prepare", "acevedo", "size=64", "classes=folders", f"data={root}"]) == 2
    assert "Acevedo-20: 8 of 8 class folders are missing" in capsys.readouterr().err  # the options were right
    assert main(["data", "prepare", "acevedo", "matek", "classes=folders"]) == 2
    message = capsys.readouterr().err
    assert (
        "data prepare acevedo matek: unknown key 'classes'" in message and "size=VALUE, seed=VALUE" in message
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("prepare spawrious bredes=4", "spawrious: 'bredes'; breeds=2|4, size=VALUE 'breeds'?"),
        ("prepare spawrious dataset.options.bredes=4", "'breeds'?"),
        ("prepare spawrious breeds=3", "breeds 3 dataset.options.KEY=VALUE"),
        ("prepare spawrious breeds=2 dataset.options.breeds=4", "breeds twice"),
        ("prepare spawrious breeds=[2", "breeds: '[2'"),
        ("prepare spawrious out=a.png", "'out'"),
        ("check digits size=8", "digits: 'size'"),
        ("prepare niid2 rest=test", "rest dataset.rest="),
        ("prepare niid2 dataset.train_per_class=5", "train_per_class dataset.train_per_class="),
    ],
)
def test_options_that_are_none(capsys: pytest.CaptureFixture[str], words: str, named: str) -> None:
    assert main(["data", *words.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("error: ") == 1
    assert all(part in captured.err for part in named.split()), captured.err


def test_what_options_accept() -> None:
    accepted = option_values("acevedo")
    assert accepted == {
        "strict": "true|false", "size": "VALUE", "seed": "VALUE", "classes": "subtypes|folders|prefixes"
    }  # fmt: skip
    places = {"data", "cache", "out", "results", "train_per_class", "test_per_class", "rest"}
    for name in names():
        assert not places & set(option_values(name)), "these words of the command would hide the option"
