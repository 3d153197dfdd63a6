"""Names, options and the discovery of builders."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from datasets.core import registry
from datasets.core.base import DataError, Options, RawDataset
from datasets.core.registry import dataset, describe, get, names, parse


def test_all_datasets_of_the_first_step_are_there() -> None:
    expected = {"digits", "mnist", "fashionmnist", "cifar10", "cifar100", "svhn", "cmnist", "fake", "standin"}
    assert expected <= set(names())


@pytest.mark.parametrize("name", names())
def test_each_has_one_line(name: str) -> None:
    line = describe(name)
    assert line and "\n" not in line and line.endswith(".")


def test_unknown_name_gets_the_nearest_match() -> None:
    with pytest.raises(DataError, match=r"unknown data set 'fashonmnist' \(did you mean 'fashionmnist'\?\)"):
        get("fashonmnist")


def test_unknown_option_gets_the_nearest_match() -> None:
    with pytest.raises(DataError, match=r"unknown key 'chanels' \(did you mean 'channels'\?\)"):
        parse(get("fake"), {"chanels": 3})


def test_wrong_and_missing_options_are_named() -> None:
    with pytest.raises(DataError, match=r"'classes': .*greater than or equal to 2, got 1"):
        parse(get("fake"), {"classes": 1})
    with pytest.raises(DataError, match="'stands_for' is missing"):
        parse(get("standin"), {"classes": 2, "train_counts": 10, "test_counts": 10})


def test_a_name_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    def builder(options: Options, root: Path) -> RawDataset:
        """Another one."""
        raise NotImplementedError

    with pytest.raises(
        DataError, match=r"'digits' is registered twice: by datasets.standin.digits.digits and by .*builder"
    ):
        dataset("digits", options=Options)(builder)


def test_a_new_dataset_is_one_new_file(root: Path, tmp_path: Path) -> None:
    """A file dropped into a copy of the folder is found with no other edit."""
    shutil.copytree(root / "datasets", tmp_path / "datasets", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "datasets" / "rings.py").write_text(
        "from datasets.core.base import Options\n"
        "from datasets.core.registry import dataset\n\n"
        "@dataset('rings', options=Options)\n"
        "def rings(options, root):\n"
        "    'Rings of Saturn.'\n"
    )
    code = "import datasets; print(datasets.describe('rings')); print('rings' in datasets.names())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["Rings of Saturn.", "True"]
