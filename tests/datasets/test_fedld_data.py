"""Retina and COVID-FL: the prepared copies in their real layout, and every mistake that users make with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from datasets.core.base import DataError, Dataset
from datasets.core.images import as_rgb
from datasets.core.prepare import check, load
from datasets.covid_fl import SITES
from datasets.retina import SPLITS, retina
from datasets.retina import RetinaOptions as Retina
from partitions import Population, make

SMALL = {"strict": False, "size": 16}
PARTS = ("looked at: ", "expected: ", "found: ", "cause: ", "get it: ", "counts: ")


def read(name: str, root: Path, **options: Any) -> Dataset:
    return load(name, {**SMALL, **options}, root=root, cache=root.parent / "cache")


def fails(name: str, root: Path, **options: Any) -> str:
    """The message that loading ends in: one, with all six parts, and nothing is left prepared."""
    with pytest.raises(DataError) as caught:
        read(name, root, **options)
    message = str(caught.value)
    assert [part for part in PARTS if part not in message] == [], message
    assert str(root) in message and "id 1" in message  # an absolute path, and the owner's page
    assert not any((root.parent / "cache").glob(f"{name}-*"))
    return message


def lines(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows))


# Retina -------------------------------------------------------------------------------------------------------------

TRAIN = [f"{100 + n}_{'left' if n % 2 else 'right'}.npy" for n in range(12)]
TEST = [f"{900 + n}_left_test.npy" for n in range(4)]
# labels.csv is in an order of its own, train and test mixed; the class of image n is n // 6 in train, n // 2 in test.
ORDER = [*TRAIN[6:], *TEST, *TRAIN[:6]]
CLIENTS = [TRAIN[0:1], TRAIN[1:3], TRAIN[3:6], TRAIN[6:8], TRAIN[8:12]]


def label(name: str) -> int:
    return TRAIN.index(name) // 6 if name in TRAIN else TEST.index(name) // 2


def pixels(n: int) -> np.ndarray:
    """16 x 16 x 3 whole numbers, the blue plane of which is n."""
    values = np.random.default_rng(n).integers(0, 256, (16, 16, 3))
    values[..., 2] = n
    return values


@pytest.fixture
def mini_retina(tmp_path: Path) -> Callable[..., Path]:
    """Writes 12 + 4 arrays with their lists, and returns the data root."""

    def write(folder: str = "Retina") -> Path:
        place = tmp_path / "data" / folder
        for part, names in (("train", TRAIN), ("test", TEST)):
            (place / part).mkdir(parents=True)
            for n, name in enumerate(names):
                np.save(place / part / name, pixels(n).astype(np.float32))
            lines(place / f"{part}.csv", names)
        np.save(place / "train" / TRAIN[1], pixels(1).astype(np.uint8))
        np.save(place / "train" / TRAIN[2], pixels(2) / 255)
        np.save(place / "train" / TRAIN[3], pixels(3)[..., 0].astype(np.float32))
        np.save(place / "train" / TRAIN[4], (pixels(4) * 257).astype(np.uint16))
        lines(place / "labels.csv", [f"{name},{label(name)}.0" for name in ORDER])
        lines(place / "central/train.csv", TRAIN)
        for split in (1, 2, 3):
            for client, names in enumerate(CLIENTS, 1):
                # The text behind the comma is not looked at.
                lines(place / f"5_clients/split_{split}/client_{client}.csv", [f"{name},9" for name in names])
        return tmp_path / "data"

    return write


@pytest.mark.parametrize("folder", ["Retina", "Retina/Retina", "retina", "."])
def test_retina(mini_retina: Callable[..., Path], folder: str) -> None:
    data = read("retina", mini_retina(folder))
    assert data.classes == ("normal", "diseased") and data.sources == () and data.note == ""
    assert data.mean == (0.5007, 0.5010, 0.5019) and data.std == (0.0342, 0.0535, 0.0484)
    assert data.test.labels.tolist() == [0, 0, 1, 1]
    # In the order of labels.csv: images 6 to 11, then 0 to 5.
    assert data.train.labels.tolist() == [1] * 6 + [0] * 6
    for place, n in enumerate([*range(6, 12), *range(6)]):
        expected = np.repeat(pixels(3)[..., :1], 3, axis=2) if n == 3 else pixels(n)
        np.testing.assert_array_equal(data.train.images[place], expected.transpose(2, 0, 1), err_msg=str(n))


def test_retina_is_256_pixels_wide(mini_retina: Callable[..., Path]) -> None:
    built = retina(Retina(strict=False), mini_retina())
    assert built.shape == (3, 256, 256)
    assert built.decode(built.train.paths[0]).shape == (3, 256, 256)


def test_retina_without_lists_of_training_images(mini_retina: Callable[..., Path]) -> None:
    root = mini_retina()
    (root / "Retina/train.csv").unlink()
    lines(root / "Retina/central/train.csv", TRAIN[:7])
    assert len(read("retina", root, size=8).train) == 7
    shutil.rmtree(root / "Retina/central")
    (root / "Retina/train/._100_left.npy").touch()
    assert len(read("retina", root, size=9).train) == 12


def test_retina_lists_become_the_clients(mini_retina: Callable[..., Path]) -> None:
    root = mini_retina()
    data = read("retina", root, split=2)
    assert data.sources == ("client_1", "client_2", "client_3", "client_4", "client_5")
    assert data.test.sources is None
    assert data.train.sources is not None
    people = Population(data.train.labels, 2, sources=data.train.sources, num_sources=5)
    clients = make("natural").split(people, np.random.default_rng(0))
    order = [name for name in ORDER if name in TRAIN]
    assert [{order[n] for n in client} for client in clients] == [set(names) for names in CLIENTS]
    assert check("retina", {**SMALL, "split": 2}, root, root.parent / "cache").ok


def test_retina_arrays_of_all_kinds() -> None:
    """0, 128 and 255 as each kind of array writes them; 257 x 128 = 32,896."""
    grey = np.array([[0, 128, 255]])
    expected = np.dstack([grey] * 3)
    for kind in (np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64):
        np.testing.assert_array_equal(as_rgb(grey.astype(kind)), expected, err_msg=str(kind))
    for kind in (np.uint16, np.int32, np.uint32):
        np.testing.assert_array_equal(as_rgb((grey * 257).astype(kind)), expected, err_msg=str(kind))
    for kind in (np.float32, np.float64):
        np.testing.assert_array_equal(as_rgb((grey / 255).astype(kind)), expected, err_msg=str(kind))
    np.testing.assert_array_equal(as_rgb(np.array([[-3.0, 127.6, 300.0]])), expected)
    np.testing.assert_array_equal(as_rgb(grey[..., None].astype(np.uint8)), expected)
    np.testing.assert_array_equal(as_rgb(np.dstack([expected, grey]).astype(np.uint8)), expected)


def test_retina_image_is_resized_without_its_aspect_ratio(
    mini_retina: Callable[..., Path], tmp_path: Path
) -> None:
    root = mini_retina()
    wide = np.zeros((16, 32, 3), np.uint8)
    wide[:, 16:] = 200
    np.save(root / "Retina/test" / TEST[0], wide)
    image = read("retina", root).test.images[0]
    assert (image[:, :, :7] == 0).all() and (image[:, :, 9:] == 200).all()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 bytes"),
        (b"<html>not found</html>", "22 bytes"),
        (None, "broke off"),
        (np.zeros((4, 16, 16)), r"its shape is (4, 16, 16)"),
        (np.zeros(16), "its shape is (16,)"),
        (np.zeros((0, 16, 3)), "its shape is (0, 16, 3)"),
        (np.full((16, 16), np.nan), "not finite"),
        (np.array([["a"]]), "its values are <U1"),
        (np.array([[{}]], dtype=object), "allow_pickle"),
    ],
)
def test_retina_file_that_is_no_image(mini_retina: Callable[..., Path], content: Any, words: str) -> None:
    root = mini_retina()
    path = root / "Retina/train" / TRAIN[5]
    if isinstance(content, np.ndarray):
        np.save(path, content, allow_pickle=True)
    else:
        path.write_bytes(path.read_bytes()[:200] if content is None else content)
    message = fails("retina", root)
    assert "105_left.npy is no image" in message and words in message and f"looked at: {path}" in message
    assert "expected:  Retina/train/105_left.npy, an array of H x W or H x W x 3 numbers\n" in message
    # 12 + 4 arrays, one half of each class; 105 is the sixth of six normal ones.
    assert "16 images expected, 15 found; expected/found: normal 8/7;" in message


def test_retina_is_not_there(tmp_path: Path) -> None:
    message = fails("retina", tmp_path / "data")
    assert "Retina/labels.csv, Retina/train, Retina/test, Retina/test.csv under the data root" in message
    assert "1bW--_qRZnWbkb0XXvGBCSferdqXZ6pe7" in message and "not downloaded yet" in message


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (["Retina/train-all/", "Retina/val.csv"], "older copy of ViT-FL"),
        (["train-all/", "val.csv", "split_1/"], "older copy of ViT-FL"),
        (["Retina.zip"], "Retina.zip in {root}: an archive that is not unpacked"),
        (
            ["Retina/train.zip", "Retina/labels.csv"],
            "train.zip in {root}/Retina: an archive that is not unpacked",
        ),
        (["Retina/train/", "Retina/trainLabels.csv"], "files of the Kaggle competition"),
        (["Retina/resized_train_cropped/"], "files of the Kaggle competition"),
        (["Retina/12_clients/"], "this is COVID-FL"),
        (["FedLD/Retina/labels.csv"], "labels.csv lies in {root}/FedLD/Retina: make that the data root"),
        (["Retina/train/", "Retina/test/", "Retina/test.csv"], "no `labels.csv` in {root}/Retina"),
    ],
)
def test_retina_is_something_else(tmp_path: Path, there: list[str], words: str) -> None:
    root = tmp_path / "data"
    for name in there:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).mkdir() if name.endswith("/") else (root / name).touch()
    assert words.format(root=root) in fails("retina", root)


def test_retina_images_are_missing(mini_retina: Callable[..., Path]) -> None:
    root = mini_retina()
    (root / "Retina/train" / TRAIN[1]).unlink()
    (root / "Retina/train" / TRAIN[10]).unlink()
    message = fails("retina", root, split=2)
    assert "1 of 2 names in 5_clients/split_2/client_2.csv are missing in train/" in message
    assert "the first of them 101_left.npy" in message
    assert (
        "client_1 1 and 1; client_2 2 and 1; client_3 3 and 3; client_4 2 and 2; client_5 4 and 3" in message
    )
    assert "100_right.npy, 102_right.npy, 103_left.npy, 104_right.npy, 105_left.npy and 5 more" in message
    assert "2 of 12 names in train.csv are missing in train/" in fails("retina", root)


def test_retina_names_without_a_label(mini_retina: Callable[..., Path]) -> None:
    root = mini_retina()
    lines(root / "Retina/labels.csv", [f"{name},{label(name)}.0" for name in ORDER if name != TEST[3]])
    message = fails("retina", root)
    assert "1 of 4 names in test.csv have no label in labels.csv" in message
    assert "none for 903_left_test.npy" in message and "test 4 and 3" in message


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("name,label", "row 1 of labels.csv has none of the labels 0.0 (normal), 1.0 (diseased)"),
        ("100_right.npy,2.0", "row 1 of labels.csv has none of the labels"),
        ("100_right.npy,0.5", "found:     100_right.npy,0.5"),
        ("100_right.npy", "row 1 of labels.csv has none of the labels"),
        ("100_right.npy,nan", "row 1 of labels.csv has none of the labels"),
        # its own row, the eleventh behind this one, says 0.0
        ("100_right.npy,1.0", "row 12 of labels.csv has another label further up"),
    ],
)
def test_retina_labels_of_another_kind(mini_retina: Callable[..., Path], row: str, words: str) -> None:
    root = mini_retina()
    path = root / "Retina/labels.csv"
    path.write_text(f"{row}\n{path.read_text()}")
    assert words in fails("retina", root)


def test_lists_as_other_systems_write_them(mini_retina: Callable[..., Path]) -> None:
    """A mark of UTF-8, line ends of Windows, an empty row at the end, an image twice."""
    root = mini_retina()
    for name in ("labels.csv", "test.csv", "train.csv"):
        rows = (root / "Retina" / name).read_text().split()
        (root / "Retina" / name).write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*rows, rows[0], "", ""]).encode())
    data = read("retina", root)
    assert len(data.train) == 12 and data.test.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "test.csv is empty"), (b"PK\x03\x04\xff\xfe", "no UTF-8 text")]
)
def test_a_list_that_is_none(mini_retina: Callable[..., Path], content: bytes, words: str) -> None:
    root = mini_retina()
    (root / "Retina/test.csv").write_bytes(content)
    assert words in fails("retina", root)


def test_retina_client_lists_are_missing(mini_retina: Callable[..., Path]) -> None:
    root = mini_retina()
    (root / "Retina/5_clients/split_3/client_4.csv").unlink()
    message = fails("retina", root, split=3)
    assert "1 of 5 client lists of split 3 are missing: 5_clients/split_3/client_4.csv" in message
    assert "legacy_seed=2022" in message and "5 lists expected, 4 found" in message
    shutil.rmtree(root / "Retina/5_clients")
    assert "5 of 5 client lists of split 3" in fails("retina", root, split=3)
    assert read("retina", root).sources == ()


def test_retina_image_at_two_clients(mini_retina: Callable[..., Path]) -> None:
    root = mini_retina()
    lines(root / "Retina/5_clients/split_1/client_5.csv", [TRAIN[0], *CLIENTS[4]])
    message = fails("retina", root, split=1)
    assert "1 of 5 names in 5_clients/split_1/client_5.csv are in 5_clients/split_1/client_1.csv" in message


def test_retina_no_arrays(mini_retina: Callable[..., Path]) -> None:
    root = mini_retina()
    for path in [*(root / "Retina/train").iterdir(), *root.glob("Retina/**/train.csv")]:
        path.unlink()
    assert "no arrays in train/" in fails("retina", root)


def test_retina_strict_wants_the_figures_counts(mini_retina: Callable[..., Path]) -> None:
    message = fails("retina", mini_retina(), strict=True)
    assert "all 4,500 + 4,499 and 6 + 6" in message and "strict: false" in message
    message = fails("retina", mini_retina("Retina/Retina"), strict=True, split=3)
    assert "client_1 2,734 + 0 and 1 + 0" in message


def test_retina_strict_takes_the_figures_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy with as many images as the figure's bars; of another split, it is refused."""
    place = tmp_path / "data/Retina"
    monkeypatch.setattr(Path, "is_file", lambda path: path.suffix == ".npy" or path.exists())
    names = {
        (client, kind): [f"{client}_{kind}_{n}.npy" for n in range(count)]
        for client, counts in enumerate(SPLITS[2], 1)
        for kind, count in enumerate(counts)
    }
    lines(
        place / "labels.csv",
        [f"{name},{kind}.0" for (_, kind), own in names.items() for name in own] + ["t.npy,1.0"],
    )
    lines(place / "test.csv", ["t.npy"])
    for part in ("train", "test"):
        (place / part).mkdir()
    for split in (2, 3):
        for client in range(1, 6):
            lines(place / f"5_clients/split_{split}/client_{client}.csv", names[client, 0] + names[client, 1])
    built = retina(Retina(split=2), tmp_path / "data")
    assert len(built.train) == 8999 and built.train.sources is not None
    with pytest.raises(
        DataError, match=r"client_1 2,734 \+ 0 and 657 \+ 1,017; client_2 1,098 \+ 290 and 312"
    ):
        retina(Retina(split=3), tmp_path / "data")


# COVID-FL -----------------------------------------------------------------------------------------------------------


def covid_names(site: str) -> list[str]:
    """Three images of a site: grey png, 16-bit png in a folder with a blank, colour jpg."""
    return [f"{site}-0.png", f"{site} x rays/{site} 1.png", f"{site}-2.jpg"]


@pytest.fixture
def mini_covid(tmp_path: Path) -> Callable[..., Path]:
    """Writes 12 sites of 3 images and 6 test images with their lists, and returns the data root."""

    def write(folder: str = "COVID-FL") -> Path:
        place = tmp_path / "data" / folder
        grey = np.tile(np.array([0, 128, 255, 255], np.uint8).repeat(4), (16, 1))
        rows = []
        for number, site in enumerate(SITES):
            names = covid_names(site)
            for name in names:
                (place / "train" / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(grey).save(place / "train" / names[0])
            Image.fromarray(grey.astype(np.uint16) * 257).save(place / "train" / names[1])
            Image.fromarray(np.dstack([grey] * 3)).save(place / "train" / names[2], quality=100)
            lines(place / f"12_clients/split_real/{site}.csv", names)
            # Sites lack classes: 0 and 1, 1 and 2, or 0 only.
            rows += [
                f"{name},{max(number % 3 - 1, 0) + n % (2 if number % 3 else 1)}.0"
                for n, name in enumerate(names)
            ]
        test = [f"t {n}.png" for n in range(6)]
        (place / "test").mkdir()
        for n, name in enumerate(test):
            Image.fromarray(np.full((20, 16 + 4 * n), 40 * n, np.uint8)).save(place / "test" / name)
        lines(place / "test.csv", test)
        lines(place / "train.csv", [row.rpartition(",")[0] for row in rows])
        lines(place / "labels.csv", rows + [f"{name},{n % 3}.0" for n, name in enumerate(test)])
        return tmp_path / "data"

    return write


@pytest.mark.parametrize("folder", ["COVID-FL", "COVID-FL/COVID-FL", "covid_fl", "."])
def test_covid(mini_covid: Callable[..., Path], folder: str) -> None:
    root = mini_covid(folder)
    (root / folder / "12_clients/split_real/._gz.csv").touch()
    data = read("covid_fl", root)
    assert data.classes == ("normal", "pneumonia", "COVID-19")
    assert data.sources == tuple(sorted(data.sources)) and len(data.sources) == 12
    assert data.mean == (0.485, 0.456, 0.406) and data.std == (0.229, 0.224, 0.225)
    assert data.train.sources is not None and data.train.sources.tolist() == [n // 3 for n in range(36)]
    assert data.train.labels[:9].tolist() == [0, 0, 0, 0, 1, 0, 1, 2, 1]
    assert data.test.labels.tolist() == [0, 1, 2, 0, 1, 2] and data.test.sources is None
    # 16 bits are scaled down, not cut off at 255: the second image of a site equals its first.
    np.testing.assert_array_equal(data.train.images[0], data.train.images[1])
    assert data.train.images[1, :, 0, ::4].tolist() == [[0, 128, 255, 255]] * 3
    # 20 x 36: the shorter side to 16, then the centre
    assert (data.test.images[5] == 200).all()


def test_covid_sites_become_the_clients(mini_covid: Callable[..., Path]) -> None:
    data = read("covid_fl", mini_covid())
    people = Population(data.train.labels, 3, sources=data.train.sources, num_sources=12)
    clients = make("natural").split(people, np.random.default_rng(0))
    assert [client.tolist() for client in clients] == [[3 * k, 3 * k + 1, 3 * k + 2] for k in range(12)]


def test_covid_strict_knows_no_counts_but_the_sites(mini_covid: Callable[..., Path]) -> None:
    root = mini_covid()
    assert len(read("covid_fl", root, strict=True).train) == 36
    assert load("covid_fl", {}, root=root, cache=root.parent / "full").train.images.shape[1:] == (3, 384, 384)


def test_covid_site_list_is_missing(mini_covid: Callable[..., Path]) -> None:
    root = mini_covid()
    (root / "COVID-FL/12_clients/split_real/ricord_c.csv").unlink()
    message = fails("covid_fl", root)
    assert "1 of 12 site lists are missing: ricord_c." in message and "12 lists expected, 11 found" in message
    lines(root / "COVID-FL/12_clients/split_real/ricord_d.csv", covid_names("ricord_c"))
    assert "11 found, 1 more" in fails("covid_fl", root)
    lines(root / "COVID-FL/12_clients/split_real/ricord_c.csv", covid_names("ricord_c"))
    assert "lists of other sites than COVID-FL has: ricord_d" in fails("covid_fl", root, strict=True)


def test_covid_images_are_missing(mini_covid: Callable[..., Path]) -> None:
    root = mini_covid()
    shutil.rmtree(root / "COVID-FL/train/gz x rays")
    message = fails("covid_fl", root)
    assert "1 of 3 names in 12_clients/split_real/gz.csv are missing in train/" in message
    assert "eurorad 3 and 3; gz 3 and 2; ml-workgroup 3 and 3" in message


def test_covid_image_at_two_sites(mini_covid: Callable[..., Path]) -> None:
    root = mini_covid()
    lines(root / "COVID-FL/12_clients/split_real/gz.csv", [*covid_names("gz"), covid_names("cohen")[2]])
    message = fails("covid_fl", root)
    assert "1 of 4 names in 12_clients/split_real/gz.csv are in 12_clients/split_real/cohen.csv" in message


def test_covid_image_with_two_labels(mini_covid: Callable[..., Path]) -> None:
    root = mini_covid()
    with open(root / "COVID-FL/labels.csv", "a") as stream:
        stream.write("bimcv-0.png,2.0\n")
    assert "row 43 of labels.csv has another label further up" in fails("covid_fl", root)


def test_covid_lacks_a_class(mini_covid: Callable[..., Path]) -> None:
    root = mini_covid()
    path = root / "COVID-FL/labels.csv"
    path.write_text(path.read_text().replace(",2.0", ",1.0"))
    message = fails("covid_fl", root, strict=True)
    assert "no training image is of the class COVID-19" in message and "COVID-19 0" in message


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ([], "not downloaded yet"),
        (["COVID-FL/5_clients/", "COVID-FL/labels.csv"], "this is Retina"),
        (["COVID-FL/train.tar.gz"], "an archive that is not unpacked"),
        (
            ["COVID-FL/labels.csv", "COVID-FL/train/"],
            "no `test` and no `test.csv` and no `12_clients/split_real`",
        ),
    ],
)
def test_covid_is_something_else(tmp_path: Path, there: list[str], words: str) -> None:
    root = tmp_path / "data"
    for name in there:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).mkdir() if name.endswith("/") else (root / name).touch()
    message = fails("covid_fl", root)
    assert words in message and "1cuvoYvt-EVs5qtA5Xgos0yUJmfPhRbwg" in message


def test_covid_image_is_damaged(mini_covid: Callable[..., Path]) -> None:
    root = mini_covid()
    path = root / "COVID-FL/train/sirm x rays/sirm 1.png"
    path.write_bytes(b"")
    message = fails("covid_fl", root)
    assert message.startswith("COVID-FL: sirm 1.png cannot be decoded") and f"looked at: {path}\n" in message
    assert "expected:  COVID-FL/train/sirm x rays/sirm 1.png, an image" in message
    # Of 12 sites every third has three normal images, or two and one normal, or two and one pneumonia; 6 test images.
    # sirm is the twelfth: pneumonia, COVID-19, pneumonia.
    assert "42 images expected, 41 found; expected/found: COVID-19 6/5;" in message


def test_each_in_the_others_place(mini_retina: Callable[..., Path], mini_covid: Callable[..., Path]) -> None:
    root = mini_retina("COVID-FL")
    assert "this is Retina" in fails("covid_fl", root)
    shutil.rmtree(root)
    mini_covid("Retina")
    assert "labels 0.0 (normal), 1.0 (diseased)" in fails("retina", root)
