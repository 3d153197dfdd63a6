"""The digits, and the stand-ins made of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.linear_model import RidgeClassifier

from datasets import acevedo, matek, waterbirds
from datasets.core.base import DataError, Dataset, Split
from datasets.core.prepare import load
from datasets.standin import rendering
from datasets.standin.digits import split_digits

CONF = Path(__file__).resolve().parents[2] / "conf" / "dataset"
# A class's own counts over its attributes or sources, as the papers print them.
WATERBIRDS = np.array(waterbirds.PUBLISHED["train"])
HAM = {"akiec": 327, "bcc": 514, "bkl": 1099, "df": 115, "mel": 1113, "nv": 6705, "vasc": 142}
ACEVEDO = [acevedo.PUBLISHED[code] for (code,) in acevedo.SUBTYPES.values()]
SVHN = (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)


def config(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONF / f"{name}.yaml").read_text())


def standin(name: str) -> Dataset:
    node = config(name)
    return load(node["name"], node["options"])  # into the cache that all tests share


def cells(split: Split, classes: int, columns: int) -> np.ndarray:
    column = split.attributes if split.attributes is not None else split.sources
    index = split.labels if column is None else split.labels * columns + column
    return np.bincount(index, minlength=classes * columns).reshape(classes, columns)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Dataset]:
    """A stand-in without noise, with these options."""

    def make(**options: Any) -> Dataset:
        usual = {"stands_for": "X", "noise": 0.0, "test_counts": 20}
        return load("standin", usual | options, cache=tmp_path)

    return make


# The digits ---------------------------------------------------------------------------------------------------------


# What stand-ins are made of -----------------------------------------------------------------------------------------


def shifted(split: Split) -> np.ndarray:
    """All digits of a split in all nine positions, as directions [9 N, 64] (gain does not change a direction)."""
    ink = np.repeat(split.images[:, 0] / 255.0, 9, axis=0)
    return direction(rendering.shift(ink, np.tile(np.arange(9), len(split))))


def direction(images: np.ndarray) -> np.ndarray:
    flat = images.reshape(len(images), -1).astype(float)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)


TRAIN, TEST = split_digits()
TRAIN_DIGITS, TEST_DIGITS = shifted(TRAIN), shifted(TEST)


def nearest(images: np.ndarray) -> np.ndarray:
    """Labels of the training digits, each in the position where it is most like the image."""
    return TRAIN.labels[(direction(images) @ TRAIN_DIGITS.T).argmax(axis=1) // 9]


def test_train_comes_from_training_digits_and_test_from_test_digits(made: Callable[..., Dataset]) -> None:
    data = made(classes=10, train_counts=100)
    pools = TRAIN_DIGITS, TEST_DIGITS
    for split, (same, other) in ((data.train, pools), (data.test, pools[::-1])):
        images = direction(split.images[:, 0])
        # Rounding to 256 greys moves a direction a little; another person's digit differs by much more.
        assert (images @ same.T).max(axis=1).min() > 0.9998
        assert np.median((images @ other.T).max(axis=1)) < 0.99


def test_hundred_classes_are_two_digits_side_by_side(made: Callable[..., Dataset]) -> None:
    data = made(classes=100, train_counts=3, test_counts=2)
    assert data.train.images.shape == (300, 1, 8, 16) and data.classes[7] == "07"
    left, right = (nearest(data.train.images[:, 0, :, half]) for half in (slice(8), slice(8, 16)))
    assert np.mean(left * 10 + right == data.train.labels) > 0.98  # the same picture may be two digits


def test_attributes_are_colours(made: Callable[..., Dataset]) -> None:
    data = made(classes=2, attributes=["red", "green"], style="colour", channels=3, train_counts=50)
    brightness = np.asarray(data.train.images, dtype=float).mean(axis=(2, 3))
    attributes = np.asarray(data.train.attributes)
    assert (brightness[np.arange(200), attributes] > 0).all()
    assert (brightness[np.arange(200), 1 - attributes] == 0).all() and (brightness[:, 2] == 0).all()


def test_its_classes_are_digits_whatever_they_stand_for(made: Callable[..., Dataset]) -> None:
    """Two classes of ten digits are five digits each; the note names the original's."""
    data = made(classes=2, class_names=["normal", "diseased"], train_counts=5)
    assert data.classes == ("0/1/2/3/4", "5/6/7/8/9") and "stand for normal, diseased" in data.note


# Counts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "expected"),
    [(7, [[7, 7], [7, 7]]), ([5, 8], [[3, 2], [4, 4]]), ([[1, 2], [3, 0]], [[1, 2], [3, 0]])],
)
def test_counts_per_cell_class_or_matrix(
    made: Callable[..., Dataset], counts: Any, expected: list[list[int]]
) -> None:
    data = made(classes=2, attributes=["a", "b"], style="scene", channels=3, train_counts=counts)
    np.testing.assert_array_equal(cells(data.train, 2, 2), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 1}, "classes must be 2 to 17, or 100"),
        ({"train_counts": [1, 2, 3]}, "train_counts must be one number, .* or a row of 1 for each class"),
        ({"train_counts": 0}, "nor all zero"),
        ({"train_counts": [-1, 3]}, "must not be negative"),
        ({"class_names": ["a"]}, "class_names must be one for each class"),
        ({"groups": [[1, 2]]}, "one list of digits for each class"),
        ({"attributes": ["a"]}, "two names or none"),
        ({"attributes": ["a", "b"]}, "the styles colour and scene show two attributes"),
        ({"sources": ["a", "b"], "appearances": [1]}, "appearances must be one for each source"),
        ({"colour": 1}, "colour: unknown key"),
    ],
)
def test_options_that_do_not_fit(made: Callable[..., Dataset], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        made(**{"classes": 2, "train_counts": 10, **options})


# The stand-ins of the quick preset ----------------------------------------------------------------------------------


# Classes and attributes or sources of the originals.
SHAPES = {
    "retina": (2, 0), "covid": (3, 12), "acevedo": (10, 0), "ham": (7, 0), "wbc": (13, 3), "spawrious": (2, 2),
    "spawrious4": (4, 2), "waterbirds": (2, 2), "cmnist": (2, 2), "fmnist": (10, 0), "svhn": (10, 0),
    "cifar10": (10, 0), "cifar100": (100, 0), "isic2019": (8, 6), "matek": (15, 0), "pacs": (7, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(path.stem for path in CONF.glob("*.yaml")))
def test_config_files_have_the_same_keys(name: str) -> None:
    node = config(name)
    # A stand-in has its own numbers of images. FedSDC's split takes what no client draws as test data.
    more = [key for key in ("train_per_class", "test_per_class", "rest") if key in node]
    assert list(node) == ["name", "options", *more]
    assert name == "niid2" or "rest" not in node


@pytest.mark.parametrize("original", SHAPES)
def test_stand_in_is_what_its_file_says(original: str) -> None:
    """And a linear classifier is well above chance and well below all right."""
    data, options = standin(f"digits_{original}"), config(f"digits_{original}")["options"]
    assert (len(data.classes), len(data.attributes or data.sources)) == SHAPES[original]
    assert data.attributes == tuple(options.get("attributes", ()))
    assert data.sources == tuple(options.get("sources", ()))
    size = (8, 16) if options["classes"] == 100 else (8, 8)
    assert data.train.images.shape[1:] == (options.get("channels", 1), *size)
    assert 1000 <= len(data.train) <= 4500 and 400 <= len(data.test) <= 1000
    assert all(part in data.note for part in (options["stands_for"], "not comparable", "Not kept: "))
    train, test = (np.asarray(s.images).reshape(len(s), -1) / 255.0 for s in (data.train, data.test))
    accuracy = RidgeClassifier().fit(train, data.train.labels).score(test, data.test.labels)
    share = np.bincount(data.test.labels).max() / len(data.test)
    assert share + 0.1 < accuracy < 0.95


def test_imbalance_is_that_of_the_originals() -> None:
    ham = standin("digits_ham")
    assert ", ".join(HAM) in ham.note
    # a quarter of what 30 test images per class leave
    quarter = np.array([(count - 30) / 4 for count in HAM.values()])
    assert np.abs(np.bincount(ham.train.labels) - quarter).max() <= 1
    assert set(np.bincount(ham.test.labels)) == {60}
    leukaemia = standin("digits_matek")
    both = np.bincount(leukaemia.train.labels) + np.bincount(leukaemia.test.labels)
    assert both.tolist() == [min(count, 250) for count in matek.PUBLISHED.values()]
    blood = np.bincount(standin("digits_acevedo").train.labels)
    assert np.abs(blood - np.array([int(0.8 * count) for count in ACEVEDO]) / 4).max() <= 1
    assert np.abs(np.bincount(standin("digits_svhn").train.labels) - np.array(SVHN) / 25).max() <= 1


def test_cells_hold_what_the_client_matrices_ask() -> None:
    """Scaled by 0.5 (0.25 for four breeds): pooled matrices of FedDiverse's Table 6, WaterBirds' training set."""
    spawrious = cells(standin("digits_spawrious").train, 2, 2)
    for pooled in ([[1760, 640], [640, 1760]], [[1760, 1760], [640, 640]], [[2000, 500], [2000, 100]]):
        assert (spawrious >= 0.5 * np.array(pooled)).all()
    assert (cells(standin("digits_cmnist").train, 2, 2) >= 880).all()
    four = cells(standin("digits_spawrious4").train, 4, 2)
    assert (four >= 0.25 * np.array([[2000, 200]] * 2 + [[200, 2000]] * 2)).all()
    assert (cells(standin("digits_waterbirds").train, 2, 2) >= 0.5 * WATERBIRDS).all()


def test_sources_lack_the_classes_that_they_lack() -> None:
    blood = standin("digits_wbc")
    table = cells(blood.train, 13, 3)
    matek, acevedo, bodzas = (set(np.flatnonzero(column == 0)) for column in table.T)
    # Acevedo has no myeloblast (3), atypical lymphocyte (11), smudge cell (12);
    # Bodzas none of promyelocyte (4), myelocyte (5), metamyelocyte (6), 11 and 12; Matek has all
    assert (matek, acevedo, bodzas) == (set(), {3, 11, 12}, {4, 5, 6, 11, 12})
    assert table[[6, 11, 12], 0].max() < 20  # under 20 images in Matek: MMZ, LYA, KSC
    # FLamby's split, classes by centre: MSK has MEL, NV and BKL only, two of the others no AK and no SCC
    isic = cells(standin("digits_isic2019").train, 8, 6)
    lacking = [set(np.flatnonzero(column == 0)) for column in isic.T]
    assert lacking == [set(), {3, 7}, set(), set(), {2, 3, 5, 6, 7}, {3, 7}]
    assert np.abs(isic.sum(axis=0) - np.array([9930, 3163, 2691, 1807, 655, 351]) / 10).max() <= 3
    covid = cells(standin("digits_covid").train, 3, 12)
    assert (covid.sum(axis=0) > 0).all() and ((covid == 0).any(axis=0)).sum() >= 6
    assert covid.sum(axis=0).max() > 8 * covid.sum(axis=0).min()
