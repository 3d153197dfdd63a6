"""HAM10000 and Fed-ISIC2019: published numbers, folds, centres and colours."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from raw_trees import listed, picture

from datasets.core.base import DataError
from datasets.ham10000 import COUNTS, Ham10000Options, held_out
from datasets.isic2019 import TEST, TRAIN, Dermoscopy, shades_of_gray

# HAM10000 ------------------------------------------------------------------------------------------------------------


# 10,015 images with the published counts of classes; every third one shares the lesion of the one before it.
LABELS = np.repeat(np.arange(7), list(COUNTS.values()))
SHARED = (np.arange(len(LABELS)) % 3 == 2) & (np.roll(LABELS, 1) == LABELS)
LESIONS = [f"HAM_{n:07}" for n in np.arange(len(LABELS)) - SHARED]


def drawn(labels: np.ndarray, lesions: list[str], **options: Any) -> list[int]:
    return sorted(held_out(labels.tolist(), lesions, Ham10000Options(**options)))


@pytest.mark.parametrize("by_lesion", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_thirty_of_each_class(by_lesion: bool, seed: int) -> None:
    """FedSDC: 30 of each class are the test set, which leaves 10,015 - 210 = 9,805."""
    test = drawn(LABELS, LESIONS, by_lesion=by_lesion, split_seed=seed)
    assert np.bincount(LABELS[test]).tolist() == [30] * 7 and len(LABELS) - len(test) == 9_805
    others = {lesion for k, lesion in enumerate(LESIONS) if k not in test}
    assert bool(others & {LESIONS[k] for k in test}) is not by_lesion


def test_a_lesion_of_two_classes_stays_in_training() -> None:
    """Three lesions of two images in each class; then lesion x has the first two images of classes 0 and 1."""
    labels, lesions = np.arange(42) // 6, [f"{n // 2:02}" for n in range(42)]
    assert len(drawn(labels, lesions, held_out=4, by_lesion=True)) == 28
    words = "images of class akiec that can be drawn for testing are 2 and not 3"
    with pytest.raises(DataError, match=words):
        drawn(labels, lesions, held_out=3, by_lesion=True)
    for k in (0, 1, 6, 7):
        lesions[k] = "x"
    assert drawn(labels, lesions, held_out=4, by_lesion=True)[:8] == [2, 3, 4, 5, 8, 9, 10, 11]


def test_ham10000_reads_labels_sources_and_one_copy(raw: Callable[..., Path]) -> None:
    """Image n of 28 has class n % 7 and archive n % 4; the order of the metadata does not matter."""
    root = raw("ham10000")
    top = root / "HAM10000"
    shutil.copytree(top / "HAM10000_images_part_1", top / "HAM10000_images_again")
    picture(top / "HAM10000_images_part_1/ISIC_0034524.jpg", 0, 0)  # one of the challenge's test images
    data = listed("ham10000", root, held_out=1)
    assert (len(data.train), len(data.test)) == (21, 7)
    for part in (data.train, data.test):
        numbers = np.array([int(path.stem.removeprefix("ISIC_")) - 24306 for path in part.paths])
        np.testing.assert_array_equal(part.labels, numbers % 7)
        np.testing.assert_array_equal(part.sources, numbers % 4)
    table = top / "HAM10000_metadata.csv"
    head, *lines = table.read_text().splitlines()
    table.write_text("\r\n".join([head, *reversed(lines)]).replace(",", "\t"))
    assert listed("ham10000", root, held_out=1).test.paths == data.test.paths
    assert listed("ham10000", root, held_out=1, split_seed=1).test.paths != data.test.paths
    table.write_text("\n".join(line.rpartition(",")[0] for line in [head, *lines]))
    without = listed("ham10000", root, held_out=1, by_lesion=True)
    assert without.sources == () and without.train.sources is None and "no column `dataset`" in without.note


# Fed-ISIC2019 --------------------------------------------------------------------------------------------------------


def test_isic2019_published_counts() -> None:
    """FLamby, table of Fed-ISIC2019: 9930/2483, 3163/791, 2691/672, 1807/452, 655/164, 351/88; 23,247 in all."""
    assert [sum(row) for row in TRAIN] == [9930, 3163, 2691, 1807, 655, 351]
    assert [sum(row) for row in TEST] == [2483, 791, 672, 452, 164, 88]
    train, test = np.array(TRAIN), np.array(TEST)
    assert train.sum() == 18_597 and test.sum() == 4_650
    # FLamby's loss weighs each class by N / n_c over the training set.
    weights = [5.5813, 2.0472, 7.0204, 26.1194, 9.5369, 101.0707, 92.5224, 38.3443]
    np.testing.assert_allclose(train.sum() / train.sum(0), weights, atol=5e-5)


def test_isic2019_labels_and_centres(raw: Callable[..., Path]) -> None:
    """Image n of 144 has centre n // 24 and class n // 3 % 8; FLamby's test images are the last of each three."""
    root = raw("isic2019")
    picture(root / "ISIC2019/ISIC_2019_Training_Input/ISIC_0999999.jpg", 0, 0)  # no lesion is known: ignored
    data = listed("isic2019", root)
    for part, is_test in ((data.train, False), (data.test, True)):
        numbers = np.array([int(path.stem.removeprefix("ISIC_")) for path in part.paths])
        np.testing.assert_array_equal(part.labels, numbers // 3 % 8)
        np.testing.assert_array_equal(part.sources, numbers // 24)
        assert ((numbers % 3 == 2) == is_test).all()
    assert (len(data.train), len(data.test)) == (96, 48)
    assert data.classes == ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")


# Colours -------------------------------------------------------------------------------------------------------------


def of_colour(*rgb: int) -> np.ndarray:
    return np.full((8, 8, 3), rgb, dtype=np.uint8)


@pytest.mark.parametrize(
    ("colour", "expected"),
    [
        # Light (100, 100, 50) has the direction (2, 2, 1)/3: gains sqrt(3)/2, sqrt(3)/2, sqrt(3); 86.60 is cut off.
        ((100, 100, 50), (86, 86, 86)),
        # Light (100, 0, 0) has the direction (1, 0, 0): red gains 1/sqrt(3), 57.7; black channels stay black.
        ((100, 0, 0), (57, 0, 0)),
        *(((grey, grey, grey), (grey, grey, grey)) for grey in (0, 1, 77, 255)),
    ],
)
def test_shades_of_gray_by_hand(colour: tuple[int, ...], expected: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(shades_of_gray(of_colour(*colour)), of_colour(*expected))


def test_too_bright_values_are_clipped() -> None:
    """One of 64 blue values is 200: the mean of sixth powers has the root 200/2. 200 sqrt(3) = 346 would wrap to 90."""
    image = of_colour(200, 200, 0)
    image[3, 4, 2] = 200
    evened = shades_of_gray(image)
    np.testing.assert_array_equal(evened[3, 4], [173, 173, 255])
    np.testing.assert_array_equal(evened[0, 0], [173, 173, 0])


def test_colours_are_of_the_whole_image_and_then_the_centre_is_cut_out(tmp_path: Path) -> None:
    """24 x 8 with blue outer thirds: they are cut off, but their blue counts in the light.

    Red is 90 in the middle third; blue is 90 in two thirds. Sixth powers: 90^6/3 and 2 * 90^6/3, so that the light has
    the direction (1, 0, 2^(1/6)), and red gains sqrt(1 + 2^(1/3)) / sqrt(3) = 0.8679: 78.1.
    """
    pixels = np.zeros((8, 24, 3), dtype=np.uint8)
    pixels[:, 8:16, 0] = 90
    pixels[:, :8, 2] = pixels[:, 16:, 2] = 90
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(Dermoscopy(8)(tmp_path / "a.png")[:, 4, 4], [78, 0, 0])
    plain = Dermoscopy(8, colour_constancy=False)(tmp_path / "a.png")
    np.testing.assert_array_equal(plain, pixels[:, 8:16].transpose(2, 0, 1))
