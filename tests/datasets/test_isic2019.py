"""Fed-ISIC2019: FLamby's fold, centres and colours, accepted layouts, and the mistakes people make with the files."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from datasets.core.base import DataError
from datasets.core.prepare import load
from datasets.isic2019 import (
    TEST,
    TRAIN,
    Dermoscopy,
    Isic2019Options,
    fifths,
    isic2019,
    shades_of_gray,
)
from partitions import Population, make

PAGE = "challenge.isic-archive.com"
LOOSE = {"strict": False, "size": 8}
OWN = {**LOOSE, "fold": "own"}
ONE_HOT = "MEL,NV,BCC,AK,BKL,DF,VASC,SCC,UNK"
PREFIXES = ("BCN_", "HAM_", "HAM_", "HAM_", "MSK4", "HAM_")
ARCHIVES = {1: "vidir_molemax", 2: "vidir_modern", 3: "rosendahl", 5: "vienna_dias"}
SIZES = ((24, 24), (24, 18), (14, 20))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def name_of(n: int) -> str:
    """Image n of the miniature; centre 4's names end in _downsampled but for the first, which is one of three such."""
    if n == 12:
        return "ISIC_0012998"
    return f"ISIC_{n:07}" + "_downsampled" * (n // 3 == 4)


def label_of(n: int) -> int:
    return n % 8


@pytest.fixture
def mini(tmp_path: Path) -> Callable[..., Path]:
    """Writes 3 images for each of 6 centres (n // 3), of three sizes and of grey 10 n, and one without a lesion.

    The last of each centre is test. HAM10000's metadata lie beside the rest.
    """

    def write(
        folder: str = "ISIC2019",
        images: str = "ISIC_2019_Training_Input",
        split: str | None = "train_test_split",
    ) -> Path:
        top = tmp_path / "data" / folder
        (top / images).mkdir(parents=True)
        truth, split_rows = [f"image,{ONE_HOT}"], [f"image,{ONE_HOT},target,center,fold,fold2"]
        metadata, ham = (
            ["image,age_approx,anatom_site_general,lesion_id,sex"],
            ["lesion_id,image_id,dx,dataset"],
        )
        for n in range(19):
            name, centre = name_of(n), n // 3
            one_hot = ",".join("1.0" if k == label_of(n) else "0.0" for k in range(9))
            truth.append(f"{name},{one_hot}")
            lesion = f"{PREFIXES[centre]}{n:07}" if n < 18 else ""
            metadata.append(f"{name},55.0,anterior torso,{lesion},female")
            fold = "test" if n % 3 == 2 else "train"
            if n < 18:
                split_rows.append(f"{name},{one_hot},{label_of(n)},{centre},{fold},{fold}_{centre}")
            if centre in ARCHIVES:
                ham.append(f"{lesion},{name},nv,{ARCHIVES[centre]}")
            Image.new("RGB", SIZES[n % 3], (10 * n,) * 3).save(top / images / f"{name}.jpg", quality=95)
        (top / "ISIC_2019_Training_GroundTruth.csv").write_text("\n".join(truth) + "\n")
        (top / "ISIC_2019_Training_Metadata.csv").write_text("\n".join(metadata) + "\n")
        (top / "HAM10000_metadata").write_text("\n".join(ham) + "\n")
        if split:
            (top / split).write_text("\n".join(split_rows) + "\n")
        return tmp_path / "data"

    return write


def numbers(split: Any) -> list[int]:
    """Which image is which, from its grey value."""
    return [round(image.mean() / 10) for image in split.images]


# The fold and the centres --------------------------------------------------------------------------------------------


def test_published_counts() -> None:
    """FLamby, table of Fed-ISIC2019: 9930/2483, 3163/791, 2691/672, 1807/452, 655/164, 351/88; 23,247 in all."""
    assert [sum(row) for row in TRAIN] == [9930, 3163, 2691, 1807, 655, 351]
    assert [sum(row) for row in TEST] == [2483, 791, 672, 452, 164, 88]
    train, test = np.array(TRAIN), np.array(TEST)
    assert train.sum() == 18_597 and test.sum() == 4_650
    # FLamby's loss weighs each class by N / n_c over the training set.
    weights = [5.5813, 2.0472, 7.0204, 26.1194, 9.5369, 101.0707, 92.5224, 38.3443]
    np.testing.assert_allclose(train.sum() / train.sum(0), weights, atol=5e-5)


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"split": "train_test_split.csv"},
        {"split": "fed_isic2019_train_test_split.csv"},
        {"images": "ISIC_2019_Training_Input/ISIC_2019_Training_Input"},
        {"folder": "isic2019/isic2019"},
        {"folder": "fed_isic2019"},
        {"folder": "."},
    ],
)
def test_layouts(mini: Callable[..., Path], cache: Path, layout: dict[str, Any]) -> None:
    data = load("isic2019", LOOSE, mini(**layout), cache)
    assert data.classes == ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
    assert data.sources == ("bcn", "vidir_molemax", "vidir_modern", "rosendahl", "msk", "vienna_dias")
    assert data.train.images.shape == (12, 3, 8, 8)
    assert sorted(numbers(data.test)) == [2, 5, 8, 11, 14, 17]
    assert sorted(numbers(data.train)) == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16]
    for split in (data.train, data.test):
        assert list(split.labels) == [label_of(n) for n in numbers(split)]
        assert list(split.sources) == [n // 3 for n in numbers(split)]
    assert "ours" not in data.note


def test_the_split_in_the_data_root(mini: Callable[..., Path], cache: Path) -> None:
    root = mini()
    (root / "ISIC2019/train_test_split").rename(root / "train_test_split.csv")
    assert len(load("isic2019", LOOSE, root, cache).train) == 12


def test_surplus_images_and_missing_lists_do_no_harm(mini: Callable[..., Path], cache: Path) -> None:
    """FLamby's fold needs neither the metadata nor the ground truth; it lists fewer images than there are."""
    root = mini()
    for name in (
        "ISIC_2019_Training_GroundTruth.csv",
        "ISIC_2019_Training_Metadata.csv",
        "HAM10000_metadata",
    ):
        (root / "ISIC2019" / name).unlink()
    images = root / "ISIC2019/ISIC_2019_Training_Input"
    for name in ("ATTRIBUTION.txt", "LICENSE.txt", "._ISIC_0000001.jpg"):
        (images / name).write_bytes(b"junk")
    assert len(list(images.glob("ISIC*.jpg"))) == 19
    data = load("isic2019", LOOSE, root, cache)
    assert len(data.train) + len(data.test) == 18


def test_six_centres_are_six_clients(mini: Callable[..., Path], cache: Path) -> None:
    data = load("isic2019", LOOSE, mini(), cache)
    population = Population(
        data.train.labels, 8, sources=data.train.sources, num_sources=6, source_names=data.sources
    )
    clients = make("natural", {}).split(population, np.random.default_rng(0))
    assert [sorted(numbers(data.train.subset(client))) for client in clients] == [
        [0, 1],
        [3, 4],
        [6, 7],
        [9, 10],
        [12, 13],
        [15, 16],
    ]


def test_own_fold(mini: Callable[..., Path], cache: Path) -> None:
    """The same centres; the fifth part of 18 images is 4 (3.6 rounded up), one from each of the first four centres."""
    data = load("isic2019", OWN, mini(split=None), cache)
    assert "the fold is ours (seed 0), not FLamby's" in data.note
    assert sorted(numbers(data.train) + numbers(data.test)) == list(range(18))  # not the one without a lesion
    for split in (data.train, data.test):
        assert list(split.sources) == [n // 3 for n in numbers(split)]
        assert list(split.labels) == [label_of(n) for n in numbers(split)]
    assert Counter(data.test.sources.tolist()) == {0: 1, 1: 1, 2: 1, 3: 1}
    seeds = {
        tuple(isic2019(Isic2019Options(**OWN, fold_seed=seed), cache.parent / "data").test.paths)
        for seed in range(6)
    }
    assert len(seeds) > 1


def test_own_fold_has_flambys_sizes() -> None:
    """Images of the centres, and FLamby's test sets."""
    assert fifths([12413, 3954, 3363, 2259, 819, 439]) == [2483, 791, 672, 452, 164, 88]


def test_own_fold_finds_ham10000_beside(mini: Callable[..., Path], cache: Path) -> None:
    root = mini(split=None)
    (root / "HAM10000").mkdir()
    (root / "ISIC2019/HAM10000_metadata").rename(root / "HAM10000/HAM10000_metadata.csv")
    assert len(load("isic2019", OWN, root, cache).test) == 4


# Pixels --------------------------------------------------------------------------------------------------------------


def test_shades_of_gray_by_hand() -> None:
    """Light (100, 100, 50) of length 150 has the direction (2, 2, 1)/3: gains sqrt(3)/2, sqrt(3)/2, sqrt(3)."""
    image = np.empty((5, 4, 3), dtype=np.uint8)
    image[:] = (100, 100, 50)
    np.testing.assert_array_equal(shades_of_gray(image), np.full((5, 4, 3), 86))  # 86.60, cut off


def test_what_is_too_bright_is_clipped() -> None:
    """One of 64 blue values is 200: the mean of sixth powers has the root 200/2. 200 sqrt(3) = 346 would wrap to 90."""
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    image[..., :2] = 200
    image[3, 4, 2] = 200
    found = shades_of_gray(image)
    np.testing.assert_array_equal(found[3, 4], [173, 173, 255])
    np.testing.assert_array_equal(found[0, 0], [173, 173, 0])


@pytest.mark.parametrize("grey", [0, 1, 77, 255])
def test_grey_stays_as_it_is(grey: int) -> None:
    image = np.full((4, 4, 3), grey, dtype=np.uint8)
    np.testing.assert_array_equal(shades_of_gray(image), image)


def test_a_black_channel_stays_black() -> None:
    """Light (100, 0, 0) has the direction (1, 0, 0): red gains 1/sqrt(3), 57.7."""
    image = np.zeros((4, 4, 3), dtype=np.uint8)
    image[..., 0] = 100
    assert shades_of_gray(image)[0, 0].tolist() == [57, 0, 0]


def test_colours_are_of_the_whole_image_and_then_the_centre_is_cut_out(tmp_path: Path) -> None:
    """24 x 8 with blue outer thirds: they are cut off, but their blue counts in the light.

    Red is 90 in the middle third; blue is 90 in two thirds. Sixth powers: 90^6/3 and 2 * 90^6/3, so that the light has
    the direction (1, 0, 2^(1/6)), and red gains sqrt(1 + 2^(1/3)) / sqrt(3) = 0.8679: 78.1.
    """
    pixels = np.zeros((8, 24, 3), dtype=np.uint8)
    pixels[:, 8:16, 0] = 90
    pixels[:, :8, 2] = pixels[:, 16:, 2] = 90
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(Dermoscopy(8, True)(tmp_path / "a.png")[:, 4, 4], [78, 0, 0])
    np.testing.assert_array_equal(
        Dermoscopy(8, False)(tmp_path / "a.png"), pixels[:, 8:16].transpose(2, 0, 1)
    )


def test_the_shorter_side_counts(tmp_path: Path) -> None:
    """24 x 16 to 12 x 8, bilinear, and the middle 8 columns of it."""
    pixels = (
        np.random.default_rng(0).integers(0, 256, (16, 24, 1), dtype=np.uint8).repeat(3, 2)
    )  # grey: no gain
    Image.fromarray(pixels).save(tmp_path / "a.png")
    whole = np.asarray(Image.fromarray(pixels).resize((12, 8), Image.Resampling.BILINEAR))
    for constancy in (True, False):
        found = Dermoscopy(8, constancy)(tmp_path / "a.png")
        np.testing.assert_array_equal(found, whole[:, 2:10].transpose(2, 0, 1))


# Mistakes ------------------------------------------------------------------------------------------------------------


def test_nothing_there(tmp_path: Path, refused: Callable[..., str]) -> None:
    for options in ({}, {"fold": "own"}):
        message = refused("isic2019", tmp_path / "nowhere", options, PAGE)
        assert "does not exist" in message and "about 9 GB" in message
        assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("ISIC_2019_Training_Input.zip", "the archive is not unpacked"),
        ("ISIC_2019_Test_Input", "the challenge's test images; the training images are needed"),
        ("HAM10000_images_part_1", "this is HAM10000 alone, not ISIC2019"),
    ],
)
def test_likely_causes(tmp_path: Path, refused: Callable[..., str], name: str, cause: str) -> None:
    """The list of images is FLamby's own, so its lack has another cause; the ground truth comes with the images."""
    (tmp_path / "data/ISIC2019").mkdir(parents=True)
    (tmp_path / "data/ISIC2019" / name).touch()
    message = refused("isic2019", tmp_path / "data", OWN, PAGE)
    assert cause in message and f"found:     {name} in" in message


def test_without_the_split_the_message_says_where_it_is(
    mini: Callable[..., Path], refused: Callable[..., str]
) -> None:
    message = refused("isic2019", mini(split=None), LOOSE, PAGE)
    assert "dataset_creation_scripts/train_test_split" in message and "dataset.options.fold=own" in message
    assert "23,247 rows expected, 0 found" in message


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("ISIC_2019_Training_GroundTruth.csv", OWN, "GroundTruth.csv is not beside the folder of images"),
        ("ISIC_2019_Training_Metadata.csv", OWN, "Metadata.csv is not beside the folder of images"),
    ],
)
def test_lists_that_are_not_there(
    mini: Callable[..., Path], refused: Callable[..., str], name: str, options: dict[str, Any], words: str
) -> None:
    root = mini()
    (root / "ISIC2019" / name).unlink()
    message = refused("isic2019", root, options, PAGE)
    assert words in message and "25,331 rows" in message


def test_ham10000_metadata_missing_or_old(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini()
    path = root / "ISIC2019/HAM10000_metadata"
    lines = [line.rpartition(",")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines))
    assert "the column `dataset` came later" in refused("isic2019", root, OWN, PAGE)
    path.unlink()
    message = refused("isic2019", root, OWN, "doi.org/10.7910/DVN/DBW86T")
    assert "need HAM10000_metadata, which is not there" in message


@pytest.mark.parametrize("options", [LOOSE, OWN])
def test_renamed_copy(
    mini: Callable[..., Path], refused: Callable[..., str], options: dict[str, Any]
) -> None:
    root = mini()
    for path in (root / "ISIC2019/ISIC_2019_Training_Input").glob("*_downsampled.jpg"):
        path.rename(path.with_name(path.name.replace("_downsampled", "")))
    message = refused("isic2019", root, options, PAGE)
    assert "the list has 18 names, 2 of them have no file (2 of these end in _downsampled)" in message
    assert "a renamed copy" in message and "msk 3/1" in message and "18 images expected, 16 found" in message


def test_images_missing(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini()
    images = root / "ISIC2019/ISIC_2019_Training_Input"
    (images / "ISIC_0000001.jpg").unlink()
    message = refused("isic2019", root, LOOSE, PAGE)
    assert "1 of them have no file" in message and "bcn 3/2" in message and "cut-down copy" in message
    shutil.rmtree(images)
    (root / "ISIC2019/ISIC_2019_Training_Input.zip").touch()
    message = refused("isic2019", root, LOOSE, PAGE)
    assert "not unpacked" in message and "bcn 3/0" in message


def test_flambys_shrunken_images_alone(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini(images="ISIC_2019_Training_Input_preprocessed")
    message = refused("isic2019", root, LOOSE, PAGE)
    assert "FLamby's shrunken JPEG files; the original images are needed" in message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0,0,train,train_0", "0,6,train,train_6", "the row of ISIC_0000000 does not fit together"),
        ("0,0,train,train_0", "1,0,train,train_0", "the row of ISIC_0000000 does not fit together"),
        ("0,0,train,train_0", "0,0,train,train_1", "the row of ISIC_0000000 does not fit together"),
        ("0,0,train,train_0", "0,0,valid,valid_0", "the row of ISIC_0000000 does not fit together"),
        ("0,0,train,train_0", "zero,0,train,train_0", "the row of ISIC_0000000 does not fit together"),
        ("ISIC_0000002", "ISIC_0000001", "ISIC_0000001 stands there twice"),
        (",center,", ",centre,", "train_test_split has no column center"),
    ],
)
def test_a_split_that_somebody_changed(
    mini: Callable[..., Path], refused: Callable[..., str], old: str, new: str, words: str
) -> None:
    root = mini()
    path = root / "ISIC2019/train_test_split"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert words in refused("isic2019", root, LOOSE, PAGE)


def test_split_and_ground_truth_disagree(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini()
    path = root / "ISIC2019/ISIC_2019_Training_GroundTruth.csv"
    text = path.read_text()
    path.write_text(text.replace("ISIC_0000000,1.0,0.0", "ISIC_0000000,0.0,1.0"))
    message = refused("isic2019", root, LOOSE, PAGE)
    assert "ISIC_0000000 has the class MEL here and NV in" in message
    path.write_text(text.replace("ISIC_0000000,1.0", "ISIC_0000000,0.0"))
    assert "ISIC_0000000 has not one class" in refused("isic2019", root, LOOSE, PAGE)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("BCN_0000000", "XYZ_0000000", "the centre of ISIC_0000000 (lesion XYZ_0000000) is not known"),
        ("ISIC_0000000,", "ISIC_0000099,", "GroundTruth.csv does not have ISIC_0000099"),
        ("lesion_id", "lesion", "has no column lesion_id"),
    ],
)
def test_metadata_that_do_not_fit(
    mini: Callable[..., Path], refused: Callable[..., str], old: str, new: str, words: str
) -> None:
    root = mini()
    path = root / "ISIC2019/ISIC_2019_Training_Metadata.csv"
    path.write_text(path.read_text().replace(old, new))
    assert words in refused("isic2019", root, OWN, PAGE)


def test_ground_truth_of_2018(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini()
    path = root / "ISIC2019/ISIC_2019_Training_GroundTruth.csv"
    path.write_text("image,MEL,NV,BCC,AKIEC,BKL,DF,VASC\nISIC_0000000,1,0,0,0,0,0,0\n")
    message = refused("isic2019", root, OWN, PAGE)
    assert "has no column AK, SCC" in message and "another year" in message


@pytest.mark.parametrize("options", [{}, {"fold": "own"}])
def test_strict_wants_flambys_counts(
    mini: Callable[..., Path], refused: Callable[..., str], options: dict[str, Any]
) -> None:
    message = refused("isic2019", mini(), options, PAGE)
    assert "18 images whose lesion is known, where 23,247 are published" in message
    assert ("bcn test MEL 578/0" if not options else "bcn test 2,483/1") in message
    assert "strict: false" in message


def test_strict_takes_flambys_counts(mini: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the miniature's counts in the place of the published ones the same tree is right, and they are handed on."""
    root = mini()
    tables = [[[0] * 8 for _ in range(6)] for _ in range(2)]
    for n in range(18):
        tables[n % 3 == 2][n // 3][label_of(n)] += 1
    monkeypatch.setattr("datasets.isic2019.TRAIN", tables[0])
    monkeypatch.setattr("datasets.isic2019.TEST", tables[1])
    with pytest.raises(
        DataError, match=r"ISIC_0000000\.jpg has 24 x 24 pixels, the originals 1,024 on the shorter"
    ):
        isic2019(Isic2019Options(), root)
    # The first images of the six centres are 24 x 24, of msk (not looked at) as of all others.
    sides = {"bcn": 24, "vidir_molemax": 24, "vidir_modern": 24, "rosendahl": 24, "vienna_dias": 25}
    monkeypatch.setattr("datasets.isic2019.SHORTER_SIDE", sides)
    with pytest.raises(
        DataError, match=r"ISIC_0000015\.jpg has 24 x 24 pixels, .* 25 on the shorter side \(centre vi"
    ):
        isic2019(Isic2019Options(), root)
    sides["vienna_dias"] = 24
    data = isic2019(Isic2019Options(), root)
    assert data.shape == (3, 224, 224) and len(data.expected) == 2 * 6 * 8
    assert ("test", "BCC", "bcn", 1) in data.expected and ("train", "BCC", "bcn", 0) in data.expected


def test_an_image_that_is_none(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini()
    path = root / "ISIC2019/ISIC_2019_Training_Input/ISIC_0000004.jpg"
    path.write_bytes(path.read_bytes()[:200])
    message = refused("isic2019", root, LOOSE, PAGE, decoding=True)
    assert "ISIC_0000004.jpg cannot be decoded" in message and f"looked at: {path}\n" in message
    # 18 images with the classes n % 8: BKL (4) are 4 and 12.
    assert "18 images expected, 17 found; expected/found: BKL 2/1;" in message


def test_two_versions_of_an_image(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini()
    images = root / "ISIC2019/ISIC_2019_Training_Input"
    (images / images.name).mkdir()
    Image.new("RGB", (9, 9)).save(images / images.name / "ISIC_0000004.jpg")
    message = refused("isic2019", root, LOOSE, PAGE)
    assert "have the same name and different sizes" in message and "1 version of ISIC_0000004" in message


@pytest.mark.parametrize(("fold", "counts"), [("train", "test 4,650/0"), ("test", "train 18,597/0")])
def test_a_split_without_one_of_its_parts(
    mini: Callable[..., Path], refused: Callable[..., str], fold: str, counts: str
) -> None:
    root = mini()
    path = root / "ISIC2019/train_test_split"
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *(row for row in rows if f",{fold}," in row)]) + "\n")
    message = refused("isic2019", root, LOOSE, PAGE)
    assert f"no image of the {'test' if fold == 'train' else 'train'} set" in message and counts in message


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("ISIC_2019_Training_GroundTruth.csv", "ISIC_0000000,0,1,0,0,0,0,0,0,0", "with two classes"),
        (
            "ISIC_2019_Training_Metadata.csv",
            "ISIC_0000000,55.0,anterior torso,BCN_9,female",
            "has two lesions",
        ),
    ],
)
def test_an_image_twice_in_a_list(
    mini: Callable[..., Path], refused: Callable[..., str], name: str, row: str, words: str
) -> None:
    root = mini()
    with open(root / "ISIC2019" / name, "a") as stream:
        stream.write(row + "\n")
    message = refused("isic2019", root, OWN, PAGE)
    assert "ISIC_0000000" in message and words in message
