"""Spawrious: order of breeds and places, the test draw, FedDiverse's clients, and the mistakes (notes, section 13)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from datasets.core.prepare import check, load
from datasets.core.registry import get, parse
from datasets.spawrious import drawn_for_test
from partitions import Population, make

BREEDS = ("labrador", "dachshund", "bulldog", "corgi")
PLACES = ("beach", "snow")
LOOSE = {"strict": False, "size": 16}
CONF = Path(__file__).parents[2] / "conf"
# Of 20 files the seed 0 of numpy's legacy generator, with which pandas draws, takes numbers 18 and 1 (RandomState(0).
# permutation(20) begins 18 1 19): the tenth of a cell that is tested.
TESTED_OF_20 = [1, 18]


def value(half: int, number: int) -> int:
    """Blue of image `number` of a folder."""
    return 100 * half + 10 * number


def colour(breed: str, place: str) -> tuple[int, int]:
    """Red and green of a cell."""
    return 60 * BREEDS.index(breed) + 5, 120 * PLACES.index(place) + 5


@pytest.fixture
def mini(tmp_path: Path) -> Callable[..., Path]:
    """Writes 10 PNG of 16 x 16 per cell and folder; colours tell cell, folder and number. Returns the data root."""

    def write(folder: str = "spawrious224") -> Path:
        top = tmp_path / "data" / folder
        for half in (0, 1):
            for place in (*PLACES, "jungle"):
                for breed in BREEDS:
                    cell = top / str(half) / place / breed
                    cell.mkdir(parents=True)
                    for n in range(10):
                        rgb = (
                            (255, 255, 255) if place == "jungle" else (*colour(breed, place), value(half, n))
                        )
                        # Copies with an alpha channel are about; what is transparent in them is a picture, too.
                        transparent = n == 3
                        image = (
                            Image.new("RGBA", (16, 16), (*rgb, 0))
                            if transparent
                            else Image.new("RGB", (16, 16), rgb)
                        )
                        image.save(cell / f"{place}_{breed}_{n}.png")
        for junk in ("._beach_corgi_0.png", "Thumbs.db", "prompt.txt", "beach_corgi_0.jpg"):
            (top / "0/beach/corgi" / junk).touch()
        (top / "domain_adaptation_ds/beach/corgi").mkdir(parents=True)
        (top / "domain_adaptation_ds/beach/corgi/beach_corgi_0.png").touch()
        return tmp_path / "data"

    return write


@pytest.mark.parametrize(
    "folder",
    [
        "spawrious224",
        "spawrious224/spawrious224",
        "spawrious224__entire_dataset/spawrious224",
        "spawrious/spawrious224",
        "spawrious",
        ".",
    ],
)
@pytest.mark.parametrize("breeds", [2, 4])
def test_layouts_and_the_test_draw(
    mini: Callable[..., Path], tmp_path: Path, folder: str, breeds: int
) -> None:
    data = load("spawrious", {**LOOSE, "breeds": breeds}, mini(folder), tmp_path / "cache")
    assert data.classes == BREEDS[:breeds] and data.attributes == PLACES
    assert data.train.images.shape == (18 * 2 * breeds, 3, 16, 16) and len(data.test) == 2 * 2 * breeds
    assert (data.mean, data.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    # Sorted: numbers 0 to 9 of folder 0, then 0 to 9 of folder 1.
    blue = [value(half, number) for half in (0, 1) for number in range(10)]
    tested = [blue[k] for k in TESTED_OF_20]
    for split, left in ((data.train, [b for b in blue if b not in tested]), (data.test, tested)):
        for label, breed in enumerate(data.classes):
            for attribute, place in enumerate(PLACES):
                images = split.images[(split.labels == label) & (np.asarray(split.attributes) == attribute)]
                assert images[:, 2, 7, 7].tolist() == left
                assert {tuple(pixel) for pixel in images[:, :2, 0, 0].tolist()} == {colour(breed, place)}


def test_the_published_size_of_the_test_set() -> None:
    """634 of 6,336; 5,702 are left for training: notes, section 13."""
    assert drawn_for_test(6336).sum() == 634
    frame = pd.DataFrame({"file": range(6336)})
    np.testing.assert_array_equal(
        np.flatnonzero(drawn_for_test(6336)), np.sort(frame.sample(frac=0.1, random_state=0)["file"])
    )
    assert np.flatnonzero(drawn_for_test(20)).tolist() == TESTED_OF_20


def test_counts_against_the_published_ones(mini: Callable[..., Path], tmp_path: Path) -> None:
    root, options = mini(), {**LOOSE, "breeds": 4}
    load("spawrious", options, root, tmp_path / "cache")
    report = check("spawrious", options, root, tmp_path / "cache")
    published = {item[:3]: item[3] for item in report.expected}
    assert set(published) == {(part, b, p) for part in ("train", "test") for b in BREEDS for p in PLACES}
    assert {n for (part, *_), n in published.items() if part == "train"} == {5702}
    assert sum(n for (part, *_), n in published.items() if part == "test") == 5072


# FedDiverse's clients on the real sets' classes and attributes -------------------------------------------------


def sizes(breeds: int) -> Population:
    """The training images of the real set: 5,702 per breed and place."""
    cell = np.repeat(np.arange(2 * breeds), 5702)
    return Population(cell // 2, breeds, cell % 2, 2, class_names=BREEDS[:breeds], attribute_names=PLACES)


@pytest.mark.parametrize(
    ("distribution", "breeds", "clients", "pooled"),
    [
        ("spawrious_gsc", 2, 24, [[1760, 640], [640, 1760]]),
        ("spawrious_gci", 2, 24, [[1760, 1760], [640, 640]]),
        ("spawrious_gai", 2, 25, [[2000, 500], [2000, 100]]),
        ("spawrious4", 4, 25, [[2000, 200], [2000, 200], [200, 2000], [200, 2000]]),
        ("spawrious_gci100", 2, 100, [[5640, 5640], [2160, 2160]]),
    ],
)
def test_clients(distribution: str, breeds: int, clients: int, pooled: list[list[int]]) -> None:
    """Sums of the notes, section 13; rows labrador, dachshund (bulldog, corgi), columns beach, snow."""
    people = sizes(breeds)
    split = make("interaction", {"distribution": distribution}).split(people, np.random.default_rng(0))
    assert len(split) == clients
    chosen = np.concatenate(split)
    assert people.attributes is not None and len(np.unique(chosen)) == len(chosen)
    cells = np.bincount(people.labels[chosen] * 2 + people.attributes[chosen], minlength=2 * breeds)
    np.testing.assert_array_equal(cells.reshape(breeds, 2), pooled)


@pytest.mark.parametrize(("name", "breeds"), [("spawrious", 2), ("spawrious4", 4)])
def test_configurations_and_stand_ins(name: str, breeds: int) -> None:
    own = yaml.safe_load((CONF / f"dataset/{name}.yaml").read_text())
    assert own["name"] == "spawrious" and own["options"] == {"breeds": breeds}
    standin = yaml.safe_load((CONF / f"dataset/digits_{name}.yaml").read_text())["options"]
    assert tuple(standin["class_names"]) == BREEDS[:breeds] and tuple(standin["attributes"]) == PLACES


def test_miniature_clients(mini: Callable[..., Path], tmp_path: Path) -> None:
    """18 images per cell are left: two clients of 9 and 9, rows and columns as the matrices have them."""
    data = load("spawrious", LOOSE, mini(), tmp_path / "cache").train
    people = Population(np.asarray(data.labels), 2, np.asarray(data.attributes), 2)
    kinds = [{"matrix": [[9, 1], [1, 9]]}, {"matrix": [[9, 2], [3, 9]]}]
    first, second = make("interaction", {"clients": kinds}).split(people, np.random.default_rng(0))
    red, green = data.images[second, 0, 0, 0], data.images[second, 1, 0, 0]
    counts = dict.fromkeys(((b, p) for b in BREEDS[:2] for p in PLACES), 0)
    for r, g in zip(red, green, strict=True):
        counts[next(cell for cell in counts if colour(*cell) == (r, g))] += 1
    assert list(counts.values()) == [9, 2, 3, 9] and len(first) == 20


# Mistakes --------------------------------------------------------------------------------------------------


def test_nothing_there(refused: Callable[..., str], tmp_path: Path) -> None:
    message = refused("spawrious", tmp_path / "nowhere")
    assert f"looked at: {tmp_path}/nowhere/spawrious224" in message and "not downloaded yet" in message
    assert "entire_dataset.tar.gz" in message and "3,168 + 3,168 expected" in message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("spawrious224__entire_dataset.tar.gz", "not unpacked"),
        ("spawrious224__o2o_easy.tar.gz", "o2o archive"),
        ("spawrious__m2m.tar.gz", "m2m archive"),
        ("spawrious224/domain_adaptation_ds/", "beside domain_adaptation_ds"),
        ("spawrious224/beach/", "the places lie here directly"),
        ("photos/", "belong to something else"),
    ],
)
def test_likely_causes(refused: Callable[..., str], tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True)
    if name.endswith("/"):
        path.mkdir()
    else:
        path.touch()
    message = refused("spawrious", tmp_path / "data")
    assert words in message.split("cause:")[1].split("get it:")[0]
    assert path.name in message.split("found:")[1].split("cause:")[0]


def test_only_folder_0(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    root = mini()
    shutil.rmtree(root / "spawrious224/1")
    message = refused("spawrious", root)
    assert "only folder 0 found; 3,168 images per cell lie in each of 0 and 1" in message
    assert "entire_dataset has 0 and 1" in message and "beach labrador 10 + 0" in message


def test_an_o2o_archive(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    root = mini()
    for half in (0, 1):
        shutil.rmtree(root / f"spawrious224/{half}/snow/labrador")
    message = refused("spawrious", root)
    assert "1 of 4 cells are absent, first: (snow, labrador)" in message and "o2o archive" in message
    assert "snow labrador 0 + 0" in message and "snow dachshund 10 + 10" in message


def test_too_small(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    root = mini()
    for path in [
        *(root / "spawrious224/0/snow/labrador").iterdir(),
        *(root / "spawrious224/1/snow/labrador").iterdir(),
    ][5:]:
        path.unlink()
    assert "too few images for a test set of a tenth, first: (snow, labrador)" in refused("spawrious", root)


def test_a_converted_copy(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    root = mini()
    for path in root.glob("spawrious224/*/snow/labrador/*.png"):
        path.rename(path.with_suffix(".jpg"))
    message = refused("spawrious", root)
    assert "1 of 4 cells are absent, first: (snow, labrador)" in message
    assert "a converted copy: its files are of another type, the owner's are png" in message


def test_an_image_that_is_none(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    """Two breeds of 2 x 20 images."""
    root = mini()
    path = root / "spawrious224/1/snow/dachshund/snow_dachshund_7.png"
    path.write_bytes(path.read_bytes()[:40])
    message = refused("spawrious", root, LOOSE, decoding=True)
    assert "snow_dachshund_7.png cannot be decoded" in message and f"looked at: {path}\n" in message
    assert "80 images expected, 79 found; expected/found: dachshund 40/39;" in message


def test_a_resized_copy(
    refused: Callable[..., str], mini: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the miniature's numbers as the published ones its pixels are wrong, 16 for 224."""
    root = mini()
    monkeypatch.setattr("datasets.spawrious.PER_HALF", 10)
    message = refused("spawrious", root, {})
    assert "beach_labrador_0.png has 16 x 16 pixels, the originals 224 x 224." in message
    assert "a resized copy" in message and "10 + 10 expected per cell" in message
    monkeypatch.setattr("datasets.spawrious.SIDE", 16)
    entry = get("spawrious")
    assert len(entry.builder(parse(entry, {}), root).train) == 4 * 18


def test_a_cut_down_copy_needs_strict_off(refused: Callable[..., str], mini: Callable[..., Path]) -> None:
    message = refused("spawrious", mini(), {"strict": True, "breeds": 4})
    assert "8 of 8 cells do not have the published numbers" in message and "strict: false" in message
    assert "snow corgi 10 + 10" in message
