"""The mistakes that users make with raw files: one sentence on what is there, what is expected, and where to get it."""

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from datasets import acevedo
from datasets.core.registry import get

HAM, WATER = "HAM10000/HAM10000_metadata.csv", "waterbirds_v1.0/metadata.csv"
IDX = "MNIST/raw/train-images-idx3-ubyte.gz"
BATCH = "cifar-10-batches-py/data_batch_1"
IMAGE = "PBC_dataset_normal_DIB/monocyte/MO_0.jpg"
ISIC = "ISIC2019/ISIC_2019_Training"


def remove(name: str) -> Callable[[Path], object]:
    return lambda root: [path.unlink() for path in root.glob(name)]


def write(name: str, content: bytes | str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(content.encode() if isinstance(content, str) else content)


def replace(name: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_text((root / name).read_text().replace(old, new))


MISTAKES: list[tuple[str, Callable[[Path], object], str]] = [
    # Missing files and lists that name them.
    ("retina", remove("Retina/labels.csv"), "got no labels.csv (1 of 4); there is 5_clients/, test.csv, test"),
    ("retina", remove("Retina/train/6_left.npy"), "got no file in train/ of 1 of 10 listed images: 6_left.npy"),
    ("covid_fl", remove("COVID-FL/train/gz/gz_1.png"), "of 1 of 48 listed images: gz/gz_1.png"),
    ("ham10000", remove("HAM10000/HAM10000_images_part_2/*"), "got no file of 14 of 28 listed images"),
    ("ham10000", remove(HAM), "got 28 images and no HAM10000_metadata"),
    ("isic2019", remove("ISIC2019/train_test_split"), "got no train_test_split beside the folder of images"),
    ("waterbirds", remove("*/*/Bird_0012.jpg"), "1 of 24 listed images: 001.Bird_0/Bird_0012.jpg"),
    # Lists that are damaged or contradict each other.
    ("retina", replace("Retina/labels.csv", "3_left_test.npy,1.0\n", ""), "got no label in labels.csv of 1 of 6"),
    ("retina", replace("Retina/labels.csv", "0_left.npy,0.0", "0_left.npy,0.5"), "'0_left.npy,0.5' in row 1"),
    ("retina", write("Retina/test.csv", b"PK\x03\x04\xff\xfe"), "no UTF-8 text"),
    ("ham10000", write(HAM, "image,age_approx\nISIC_0000000,55\n"), "got the columns image, age_approx"),
    ("ham10000", replace(HAM, ",mel,", ",melanoma,"), "got the unknown dx melanoma"),
    ("ham10000", replace(HAM, "ISIC_0024307", "ISIC_0024306"), "got a image_id twice"),
    ("ham10000", write(HAM, "lesion_id,image_id,dx\nHAM_0,ISIC_00"), "got row 2 cut off"),
    ("ham10000", write(HAM, 'lesion_id,image_id,dx\n"' + "x" * 200_000), "cannot be read"),
    ("waterbirds", replace(WATER, ",2,", ",1,"), "test images: got none; expected at least one"),
    # Damaged files.
    ("mnist", write(IDX, gzip.compress(bytes(99))[:20]), "got a file that cannot be unpacked"),
    ("mnist", write(IDX, gzip.compress(bytes(99))), "got 99 bytes unpacked that begin with the numbers [0, 0, 0, 0]"),
    ("cifar10", write(BATCH, pickle.dumps(7)[:3]), "got a file that cannot be read as a batch"),
    ("cifar10", write(BATCH, pickle.dumps({"data": np.zeros((2, 3072), np.uint8)})), "and 0 `labels`"),
    ("svhn", write("train_32x32.mat", b"MATLAB"), "got a file that cannot be read"),
    ("svhn", lambda root: savemat(root / "train_32x32.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [1, 11]}),
     "2 labels as `y`; expected uint8 (32, 32, 3, N) and N labels from 1 to 10"),
    ("retina", lambda root: np.save(root / "Retina/train/5_left.npy", np.zeros((4, 16, 16))), "5_left.npy: got a file"),
    ("acevedo", write(IMAGE, b"<html>not found</html>"), "MO_0.jpg: got a file that cannot be decoded"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "words"), MISTAKES)
def test_one_sentence(
    raw: Callable[..., Path],
    refused: Callable[..., str],
    name: str,
    change: Callable[[Path], object],
    words: str,
) -> None:
    root = raw(name)
    change(root)
    message = refused(name, root)
    assert words in message, message


@pytest.mark.parametrize("name", ["mnist", "svhn", "acevedo", "ham10000", "isic2019", "waterbirds", "pacs"])
def test_nothing_is_there(tmp_path: Path, refused: Callable[..., str], name: str) -> None:
    message, tree = refused(name, tmp_path / "data", strict=True), get(name).tree
    words = (tree.title, tree.page, tree.archive, f"licence: {tree.licence}", "FEDTABLES_DATA")
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(
    ("name", "md5"),
    [("mnist", "a25bea736e30d166cdddb491f175f624"), ("cifar10", "5ff9c542aee3614f3951f8cda6e48888"),
     ("svhn", "e26dedcc434d2e4c54c9b2d4a06d8373")],
)  # fmt: skip
def test_a_wrong_checksum(raw: Callable[..., Path], refused: Callable[..., str], name: str, md5: str) -> None:
    message = refused(name, raw(name), strict=True)
    assert "got md5 " in message and f"expected {md5}" in message and "strict=false" in message


COUNTS: dict[str, tuple[dict[str, Any], str, str]] = {
    # 80 % of 1,218 images of basophils, rounded down; 327 less 1; FLamby's fold; 90 % of 6,336.
    "acevedo": ({}, "14,543", "train basophil 2 of 974"),
    "bodzas": ({}, "16,027", "test erythroblast 1 of 102"),
    "niid2": ({"pool": 1}, "48,917", "test basophil acevedo 2 of 1,217"),
    "ham10000": ({"held_out": 1}, "10,015", "train akiec 3 of 326"),
    "isic2019": ({}, "23,247", "test MEL bcn 1 of 578"),
    "waterbirds": ({}, "10,589", "test water bird land 3 of 642"),
    # 80 % of 379, rounded down; the domain that is left out has no source.
    "pacs": ({}, "9,991", "train dog art_painting 4 of 303"),
    "pacs sketch": ({"leave_out": "sketch"}, "9,991", "test person 5 of 160"),
    "spawrious": ({"breeds": 4}, "50,688", "train corgi snow 18 of 5,702"),
    "retina": ({}, "8,999", "normal 5 of 4,500"),
}


@pytest.mark.parametrize("case", COUNTS)
def test_other_numbers_of_images_than_were_published(
    raw: Callable[..., Path], refused: Callable[..., str], case: str
) -> None:
    name, (options, total, cell) = case.partition(" ")[0], COUNTS[case]
    root = raw(*(("acevedo", "matek", "bodzas") if name == "niid2" else (name,)))
    message = refused(name, root, **options, strict=True)
    assert f"expected the published {total}; " in message and cell in message, message


def test_a_resized_copy(
    raw: Callable[..., Path], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The miniature has images of 24 x 18 pixels; here its numbers are the published ones."""
    monkeypatch.setattr(acevedo, "PUBLISHED", dict.fromkeys(acevedo.PUBLISHED, 3))
    message = refused("acevedo", raw("acevedo"), strict=True)
    assert "got 24 x 18 pixels; expected at least 300 on the shorter side" in message


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
