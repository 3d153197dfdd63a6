"""WaterBirds: both layouts, the split that runs use, and every mistake with the files (notes, section 12)."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from datasets.core.prepare import check, load
from datasets.core.registry import get, parse
from datasets.waterbirds import PUBLISHED
from partitions import Population, make

DRO, WILDS = "waterbird_complete95_forest2water2", "waterbirds_v1.0"
SPECIES = ("001.Black_footed_Albatross", "073.Blue_Jay", "105.Whip_poor_Will")
HEADER = ("img_id", "img_filename", "y", "split", "place", "place_filename")
LOOSE = {"strict": False}
CONF = Path(__file__).parents[2] / "conf"


def rows_of_miniature() -> list[list[str]]:
    """24 rows: 3 splits x 4 groups x 2 images, split by split as no rule of ours would sort them."""
    cells = [(split, y, place) for split in (2, 0, 1) for y in (1, 0) for place in (0, 1) for _ in range(2)]
    return [
        [
            str(n),
            f"{SPECIES[n % 3]}/Bird_{n:04}_79.jpg",
            str(y),
            str(split),
            str(place),
            f"/f/forest/{n:08}.jpg",
        ]
        for n, (split, y, place) in enumerate(cells, 1)
    ]


def write_list(folder: Path, rows: list[list[str]], header: tuple[str, ...] = HEADER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "metadata.csv", "w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


@pytest.fixture
def mini(tmp_path: Path) -> Callable[..., Path]:
    """Writes the tree and returns the data root; the red channel of image n is 10 n, JPEG of 20 x 16 and 16 x 24."""

    def write(folder: str = DRO) -> Path:
        place = tmp_path / "data" / folder
        rows = rows_of_miniature()
        write_list(place, rows)
        for number, name, *_ in rows:
            n = int(number)
            (place / name).parent.mkdir(exist_ok=True)
            Image.new("RGB", (20, 16) if n % 2 else (16, 24), (10 * n, 80, 160)).save(
                place / name, quality=95
            )
        # Left behind by archivers and desktops, and by the other copy.
        (place / "._metadata.csv").touch()
        (place / SPECIES[0] / "Thumbs.db").touch()
        (place / "RELEASE_v1.0.txt").touch()
        return tmp_path / "data"

    return write


@pytest.mark.parametrize(
    "folder",
    [
        DRO,
        WILDS,
        f"{DRO}/{DRO}",
        f"{WILDS}/{WILDS}",
        "waterbirds",
        f"waterbirds/{DRO}",
        f"waterbirds/{WILDS}",
        ".",
    ],
)
def test_layouts(mini: Callable[..., Path], tmp_path: Path, folder: str) -> None:
    data = load("waterbirds", LOOSE, mini(folder), tmp_path / "cache")
    assert data.classes == ("land bird", "water bird") and data.attributes == ("land", "water")
    assert (data.mean, data.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    # Rows 1 to 8 of the list are the test split, 9 to 16 the training split, 17 to 24 validation.
    for split, first in ((data.test, 1), (data.train, 9)):
        assert split.images.shape == (8, 3, 256, 256)
        np.testing.assert_array_equal(split.labels, [1, 1, 1, 1, 0, 0, 0, 0])
        np.testing.assert_array_equal(split.attributes, [0, 0, 1, 1, 0, 0, 1, 1])
        # JPEG of one colour: the order of the list, within the coding's error of a few grey values
        red = split.images[:, 0].astype(float).mean(axis=(1, 2))
        np.testing.assert_allclose(red, 10.0 * np.arange(first, first + 8), atol=3)


def test_the_whole_image_is_squashed(mini: Callable[..., Path], tmp_path: Path) -> None:
    """A 40 x 10 image whose left half is black: in 16 x 16 the left half still is, and nothing is cut off."""
    root = mini()
    wide = np.zeros((10, 40, 3), np.uint8)
    wide[:, 20:] = 255
    Image.fromarray(wide).save(root / DRO / rows_of_miniature()[8][1], quality=100)
    image = load("waterbirds", {**LOOSE, "size": 16}, root, tmp_path / "cache").train.images[0]
    assert image.shape == (3, 16, 16) and image[:, :, :7].max() < 10 and image[:, :, 9:].min() > 245


def test_counts_against_the_published_ones(mini: Callable[..., Path], tmp_path: Path) -> None:
    root = mini()
    load("waterbirds", LOOSE, root, tmp_path / "cache")
    report = check("waterbirds", LOOSE, root, tmp_path / "cache")
    assert report.ok and sum(count.images for count in report.counts) == 16
    published = {item[:3]: item[3] for item in report.expected}
    assert published == {
        ("train", "land bird", "land"): 3498,
        ("train", "land bird", "water"): 184,
        ("train", "water bird", "land"): 56,
        ("train", "water bird", "water"): 1057,
        ("test", "land bird", "land"): 2255,
        ("test", "land bird", "water"): 2255,
        ("test", "water bird", "land"): 642,
        ("test", "water bird", "water"): 642,
    }
    totals = {
        part: sum(n for (split, *_), n in published.items() if split == part) for part in ("train", "test")
    }
    assert totals == {"train": 4795, "test": 5794}


def test_the_published_list_is_accepted(tmp_path: Path) -> None:
    """A full list of 11,788 rows with the published cells, its images empty files: listed, not decoded."""
    folder = tmp_path / DRO
    (folder / SPECIES[0]).mkdir(parents=True)
    rows: list[list[str]] = []
    for split, part in enumerate(("train", "val", "test")):
        for y in (0, 1):
            for place in (0, 1):
                for _ in range(PUBLISHED[part][y][place]):
                    n = len(rows) + 1
                    rows.append([str(n), f"{SPECIES[0]}/{n}.jpg", str(y), str(split), str(place), "x"])
                    (folder / SPECIES[0] / f"{n}.jpg").touch()
    assert len(rows) == 11_788
    write_list(folder, rows)
    entry = get("waterbirds")
    listed = entry.builder(parse(entry, None), tmp_path)
    assert (len(listed.train), len(listed.test), listed.shape) == (4795, 5794, (3, 256, 256))
    # The training cells are exactly what the 30 clients of FedDiverse are made of.
    people = Population(
        np.asarray(listed.train.labels), 2, np.asarray(listed.train.attributes), 2,
        class_names=listed.classes, attribute_names=listed.attributes,
    )  # fmt: skip
    clients = make("interaction", {"distribution": "waterbirds_dist"}).split(people, np.random.default_rng(0))
    assert len(clients) == 30
    np.testing.assert_array_equal(np.sort(np.concatenate(clients)), np.arange(4795))


def test_the_stand_in_has_the_same_rows_and_columns() -> None:
    standin = yaml.safe_load((CONF / "dataset/digits_waterbirds.yaml").read_text())["options"]
    assert standin["class_names"] == ["land bird", "water bird"] and standin["attributes"] == [
        "land",
        "water",
    ]


# Mistakes --------------------------------------------------------------------------------------------------


def test_nothing_there(refused: Callable[..., str], tmp_path: Path) -> None:
    message = refused("waterbirds", tmp_path / "nowhere")
    assert f"looked at: {tmp_path}/nowhere/{DRO}" in message and "nowhere does not exist" in message
    assert f"{DRO}/metadata.csv" in message and "11,788 images" in message and "tar.gz" in message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CUB_200_2011/", "CUB_200_2011 found, not WaterBirds"),
        ("waterbird_complete95_forest2water2.tar.gz", "not unpacked"),
        ("waterbirds/metadata_waterbirds.csv", "SubpopBench's own list"),
        (f"{DRO}/001.Black_footed_Albatross/", "without the list of the archive"),
        (f"{DRO}/deeper/metadata.csv", "the files lie deeper"),
    ],
)
def test_likely_causes(refused: Callable[..., str], tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / "data" / name
    if name.endswith("/"):
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True)
        path.touch()
    message = refused("waterbirds", tmp_path / "data")
    assert words in message.split("cause:")[1].split("get it:")[0]
    assert (
        name.rstrip("/").split("/")[-2 if "deeper" in name else -1]
        in message.split("found:")[1].split("cause:")[0]
    )


def test_five_names_are_listed(refused: Callable[..., str], tmp_path: Path) -> None:
    for k in range(8):
        (tmp_path / "data" / f"photo{k}").mkdir(parents=True)
    assert "photo0/, photo1/, photo2/, photo3/, photo4/ and 3 more in" in refused(
        "waterbirds", tmp_path / "data"
    )


def test_images_are_missing(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    root = mini()
    names = [row[1] for row in rows_of_miniature()]
    (root / DRO / names[9]).unlink()  # row 10 of the list: train, water bird on land
    (root / DRO / names[2]).rename(
        (root / DRO / names[2]).with_suffix(".png")
    )  # row 3: test, water bird on water
    (root / DRO / names[20]).unlink()  # validation: not used, so not missed
    message = refused("waterbirds", root)
    assert f"metadata.csv has 24 rows, missing 2 images, first: {names[2]}" in message
    assert "train [[3498, 184], [56, 1057]] expected, [[2, 2], [2, 2]] listed" in message
    assert "train [[0, 0], [1, 0]], test [[0, 0], [0, 1]]" in message


def test_a_cut_down_copy_needs_strict_off(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    message = refused("waterbirds", mini(), {"strict": True})
    assert "generated anew from CUB and Places" in message and "strict: false" in message
    assert "metadata.csv with 24 rows" in message and "metadata.csv with 11,788 rows" in message
    assert "test [[2255, 2255], [642, 642]] expected, [[2, 2], [2, 2]] listed" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [[*row[:2], "2", *row[3:]] for row in rows], "24 values other than 0, 1"),
        (lambda rows: [[*row[:3], "train", *row[4:]] for row in rows], "'train' in column split"),
        (
            lambda rows: [[*rows[0][:4], "", rows[0][5]], *rows[1:]],
            "column place of metadata.csv has 1 values",
        ),
        (lambda rows: [*rows, rows[3]], "1 images are listed twice"),
        (lambda rows: [row for row in rows if row[3] != "0"], "no image of the train split"),
        (lambda rows: [], "no image of the train and the test split"),
    ],
)
def test_a_list_that_contradicts_itself(
    refused: Callable[..., str],
    mini: Callable[..., Path],
    change: Callable[[list[list[str]]], list[list[str]]],
    words: str,
) -> None:
    root = mini()
    write_list(root / DRO, change(rows_of_miniature()))
    message = refused("waterbirds", root)
    assert words in message and f"looked at: {root / DRO}/metadata.csv" in message


def test_an_image_that_is_none(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    """Row 10 of the list is a water bird on land; of each class 8 images are for training or testing."""
    root = mini()
    path = root / DRO / rows_of_miniature()[9][1]
    path.write_bytes(b"<!DOCTYPE html>")
    message = refused("waterbirds", root, decoding=True)
    assert (
        message.startswith(f"WaterBirds: {path.name} cannot be decoded") and f"looked at: {path}\n" in message
    )
    assert "a web page saved under this name" in message
    assert "16 images expected, 15 found; expected/found: water bird 8/7;" in message


def test_a_list_of_another_kind(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    root = mini()
    write_list(root / DRO, [["1", "a.jpg"]], ("image_id", "file"))
    message = refused("waterbirds", root)
    assert "the columns image_id, file, without img_filename, y, split, place" in message
    for content in (b"", b"\xff\xfe\x00\x01", b'a,b\n"1,2\n'):
        (root / DRO / "metadata.csv").write_bytes(content)
        assert "metadata.csv" in refused("waterbirds", root).split("found:")[1].split("cause:")[0]


def test_numbers_with_a_decimal_point_and_a_byte_order_mark(
    mini: Callable[..., Path], tmp_path: Path
) -> None:
    root = mini()
    rows = [[*row[:2], *(f"{value}.0" for value in row[2:5]), row[5]] for row in rows_of_miniature()]
    write_list(root / DRO, rows, ("\ufeffimg_id", *HEADER[1:]))
    assert len(load("waterbirds", LOOSE, root, tmp_path / "cache").train) == 8
