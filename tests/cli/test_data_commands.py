"""`data list`, `data prepare` and `data check`: what they print, and the options that they take."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

from benchmark.cli.data import print_check
from datasets.core import registry
from datasets.core.base import Options, RawDataset, Split
from datasets.core.folders import Tree
from datasets.core.prepare import locate, prepare
from datasets.core.registry import describe, names


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def rows(text: str) -> list[list[str]]:
    """The cells of all lines of the tables in a text."""
    lines = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line] for line in lines]


def test_list_shows_each_set_and_where_things_are(cli: Cli, tmp_path: Path) -> None:
    folders = (f"data={tmp_path / 'raw'}", f"cache={tmp_path / 'cache'}")
    assert "note: random images" in cli("data", "prepare", "dataset=fake", *folders).out
    text = cli("data", "prepare", "dataset=digits", *folders).out
    assert "note: " not in text
    # scikit-learn's bundled digits are 1,797 images of 8 x 8.
    train, test = re.findall(r"digits: ([\d,]+) training and ([\d,]+) test .* 10 classes", text)[0]
    assert int(train.replace(",", "")) + int(test) == 1797
    text = cli("data", "list", *folders).out
    shown = {name: [prepared, line] for name, prepared, line in rows(text)}
    assert {name: line for name, (_, line) in shown.items()} == {name: describe(name) for name in names()}
    assert shown["fake"][0] == "yes" and shown["mnist"][0] == "no"
    assert f"raw data: {tmp_path / 'raw'}\nprepared: {tmp_path / 'cache'}\n" in text


def test_prepare_and_check(cli: Cli, tmp_path: Path) -> None:
    """Each choice of options is a set of its own, and `check` has to name it, too."""
    cache, fake = f"cache={tmp_path / 'cache'}", "dataset=fake"
    sizes = {"classes": 3, "attributes": 2, "train_size": 60, "test_size": 30}
    words = [fake, *(f"dataset.options.{key}={value}" for key, value in sizes.items())]
    text = cli("data", "prepare", *words, cache).out
    assert "60 training and 30 test images of 1 x 8 x 8, 3 classes" in text
    assert f"folder: {tmp_path}" in text
    code, text, _ = cli("data", "check", *words, cache)
    assert code == 0 and "verified" in text
    # 60 and 30 images over 6 cells
    assert ["class2", "attribute1", "10", "5"] in rows(text) and ["all", "", "60", "30"] in rows(text)
    code, text, _ = cli("data", "check", fake, cache)
    assert code == 1 and "problem: not prepared, or out of date." in text
    assert text.endswith(f"prepare it with: python -m benchmark data prepare {fake} {cache}\n")
    assert len(list((tmp_path / "cache").glob("fake-*"))) == 1, "a check writes nothing"
    path = next(tmp_path.glob("cache/fake-*/train_images.npy"))
    path.write_bytes(path.read_bytes()[:50])
    code, text, _ = cli("data", "check", *words, cache)
    assert code == 1 and "problem: not prepared, or out of date." in text
    assert text.endswith(f"data prepare {' '.join(words)} {cache}\n")


@pytest.fixture
def published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
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
        monkeypatch.setitem(
            registry.ENTRIES.found,
            "small",
            [
                (
                    "tests",
                    registry.RegisteredDataset(
                        "small", build, Options, Tree(title="Small", folders=("small",))
                    ),
                )
            ],
        )
        place = locate("small", cache=tmp_path)
        shutil.rmtree(place.folder, ignore_errors=True)
        prepare(place)
        assert print_check(place, "") is not None, "a difference is shown, and is no damage"
        return capsys.readouterr().out

    return checked


def test_published_counts(published: Callable[..., str]) -> None:
    text = published(("train", "a", "", 3), ("train", "b", "", 4), ("test", "a", "", 1))
    assert rows(text) == [["a", "3", "1"], ["b", "2", "1"], ["all", "5", "2"]]
    assert "1 of 3 differ\n  train b: 4 published, 2 found\n" in text
    assert "all 2 are met" in published(("train", "a", "", 3), ("train", "b", "", 2))
    assert "none were known" in published()


@pytest.mark.parametrize("kind", ["attributes", "sources"])
def test_published_counts_per_group(published: Callable[..., str], kind: str) -> None:
    """Of `a` two are x and one is y, both of `b` are y."""
    groups = [("train", "a", "x", 2), ("train", "b", "x", 5), ("train", "", "y", 3), ("train", "a", "", 3)]
    text = published(*groups, ("test", "", "", 7), **{kind: True})
    assert ["a", "x", "2", "1"] in rows(text) and ["b", "x", "0", "0"] in rows(text)
    assert "2 of 5 differ\n  train b x: 5 published, 0 found\n  test: 7 published, 2 found\n" in text


# Options on the command line -----------------------------------------------------------------------------------------


def test_options_come_on_top_of_those_of_the_file(cli: Cli, tmp_path: Path) -> None:
    """conf/dataset/digits_ham.yaml has seven classes of colour; only the noise is changed."""
    words = ["data", "prepare", "dataset=digits_ham", f"cache={tmp_path}"]
    for answer in (cli(*words, "dataset.options.noise=0.0"), cli(*words)):
        assert answer.code == 0 and "of 3 x 8 x 8, 7 classes" in answer.out
    assert len(list(tmp_path.glob("standin-*"))) == 2
