"""Raw files that cannot be read, or whose content differs from the published one."""

import importlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ACEVEDO = "PBC_dataset_normal_DIB"


@pytest.mark.parametrize("missing", ["acevedo", "matek", "bodzas"])
def test_niid2_needs_all_three(raw: Callable[..., Path], refused: Callable[..., str], missing: str) -> None:
    root = raw(*{"acevedo", "matek", "bodzas"} - {missing})
    assert refused("niid2", root, {"pool": 1}).lower().startswith(f"{missing}-")


# Files that the system does not let be read ------------------------------------------------------------------------


def test_a_folder_that_may_not_be_read(
    raw: Callable[..., Path], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = raw("acevedo")
    locked, scandir = root / ACEVEDO / "ig", os.scandir

    def scan(path: Any) -> Any:
        if Path(path) == locked:
            raise PermissionError(13, "Permission denied", str(locked))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    message = refused("acevedo", root)
    assert message.startswith("Acevedo-20: ig cannot be read (Permission denied).")
    assert f"expected:  {ACEVEDO}/ig, which this user can read" in message and "chmod -R u+rX" in message


def test_a_file_that_may_not_be_read(
    raw: Callable[..., Path], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = raw("mnist")
    locked, read = root / "MNIST/raw/train-labels-idx1-ubyte.gz", Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    message = refused("mnist", root)
    assert "train-labels-idx1-ubyte.gz cannot be read (Permission denied)." in message
    assert f"looked at: {locked}" in message and "change its rights" in message


def test_a_link_to_nothing(raw: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = raw("acevedo")
    path = next((root / ACEVEDO / "ig").iterdir())
    path.unlink()
    path.symlink_to("/nowhere/else.jpg")
    message = refused("acevedo", root)
    assert (
        "found:     a link to /nowhere/else.jpg, which is not there" in message and "not mounted" in message
    )


def test_the_data_root_is_a_file(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "data").write_bytes(b"PK")
    assert f"found:     a file and no folder: {tmp_path / 'data'}" in refused("acevedo", tmp_path / "data")


def test_a_pickle_that_would_run_code_is_refused(
    raw: Callable[..., Path], refused: Callable[..., str], tmp_path: Path
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    root = raw("cifar10")
    (root / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({"data": Evil(), "labels": []}))
    assert "cannot be read as a batch" in refused("cifar10", root)
    assert not (tmp_path / "ran").exists()


# With the copy's own numbers as the published ones -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "patches", "words"),
    [
        (
            "bodzas",
            {"PUBLISHED": lambda n: {name: 2 - (name == "Monocyte") for name in n}},
            ("files were added", "Monocyte 1/2"),
        ),
        (
            "bodzas",
            {"PUBLISHED": lambda n: dict.fromkeys(n, 2)},
            ("24 x 18 pixels, the originals 1,200 x 1,200", "9 images of 1,200 x 1,200 pixels expected"),
        ),
        (
            "acevedo",
            {"PREFIXES": lambda n: {name: dict.fromkeys(codes, 3) for name, codes in n.items()}},
            ("24 x 18 pixels, the originals about 360 x 363", "a resized copy"),
        ),
        (
            "ham10000",
            {"COUNTS": lambda n: dict.fromkeys(n, 4)},
            ("10,015 images expected, 28 found", "vidir_molemax 3,954/7"),
        ),
        (
            "matek",
            {"PUBLISHED": lambda n: dict.fromkeys(n, 2)},
            ("20 x 20 pixels, the originals 400 x 400", "a resized copy"),
        ),
        (
            "ham10000",
            {"COUNTS": lambda n: dict.fromkeys(n, 4), "SOURCE_COUNTS": lambda n: dict.fromkeys(n, 7)},
            ("24 x 18 pixels, the originals 600 x 450", "5 images of 600 x 450 pixels expected"),
        ),
        (
            "spawrious",
            {"PER_HALF": lambda n: 10},
            ("16 x 16 pixels, the originals 224 x 224", "8 images of 224 x 224 pixels expected"),
        ),
        (
            "isic2019",
            {"TRAIN": lambda n: ((2,) * 8,) * 6, "TEST": lambda n: ((1,) * 8,) * 6},
            ("24 x 18 pixels, the originals 1,024 on the shorter side (centre bcn)",),
        ),
    ],
)
def test_other_numbers_and_resized_copies(
    raw: Callable[..., Path],
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    patches: dict[str, Callable[[Any], Any]],
    words: tuple[str, ...],
) -> None:
    module = importlib.import_module(f"datasets.{name}")
    for key, patch in patches.items():
        monkeypatch.setattr(module, key, patch(getattr(module, key)))
    options = {"strict": True} | ({"held_out": 1} if name == "ham10000" else {})
    message = refused(name, raw(name), options)
    assert [word for word in words if word not in message] == [], message
