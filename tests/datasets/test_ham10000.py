"""HAM10000: accepted layouts, the test set's draw, and the mistakes people make with the files."""

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
from datasets.ham10000 import CLASSES, COUNTS, SOURCE_COUNTS, Ham10000Options, Row, ham10000, held_out

PAGE = "doi.org/10.7910/DVN/DBW86T"
LOOSE = {"strict": False, "held_out": 1, "size": 8}
HEADER = "lesion_id,image_id,dx,dx_type,age,sex,localization,dataset"
# Notes on the data sets, section 8: images of each class and of each archive.
PUBLISHED = {"nv": 6705, "mel": 1113, "bkl": 1099, "bcc": 514, "akiec": 327, "vasc": 142, "df": 115}
ARCHIVES = {"vidir_molemax": 3954, "vidir_modern": 3363, "rosendahl": 2259, "vienna_dias": 439}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def mini(tmp_path: Path) -> Callable[..., Path]:
    """Writes 4 images per class, of one colour each, over both part folders; the first two of class 0 share a lesion.

    Image ``n`` (0 to 27) has class ``n % 7``, archive ``n % 4`` and red value ``8 n``; its file ISIC_00243<06+n>.jpg.
    """

    def write(
        folder: str = "HAM10000",
        metadata: str = "HAM10000_metadata.csv",
        parts: tuple[str, ...] = ("HAM10000_images_part_1", "HAM10000_images_part_2"),
        dataset: bool = True,
        delimiter: str = ",",
        root: Path = tmp_path / "data",
    ) -> Path:
        top = root / folder
        lines = [HEADER if dataset else HEADER.removesuffix(",dataset")]
        for n in range(28):
            name, lesion = f"ISIC_{24306 + n:07}", f"HAM_{0 if n == 7 else n:07}"
            archive = tuple(ARCHIVES)[n % 4]
            row = [lesion, name, CLASSES[n % 7], "histo", "" if n == 3 else "80.0", "male", "scalp", archive]
            lines.append(",".join(row if dataset else row[:-1]))
            place = top / parts[n * len(parts) // 28]
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (24, 18), (8 * n, 0, 0)).save(place / f"{name}.jpg", quality=95)
        (top / metadata).write_text("\r\n".join(lines).replace(",", delimiter) + "\r\n")
        return root

    return write


def colours(split: Any) -> list[int]:
    """Which image is which, from its red value."""
    return [round(image[0].mean() / 8) for image in split.images]


# Layouts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"metadata": "HAM10000_metadata"},
        {"metadata": "HAM10000_metadata.tab", "delimiter": "\t"},
        {"parts": ("HAM10000_images",)},
        {"parts": (".",)},
        {"parts": ("HAM10000_images_part1", "HAM10000_images_part2")},
        {
            "parts": (
                "HAM10000_images_part_1/HAM10000_images_part_1",
                "HAM10000_images_part_2/HAM10000_images_part_2",
            )
        },
        {"parts": ("ham10000_images_part_1", "ham10000_images_part_2"), "folder": "dataverse_files"},
        {"folder": "HAM10000/HAM10000"},
        {"folder": "."},
    ],
)
def test_layouts(mini: Callable[..., Path], cache: Path, layout: dict[str, Any]) -> None:
    data = load("ham10000", LOOSE, mini(**layout), cache)
    assert data.classes == ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
    assert data.train.images.shape == (21, 3, 8, 8) and len(data.test) == 7
    assert sorted(colours(data.train) + colours(data.test)) == list(range(28))
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.labels, np.array(colours(split)) % 7)
        np.testing.assert_array_equal(split.sources, np.array(colours(split)) % 4)
    assert data.sources == ("vidir_molemax", "vidir_modern", "rosendahl", "vienna_dias")
    assert data.mean == (0.485, 0.456, 0.406) and data.std == (0.229, 0.224, 0.225)


def test_the_folder_itself_as_data_root(mini: Callable[..., Path], cache: Path) -> None:
    assert len(load("ham10000", LOOSE, mini() / "HAM10000", cache).train) == 21


def test_without_the_column_dataset_there_are_no_sources(mini: Callable[..., Path], cache: Path) -> None:
    data = load("ham10000", LOOSE, mini(dataset=False), cache)
    assert data.sources == () and data.train.sources is None and "no column `dataset`" in data.note


def test_junk_and_surplus_images_are_left_alone(mini: Callable[..., Path], cache: Path) -> None:
    root = mini()
    part = root / "HAM10000/HAM10000_images_part_1"
    for name in ("._ISIC_0024306.jpg", "Thumbs.db", "ATTRIBUTION.txt"):
        (part / name).write_bytes(b"junk")
    Image.new("RGB", (24, 18)).save(part / "ISIC_0034524.jpg")  # one of the challenge's test images
    (root / "HAM10000/__MACOSX").mkdir()
    assert len(load("ham10000", LOOSE, root, cache).train) == 21


def test_default_size_is_the_codes(mini: Callable[..., Path], cache: Path) -> None:
    """FedSDC's and FedDisco's code resize both sides to 56."""
    data = load("ham10000", {"strict": False, "held_out": 1}, mini(), cache)
    assert data.train.images.shape[1:] == (3, 56, 56)


# The test set --------------------------------------------------------------------------------------------------------


def published_rows() -> list[Row]:
    """10,015 rows with the published counts of classes; every third image shares the lesion of the one before it."""
    labels = [CLASSES.index(name) for name, number in PUBLISHED.items() for _ in range(number)]
    lesions, last = [], ("", -1)
    for n, label in enumerate(labels):
        if n % 3 != 2 or last[1] != label:
            last = (f"HAM_{n:07}", label)
        lesions.append(last[0])
    return [
        Row(f"ISIC_{24306 + n:07}", lesion, label, "")
        for n, (lesion, label) in enumerate(zip(lesions, labels, strict=True))
    ]


def test_published_numbers() -> None:
    assert COUNTS == PUBLISHED and sum(PUBLISHED.values()) == 10_015
    assert SOURCE_COUNTS == ARCHIVES and sum(ARCHIVES.values()) == 10_015


@pytest.mark.parametrize("by_lesion", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_thirty_of_each_class(by_lesion: bool, seed: int) -> None:
    """FedSDC: 30 of each class are the test set, which leaves 10,015 - 210 = 9,805."""
    rows = published_rows()
    test = held_out(rows, 30, by_lesion, seed)
    assert len(set(test)) == 210
    assert Counter(rows[k].label for k in test) == dict.fromkeys(range(7), 30)
    train = set(range(len(rows))) - set(test)
    assert len(train) == 9_805
    shared = {rows[k].lesion for k in test} & {rows[k].lesion for k in train}
    assert bool(shared) is not by_lesion


def test_the_draw_is_the_documented_one() -> None:
    """Class by class, the first 30 of a permutation by numpy's default generator, images sorted by id."""
    rows = published_rows()
    generator = np.random.default_rng(5)
    first = np.flatnonzero([row.label == 0 for row in rows])[generator.permutation(327)[:30]]
    second = np.flatnonzero([row.label == 1 for row in rows])[generator.permutation(514)[:30]]
    drawn = held_out(rows, 30, False, 5)
    assert set(first) | set(second) == {k for k in drawn if rows[k].label < 2}


def test_order_of_the_metadata_does_not_matter(mini: Callable[..., Path], tmp_path: Path) -> None:
    root = mini()
    before = ham10000(Ham10000Options(**LOOSE), root)
    path = root / "HAM10000/HAM10000_metadata.csv"
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *reversed(lines)]))
    after = ham10000(Ham10000Options(**LOOSE), root)
    assert before.test.paths == after.test.paths and before.train.paths == after.train.paths
    other = ham10000(Ham10000Options(**{**LOOSE, "split_seed": 1}), root)
    assert other.test.paths != before.test.paths


def test_too_few_images_for_the_test_set(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    message = refused("ham10000", mini(), {**LOOSE, "held_out": 4}, PAGE)
    assert (
        "7 of 7 classes have fewer than 5 images." in message and "lower dataset.options.held_out" in message
    )
    assert "at least 5 of each class expected, found: akiec 4, bcc 4, bkl 4, df 4," in message


def test_more_test_images_than_were_published(mini: Callable[..., Path], cache: Path) -> None:
    """df has 115: 114 for the test set are the most. It is no fault of the files."""
    with pytest.raises(DataError, match=r"held_out came as 115; .* Allowed: 1 to 114\. .*held_out=114"):
        load("ham10000", {**LOOSE, "held_out": 115}, mini(), cache)


def test_lesions_that_do_not_add_up() -> None:
    rows = [
        Row(f"{n:02}", f"lesion {n // 2}", n // 6, "") for n in range(42)
    ]  # three lesions of two per class
    with pytest.raises(DataError, match="whole lesions of class akiec add up to 2 images and not to 3"):
        held_out(rows, 3, True, 0)


# Mistakes ------------------------------------------------------------------------------------------------------------


def test_nothing_there(tmp_path: Path, refused: Callable[..., str]) -> None:
    message = refused("ham10000", tmp_path / "nowhere", {}, PAGE)
    assert "HAM10000_images_part_1/ISIC_*.jpg" in message and "does not exist" in message
    assert "HAM10000_images_part2.zip (5,015 images)" in message
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("HAM10000_images_part1.zip", "not unpacked"),
        ("dataverse_files.zip", "not unpacked"),
        ("hmnist_28_28_RGB.csv", "shrunken pixels"),
        ("ISIC_2019_Training_GroundTruth.csv", "this is ISIC2019"),
    ],
)
def test_likely_causes(tmp_path: Path, refused: Callable[..., str], name: str, cause: str) -> None:
    (tmp_path / "data/HAM10000").mkdir(parents=True)
    (tmp_path / "data/HAM10000" / name).touch()
    message = refused("ham10000", tmp_path / "data", {}, PAGE)
    assert cause in message and f"found:     {name} in" in message


def test_metadata_missing(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini()
    (root / "HAM10000/HAM10000_metadata.csv").unlink()
    message = refused("ham10000", root, LOOSE, PAGE)
    assert "there is no HAM10000_metadata" in message and "0 and 28 found" in message
    assert "HAM10000_images_part_1/, HAM10000_images_part_2/ in" in message


@pytest.mark.parametrize(("gone", "zipped"), [("2", "part2.zip (5,015"), ("1", "part1.zip (5,000")])
def test_a_part_is_missing(
    mini: Callable[..., Path], refused: Callable[..., str], gone: str, zipped: str
) -> None:
    root = mini()
    shutil.rmtree(root / f"HAM10000/HAM10000_images_part_{gone}")
    message = refused("ham10000", root, LOOSE, PAGE)
    assert "the metadata list 28 images, found are 14 of them" in message
    assert f"HAM10000_images_part_{gone} is missing" in message and zipped in message
    assert "28 images expected, 14 found" in message and "akiec 4/2" in message


def test_some_images_are_missing(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini(parts=("HAM10000_images",))
    (root / "HAM10000/HAM10000_images/ISIC_0024306.jpg").unlink()
    message = refused("ham10000", root, LOOSE, PAGE)
    assert (
        "missing are ISIC_0024306" in message and "cut-down or renamed" in message and "akiec 4/3" in message
    )


def test_metadata_of_isic2019(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini()
    (root / "HAM10000/HAM10000_metadata.csv").write_text(
        "image,age_approx,anatom_site_general,lesion_id,sex\nISIC_0000000,55,,,female\n"
    )
    message = refused("ham10000", root, LOOSE, PAGE)
    assert "has no column image_id, dx" in message and "is this the metadata of ISIC2019" in message
    assert "3 columns expected, 1 of them found" in message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (",mel,", ",melanoma,", "unknown dx melanoma"),
        (",rosendahl", ",queensland", "unknown dataset queensland"),
        ("ISIC_0024307", "ISIC_0024306", "lists ISIC_0024306 twice"),
    ],
)
def test_metadata_that_somebody_changed(
    mini: Callable[..., Path], refused: Callable[..., str], old: str, new: str, words: str
) -> None:
    root = mini()
    path = root / "HAM10000/HAM10000_metadata.csv"
    path.write_text(path.read_text().replace(old, new))
    assert words in refused("ham10000", root, LOOSE, PAGE)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04\xff\xfe", "is no text"),
        (f"{HEADER}\nHAM_0000000,ISIC_00".encode(), "is cut off in line 2"),
    ],
)
def test_damaged_metadata(
    mini: Callable[..., Path], refused: Callable[..., str], content: bytes, words: str
) -> None:
    root = mini()
    (root / "HAM10000/HAM10000_metadata.csv").write_bytes(content)
    assert words in refused("ham10000", root, LOOSE, PAGE)


def test_strict_wants_the_published_counts(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    message = refused("ham10000", mini(), {}, PAGE)
    assert "10,015 images expected, 28 found" in message and "df 115/4" in message
    assert "vidir_molemax 3,954/7" in message and "strict: false" in message


def test_strict_wants_the_published_pixels(
    mini: Callable[..., Path], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.ham10000.COUNTS", dict.fromkeys(CLASSES, 4))
    monkeypatch.setattr("datasets.ham10000.SOURCE_COUNTS", dict.fromkeys(ARCHIVES, 7))
    message = refused("ham10000", mini(), {"held_out": 1}, PAGE)
    assert "ISIC_0024306.jpg has 24 x 18 pixels, the originals 600 x 450." in message and "resized" in message
    assert "28 images of 600 x 450 pixels expected and found" in message


def test_two_versions_of_an_image(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini(parts=("HAM10000_images",))
    copy = root / "HAM10000/HAM10000_images_small"
    copy.mkdir()
    Image.new("RGB", (9, 9)).save(copy / "ISIC_0024306.jpg")
    message = refused("ham10000", root, LOOSE, PAGE)
    both = "HAM10000/HAM10000_images/ISIC_0024306.jpg", "HAM10000/HAM10000_images_small/ISIC_0024306.jpg"
    assert f"{both[0]} and {both[1]} have the same name and different sizes." in message
    assert f"looked at: {root / both[1]}\n" in message and "a resized or damaged copy" in message
    assert "1 version of ISIC_0024306 expected, 2 found" in message
    sizes = [(root / name).stat().st_size for name in both]
    assert f"found:     {sizes[0]} and {sizes[1]} bytes\n" in message


def test_the_same_image_twice_is_one(mini: Callable[..., Path], cache: Path) -> None:
    """A copy on Kaggle holds both part folders twice."""
    root = mini(parts=("HAM10000_images",))
    shutil.copytree(root / "HAM10000/HAM10000_images", root / "HAM10000/HAM10000_images_again")
    assert len(load("ham10000", LOOSE, root, cache).train) == 21


def test_an_image_that_is_none(mini: Callable[..., Path], refused: Callable[..., str]) -> None:
    root = mini()
    path = root / "HAM10000/HAM10000_images_part_1/ISIC_0024306.jpg"
    path.write_bytes(b"")
    message = refused("ham10000", root, LOOSE, PAGE, decoding=True)
    assert "ISIC_0024306.jpg cannot be decoded" in message and f"looked at: {path}\n" in message
    assert "28 images expected, 27 found; expected/found: akiec 4/3;" in message
