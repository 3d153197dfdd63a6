"""Raw files that cannot be read, or whose content differs from the published one."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datasets import acevedo, bodzas, ham10000, matek

ACEVEDO = "PBC_dataset_normal_DIB"


@pytest.mark.parametrize("missing", ["acevedo", "matek", "bodzas"])
def test_niid2_needs_all_three(raw: Callable[..., Path], refused: Callable[..., str], missing: str) -> None:
    root = raw(*{"acevedo", "matek", "bodzas"} - {missing})
    assert refused("niid2", root, {"pool": 1}).lower().startswith(f"{missing}-")


# Files that the system does not let be read ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "locked"), [("acevedo", f"{ACEVEDO}/ig"), ("mnist", "MNIST/raw/train-labels-idx1-ubyte.gz")]
)
def test_a_folder_or_file_that_may_not_be_read(
    raw: Callable[..., Path],
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    locked: str,
) -> None:
    root = raw(name)

    def guarded(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def guard(path: Any) -> Any:
            if Path(path) == root / locked:
                raise PermissionError(13, "Permission denied", str(path))
            return read(path)

        return guard

    monkeypatch.setattr(os, "scandir", guarded(os.scandir))
    monkeypatch.setattr(Path, "read_bytes", guarded(Path.read_bytes))
    message = refused(name, root)
    assert f": {Path(locked).name} cannot be read (Permission denied)." in message
    assert f"looked at: {root / locked}\n" in message and "change its rights (chmod -R u+rX)" in message
    assert f"expected:  {locked}, which this user can read" in message


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


MONOCYTE = dict.fromkeys(bodzas.PUBLISHED, 2) | {"Monocyte": 1}
THREE = {folder: dict.fromkeys(codes, 3) for folder, codes in acevedo.PREFIXES.items()}
HAM = {"COUNTS": dict.fromkeys(ham10000.COUNTS, 4)}
HAM_SOURCES = {"SOURCE_COUNTS": dict.fromkeys(ham10000.SOURCE_COUNTS, 7)}


@pytest.mark.parametrize(
    ("name", "patches", "words"),
    [
        ("bodzas", {"PUBLISHED": MONOCYTE}, ("files were added", "Monocyte 1/2")),
        ("bodzas", {"PUBLISHED": dict.fromkeys(bodzas.PUBLISHED, 2)}, ("24 x 18 pixels", "1,200 x 1,200")),
        ("acevedo", {"PREFIXES": THREE}, ("24 x 18 pixels, the originals about 360 x 363", "a resized copy")),
        ("matek", {"PUBLISHED": dict.fromkeys(matek.PUBLISHED, 2)}, ("20 x 20 pixels", "400 x 400")),
        ("ham10000", HAM, ("10,015 images expected, 28 found", "vidir_molemax 3,954/7")),
        ("ham10000", HAM | HAM_SOURCES, ("24 x 18 pixels, the originals 600 x 450", "5 images of 600 x 450")),
        ("spawrious", {"PER_HALF": 10}, ("16 x 16 pixels, the originals 224 x 224", "8 images of 224 x 224")),
    ],
)
def test_other_numbers_and_resized_copies(
    raw: Callable[..., Path],
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    patches: dict[str, Any],
    words: tuple[str, ...],
) -> None:
    for key, value in patches.items():
        monkeypatch.setattr(f"datasets.{name}.{key}", value)
    options = {"strict": True} | ({"held_out": 1} if name == "ham10000" else {})
    message = refused(name, raw(name), options)
    assert [word for word in words if word not in message] == [], message
