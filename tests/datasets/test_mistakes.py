"""The mistakes that users make with raw files, on small copies of each data set: one message in five parts for each.

Sizes of the copies are those of `conftest.SMALL`; numbers expected in the messages are the owners' published ones.
"""

import dataclasses
import gzip
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_mistakes import (
    Mistake,
    array,
    batch,
    cut,
    each,
    hint,
    idx,
    matlab,
    mistake,
    move,
    picture,
    remove,
    replace,
    unchanged,
    write,
)  # fmt: skip
from raw_trees import listed

from datasets.core.base import DataError
from datasets.core.checks import check_published
from datasets.core.registry import get

MATEK = "PKG - AML-Cytomorphology_LMU/AML-Cytomorphology"
ACEVEDO = "PBC_dataset_normal_DIB"
HAM = "HAM10000/HAM10000_metadata.csv"
ISIC = "ISIC2019/ISIC_2019_Training"
COVID = "COVID-FL/12_clients/split_real"
IDX = "MNIST/raw/train-images-idx3-ubyte.gz"
LABELS = "MNIST/raw/train-labels-idx1-ubyte.gz"
TRUTH, METADATA, INPUT = f"{ISIC}_GroundTruth.csv", f"{ISIC}_Metadata.csv", f"{ISIC}_Input"
FOLD, ISIC_HAM = "ISIC2019/train_test_split", "ISIC2019/HAM10000_metadata"
WATER = "waterbirds_v1.0/metadata.csv"

mnist, cifar, svhn = (partial(mistake, name) for name in ("mnist", "cifar10", "svhn"))
retina, covid, ham, isic = (partial(mistake, name) for name in ("retina", "covid_fl", "ham10000", "isic2019"))
acevedo, matek, bodzas = (partial(mistake, name) for name in ("acevedo", "matek", "bodzas"))
water, spaw, pacs = (partial(mistake, name) for name in ("waterbirds", "spawrious", "pacs"))

DOWNLOADS = [
    mnist(unchanged, "6bbc9ace898e44ae57da46a324031adb is published", "dataset.options.strict=false", strict=True),
    cifar(unchanged, "5ff9c542aee3614f3951f8cda6e48888 is published", "re-encoded (CIFAR rebuilt from", strict=True),
    svhn(unchanged, "e26dedcc434d2e4c54c9b2d4a06d8373 is published", strict=True),
    mnist(move("FashionMNIST", "MNIST"), "move these to FashionMNIST/raw", tree="fashionmnist", strict=True),
    mnist(cut(IDX, 0), "is empty", "47,040,016 bytes", "found:     0 bytes"),
    mnist(cut(IDX, 300), "cannot be unpacked", "found:     300 bytes", "interrupted"),
    mnist(idx(IDX, 50, 32, 32), "[2051, 50, 32, 32]; expected [2051, N, 28, 28] and 16 + N x 784"),
    mnist(idx(IDX, 39, 28, 28), "50 labels for 39 images"),
    mnist(each(remove(IDX), write(IDX[:-3], "<!DOCTYPE html><html>not found</html>")), "a web page saved under"),
    mnist(each(remove(IDX), write(IDX[:-3], gzip.compress(b"abc" * 9, mtime=0))), "an archive under this name"),
    mnist(each(move(LABELS, "train-labels.idx1-ubyte"), write("MNIST/raw/.hidden"), write("MNIST/raw/__MACOSX/")),
        "1 of 4 raw files are missing", "train-images-idx3-ubyte.gz, train-labels.", "dots in the names"),
    mnist(each(*(write(f"p{k}") for k in range(8))), "p0, p1, p2, p3, p4 and 3 more in", tree="empty"),
    hint("cifar10", "cifar-10-batches-bin/", "binary version for C"),
    hint("cifar10", "cifar-10-batches-py/data_batch_1", "6 of 7 raw files"),
    cifar(cut("cifar-10-batches-py/data_batch_3", 50), "cannot be read as a batch"),
    cifar(batch("data_batch_1", data=np.zeros((20, 3072), np.uint8), fine_labels=[0] * 20), "0 `labels`"),
    cifar(batch("batches.meta", fine_label_names=["a"]), "names 0 classes; CIFAR-10 has 10"),
    svhn(cut("train_32x32.mat", 500), "cannot be read as a Matlab file"),
    svhn(matlab(X=np.zeros((32, 32, 3, 4), np.uint8), y=[[0], [1], [2], [3]]), "others than 1 to 10: [0]"),
    svhn(matlab(X=np.zeros((32, 32, 3, 4), np.uint8), y=[[1], [2]]), "2 labels for 4 images"),
]  # fmt: skip

FEDLD = [
    hint("retina", "Retina/train-all/", "older copy of ViT-FL"),
    hint("retina", "Retina.zip", "data: the archive is not unpacked"),
    retina(remove("Retina/labels.csv"), "1 of 4 files and folders are missing: labels.csv"),
    covid(move("Retina", "COVID-FL"), "this is Retina", tree="retina"),
    # 10 training images are dealt to the clients in turn: client_2 has 1 and 6.
    retina(remove("Retina/train/6_left.npy"), "10 images expected, 9 found", "split_2/client_2.csv 2/1", split=2),
    retina(replace("Retina/labels.csv", "3_left_test.npy,1.0\n", ""), "have no label in labels.csv: 3_left_test.npy"),
    *(
        retina(replace("Retina/labels.csv", "0_left.npy,0.0\n", f"{row}\n"), word, "0.0 (normal), 1.0 (diseased)")
        for row, word in (
            ("0_left.npy,0.5", "labels.csv has in row 1 '0_left.npy,0.5'"),
            ("0_left.npy,0.0\n0_left.npy,1.0", "in row 2"),
        )
    ),
    retina(write("Retina/test.csv", b"PK\x03\x04\xff\xfe"), "no UTF-8 text"),
    retina(remove("*/*/split_3/client_4.csv"), "missing: 5_clients/split_3/client_4.csv", split=3),
    retina(write("Retina/5_clients/split_1/client_5.csv", "0_left.npy"), "1 of 1 names in 5_clients/", split=1),
    retina(remove("Retina/train/*", "Retina/train.csv"), "there are no images of train normal, train diseased."),
    retina(unchanged, "normal 4,500/5, diseased 4,499/5", "needs dataset.options.strict=false", strict=True),
    *(
        retina(change, "5_left.npy is no image", word, decoding=True)
        for change, word in (
            (cut("Retina/train/5_left.npy", 200), "interrupted"),
            (array("Retina/train/5_left.npy", np.zeros((4, 16, 16))), "its shape is (4, 16, 16)"),
            (array("Retina/train/5_left.npy", np.array([[{}]], dtype=object)), "allow_pickle"),
        )
    ),
    covid(write(f"{COVID}/ricord_d.csv", "x"), "other sites than COVID-FL has: ricord_d.csv", strict=True),
    covid(remove("COVID-FL/train/gz/gz_1.png"), "1 of 48 listed images are not in train/", "split_real/gz.csv 4/3"),
    covid(replace("COVID-FL/labels.csv", ",2.0", ",1.0"), "there are no images of train COVID-19"),
]  # fmt: skip

BLOOD = [
    matek(remove(f"{MATEK}/LYA"), "1 of 15 files and folders are missing: LYA"),
    acevedo(move(f"{ACEVEDO}/ig/*.jpg", "ig_{}_copy.jpg"), "there are no images of train ig.", classes="folders"),
    acevedo(each(remove("*"), lambda root: root.rmdir(), lambda root: root.write_text("x")), "1 bytes", "/data\n"),
    bodzas(picture("Bodzas-23/Normoblast/1.png"), "Normoblast/1.png have the same name"),
    acevedo(cut(f"{ACEVEDO}/monocyte/MO_0.jpg", 8), "Acevedo-20: MO_0.jpg cannot be decoded", "monocyte/MO_0.jpg, an",
        "8 bytes that begin with", decoding=True),
    matek(move("PKG*/AML*", "a/b/c/AML"), "15 of 15 files and folders are missing", "found:     a/ in"),
    mistake("niid2", remove(ACEVEDO), "Acevedo-20: ", tree="blood", pool=1),
]  # fmt: skip

SKIN = [
    hint("ham10000", "HAM10000/hmnist_28_28_RGB.csv", "shrunken pixels"),
    ham(remove(HAM), "there is no HAM10000_metadata beside 28 images"),
    # Even numbers of the 28 images, two of each class, lie in the first folder.
    ham(remove("HAM10000/HAM10000_images_part_2"), "14 of 28 listed images have no file", "is missing", "akiec 4/2"),
    ham(write(HAM, "image,age_approx,lesion_id\nISIC_0000000,55,\n"), "has no column image_id, dx"),
    ham(replace(HAM, ",mel,", ",melanoma,"), "unknown dx melanoma"),
    ham(replace(HAM, "ISIC_0024307", "ISIC_0024306"), "lists ISIC_0024306 twice"),
    ham(write(HAM, "lesion_id,image_id,dx\nHAM_0,ISIC_00"), "is cut off in row 2"),
    ham(write(HAM, 'lesion_id,image_id,dx\n"' + "x" * 200_000), "cannot be read as a table"),
    ham(unchanged, "no images of train akiec, train bcc, train bkl, train df, train mel and 2 more.", held_out=4),
    # 6 centres of 2 + 1 images of each of 8 classes; image n has class n // 3 % 8 and centre n // 24.
    isic(remove(FOLD), "train_test_split is not beside", "dataset_creation_scripts/train_test_split", "fold=own"),
    isic(cut(f"{INPUT}/ISIC_0000000.jpg", 8), "ISIC_0000000.jpg cannot be decoded", decoding=True),
    isic(remove(METADATA), "Metadata.csv is not beside", fold="own"),
    isic(remove(ISIC_HAM), "need HAM10000_metadata", "10.7910/DVN/DBW86T", fold="own"),
    isic(each(remove(INPUT), write(f"{ISIC}_Input.zip")), "not unpacked", "bcn 24/0"),
    isic(each(replace(FOLD, "ISIC_0000100", "ISIC_0000100_downsampled"), remove(TRUTH)), "msk 24/23", "_downsampled"),
    isic(replace(TRUTH, "ISIC_0000000,1.0", "ISIC_0000000,0.0"), "two classes or none", fold="own"),
    isic(replace(METADATA, "BCN_0000000", "XYZ_0000000"), "ISIC_0000000: its lesion does not tell", fold="own"),
    isic(replace(METADATA, "ISIC_0000000,", "ISIC_0000999,"), "ISIC_0000999:", "does not have it", fold="own"),
]  # fmt: skip

DIVERSE = [
    hint("waterbirds", "CUB_200_2011/", "CUB_200_2011 found, not WaterBirds"),
    hint("waterbirds", "waterbirds_v1.0/much/deeper/metadata.csv", "in a deeper folder"),
    # Images 1 to 12 train, 13 to 20 validation, 21 to 32 test; in each three of a cell, 21 is a land bird on land.
    water(each(remove("*/*/Bird_0021.jpg", "*/*/Bird_0013.jpg"), move("*/*/Bird_0012.jpg", "x.png")),
        "2 of 24 listed images have no file: 001.Bird_0/Bird_0012.jpg", "expected/found: split 0 12/11, split 2 12/11"),
    water(replace(WATER, ",2,", ",1,"), "there are no images of test land bird land, test land bird water"),
    # The test set is a tenth, and a tenth of 4 rounds to none.
    spaw(remove("*/*/snow/labrador/*_[0-7].png"), "there are no images of test labrador snow."),
    pacs(remove("PACS/*/giraffe"), "there are no images of train giraffe."),
    # Four images of five are for training.
    pacs(remove("PACS/sketch"), "9,991 images expected, 105 found", "test person sketch 32/0", strict=True),
]  # fmt: skip


@pytest.mark.parametrize("case", [*DOWNLOADS, *FEDLD, *BLOOD, *SKIN, *DIVERSE])
@pytest.mark.filterwarnings("ignore:Truncated File Read")
def test_one_message_in_five_parts(
    raw: Callable[..., Path], refused: Callable[..., str], case: Mistake
) -> None:
    root = raw(*{"empty": (), "blood": ("acevedo", "matek", "bodzas")}.get(case.tree, (case.tree,)))
    case.change(root)
    message = refused(case.name, root, case.options, decoding=case.decoding)
    assert [word for word in case.words if word not in message] == [], message


@pytest.mark.parametrize(
    "name",
    "mnist cifar100 svhn retina acevedo matek bodzas ham10000 isic2019 waterbirds spawrious pacs".split(),
)
def test_nothing_is_there(tmp_path: Path, refused: Callable[..., str], name: str) -> None:
    message, tree = refused(name, tmp_path / "data"), get(name).tree
    words = (tree.page, tree.archive, "does not exist", "not downloaded yet", "FEDTABLES_DATA")
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(
    ("name", "owner", "method"),
    [("acevedo", os, "scandir"), ("mnist", Path, "read_bytes"), ("waterbirds", Path, "read_bytes")],
)
def test_files_that_may_not_be_read(
    raw: Callable[..., Path],
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    owner: Any,
    method: str,
) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    root = raw(name)
    monkeypatch.setattr(owner, method, denied)
    message = refused(name, root)
    assert "cannot be read (Permission denied)." in message and "chmod -R u+rX" in message


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


COUNTS = {
    # 80 % of 1,218 images of basophils and of 79, rounded down; 327 less 1; FLamby's fold; 90 % of 6,336.
    "acevedo": ({}, "14,543 images expected", "train basophil 974/2"),
    "matek": ({}, "18,365 images expected", "train basophil 63/1"),
    "bodzas": ({}, "16,027 images expected", "test erythroblast 102/1"),
    "niid2": ({"pool": 1}, "48,917 images expected", "test basophil acevedo 1,217/2"),
    "ham10000": ({"held_out": 1}, "10,015 images expected", "train akiec 326/3"),
    "isic2019": ({}, "23,247 images expected", "test MEL bcn 578/1"),
    "isic2019 own": ({"fold": "own"}, "23,247 images expected", "test bcn 2,483/5"),
    "waterbirds": ({}, "10,589 images expected", "test water bird land 642/3"),
    # 80 % of 379, rounded down; the domain that is left out has no source.
    "pacs": ({}, "9,991 images expected", "train dog art_painting 303/4"),
    "pacs sketch": ({"leave_out": "sketch"}, "9,991 images expected", "test person 160/5"),
    "spawrious": ({"breeds": 4}, "50,688 images expected", "train corgi snow 5,702/18"),
}


@pytest.mark.parametrize("case", COUNTS)
def test_other_numbers_and_resized_copies(
    raw: Callable[..., Path], refused: Callable[..., str], case: str
) -> None:
    """The miniature has other numbers of images than were published; if it had not, it would be a resized copy."""
    name, (options, total, cell) = case.partition(" ")[0], COUNTS[case]
    root = raw(*(("acevedo", "matek", "bodzas") if name == "niid2" else (name,)))
    message = refused(name, root, {**options, "strict": True})
    assert total in message and cell in message and "dataset.options.strict=false" in message
    data = dataclasses.replace(listed(name, root, **options), expected=())
    tree = get(name).tree
    if not tree.sides:
        check_published(tree, root, data)
        return
    with pytest.raises(
        DataError, match=r"has (24 x 18|20 x 20|16 x 16) pixels, the originals [\d,]+ or more on"
    ):
        check_published(tree, root, data)
    check_published(dataclasses.replace(tree, sides=dict.fromkeys(tree.sides, 16)), root, data)
