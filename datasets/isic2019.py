"""ISIC2019 as FLamby's Fed-ISIC2019: dermoscopic images of eight kinds of lesions from six centres (FedMR, Table 2).

Centres, folds and preprocessing: Ogier du Terrail et al., FLamby, NeurIPS 2022. FLamby keeps the 23,247 of 25,331
images whose lesion is known; it draws its fold over images, so that a lesion may be on both sides. It brings the
shorter side to 224 pixels, evens out the colours and later crops 200 x 200. Arrays have one size, so here the central
224 x 224 are cut out after the colours: random crops cannot reach beyond it, the central crop is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field

from datasets.core.base import Expected, Facts, RawOptions, UInt8Array, published
from datasets.core.folders import (
    Place,
    Tree,
    files_by_stem,
    find,
    first_file,
    first_names,
    readable,
    with_nested,
)
from datasets.core.images import ListedDataset, ToSquare, check_pixels, open_rgb, two_parts
from datasets.core.lists import check_counts, check_listed, check_not_empty, read_table
from datasets.core.registry import dataset
from datasets.ham10000 import METADATA as HAM_METADATA

if TYPE_CHECKING:
    import pandas as pd

CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
CENTRES = ("bcn", "vidir_molemax", "vidir_modern", "rosendahl", "msk", "vienna_dias")
# FLamby's fold: images of the classes in each centre.
TRAIN = (
    (2279, 3363, 2245, 606, 923, 97, 87, 330),
    (20, 2977, 2, 0, 96, 23, 45, 0),
    (533, 1470, 174, 20, 379, 40, 64, 11),
    (276, 649, 223, 86, 406, 20, 3, 144),
    (166, 349, 0, 0, 140, 0, 0, 0),
    (58, 276, 5, 0, 6, 4, 2, 0),
)
TEST = (
    (578, 843, 564, 131, 215, 27, 24, 101),
    (4, 743, 0, 0, 28, 7, 9, 0),
    (147, 362, 37, 1, 96, 11, 18, 0),
    (66, 154, 73, 23, 84, 10, 0, 42),
    (49, 66, 0, 0, 49, 0, 0, 0),
    (9, 74, 0, 0, 4, 0, 1, 0),
)

SHORTER_SIDE = {"bcn": 1024, "vidir_molemax": 450, "vidir_modern": 450, "rosendahl": 450, "vienna_dias": 450}
"""Pixels of the originals, 1024 x 1024 and 600 x 450; those of the centre msk vary."""

IMAGES = "ISIC_2019_Training_Input"
TRUTH = "ISIC_2019_Training_GroundTruth.csv"
METADATA = "ISIC_2019_Training_Metadata.csv"
SPLITS = (
    *("train_test_split", "train_test_split.csv", "train_test_split.txt"),
    *("fed_isic2019_train_test_split", "fed_isic2019_train_test_split.csv", "isic2019_train_test_split.csv"),
)
FLAMBY = (
    "https://github.com/owkin/FLamby, flamby/datasets/fed_isic2019/dataset_creation_scripts/train_test_split "
    "(23,247 rows), or dataset.options.fold=own for another fold"
)

TREE = Tree(
    title="ISIC2019",
    folders=("ISIC2019", "ISIC_2019", "isic-2019", "fed_isic2019", "Fed-ISIC2019"),
    layout=f"{IMAGES}/ISIC_*.jpg, {TRUTH}, {METADATA}, train_test_split in ISIC2019/",
    page="https://challenge.isic-archive.com/data/#2019",
    archive=f"{IMAGES}.zip (about 9 GB), {METADATA}, {TRUTH}; the fold: {FLAMBY}",
    hints={
        "ISIC_2019_Test_Input*": "the challenge's test images; the training images are needed",
        "HAM10000_images*": "this is HAM10000 alone, not ISIC2019",
        f"{IMAGES}_preprocessed": "FLamby's shrunken JPEG files; the original images are needed",
    },
)


class Isic2019Options(RawOptions):
    """Options of ISIC2019.

    Attributes:
        size: Height and width in pixels: the shorter side is brought to it, then the centre is cut out.
        colour_constancy: Even out the colours by shades of gray, as FLamby does.
        fold: ``flamby`` reads FLamby's file `train_test_split`; ``own`` derives the centres from the metadata as
            FLamby does and draws a fold with the same number of images in each centre, but other images.
        fold_seed: Seed of the own fold.
    """

    size: int = Field(default=224, ge=8, le=1024)
    colour_constancy: bool = True
    fold: Literal["flamby", "own"] = "flamby"
    fold_seed: int = Field(default=0, ge=0)


def shades_of_gray(image: UInt8Array, power: int = 6) -> UInt8Array:
    """Scale the channels of uint8 [H, W, 3] as if the light had been grey.

    The light is the Minkowski mean of each channel, e_c = (mean I_c^p)^(1/p), brought to length 1; I_c is divided by
    sqrt(3) e_c (Finlayson and Trezzi 2004; p = 6). Values over 255 become 255, where FLamby's cast wraps around.
    """
    values = np.arange(256, dtype=np.float64)
    channels = [image[..., channel] for channel in range(3)]
    light = np.array([(values**power)[channel].mean() ** (1 / power) for channel in channels])
    if not light.any():
        return image.copy()
    light /= np.linalg.norm(light)
    gains = 1 / (np.sqrt(3) * np.where(light > 0, light, 1.0))
    # The tiny sum keeps a product that is a whole number, but for rounding, from losing one.
    tables = [np.clip(values * gain + 1e-9, 0, 255).astype(np.uint8) for gain in gains]
    return np.stack([table[channel] for table, channel in zip(tables, channels, strict=True)], axis=-1)


@dataclass(frozen=True)
class Dermoscopy:
    """Decode as FLamby preprocesses: shorter side to ``size``, bilinear, colours, and then the centre."""

    size: int
    colour_constancy: bool

    def __call__(self, path: Path) -> UInt8Array:
        """As `datasets.core.images.Decode`: uint8 [3, size, size]."""
        image = open_rgb(path)
        if self.colour_constancy:
            short = min(image.size)
            width, height = (int(self.size * side / short) for side in image.size)
            if (width, height) != image.size:
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            image = Image.fromarray(shades_of_gray(np.asarray(image)))
        return ToSquare(self.size, "cover").fit(image)


def _facts(options: Isic2019Options) -> Facts:
    # Our own fold has as many images.
    return TREE.facts(int(np.sum(TRAIN)), int(np.sum(TEST)), len(CLASSES), options.size, sources=len(CENTRES))


@dataset("isic2019", options=Isic2019Options, facts=_facts, licence=f"CC BY-NC 4.0, {TREE.page}")
def isic2019(options: Isic2019Options, root: Path) -> ListedDataset:
    """ISIC2019 in the six centres of FLamby's Fed-ISIC2019 (FedMR): 18,597 + 4,650 dermoscopic images, 8 classes."""
    flamby = options.fold == "flamby"
    expected = published({"train": np.transpose(TRAIN), "test": np.transpose(TEST)}, CLASSES, CENTRES)
    with readable(TREE, root):
        place = find(TREE, root, (IMAGES, TRUTH, METADATA, *SPLITS))
        table = _flamby_fold(place) if flamby else _own_fold(place, options.fold_seed)
        _check_counts(place, table, expected, flamby, options.strict)
        table["path"] = _paths(place, table)
    for centre, least in SHORTER_SIDE.items() if options.strict else ():
        first = table["path"][table["source"] == CENTRES.index(centre)][:1]
        pixels = f"{least:,} on the shorter side (centre {centre})"
        check_pixels(place, first, lambda *sides, least=least: min(sides) >= least, pixels)
    note = "centre crop of FLamby's images"
    if not flamby:
        note = (
            f"the fold is ours (seed {options.fold_seed}), not FLamby's: other images in the test set; {note}"
        )
    return ListedDataset(
        *two_parts(table),
        classes=CLASSES,
        decode=Dermoscopy(options.size, options.colour_constancy),
        places=(place,),
        sources=CENTRES,
        note=note if options.colour_constancy else f"{note}; colours as they are",
        expected=expected if flamby else (),
    )


def _check_counts(place: Place, table: pd.DataFrame, expected: Expected, flamby: bool, strict: bool) -> None:
    """Compare a list with FLamby's counts by centre, fold and (in its own fold) class; any copy needs both folds."""
    tests = int(table["test"].sum())
    check_not_empty(place, {"train": len(table) - tests, "test": tests})
    if strict:
        wanted, found = Counter[str](), Counter[str]()
        for part, label, centre, number in expected:
            wanted[f"{centre} {part}" + f" {label}" * flamby] += number
        for test, label, centre in zip(table["test"], table["label"], table["source"], strict=True):
            part = "test" if test else "train"
            found[f"{CENTRES[centre]} {part}" + f" {CLASSES[label]}" * flamby] += 1
        check_counts(place, found, wanted)


def _paths(place: Place, table: pd.DataFrame) -> pd.Series:
    """The file of each image of the list. Other files are ignored."""
    folders = with_nested([place.folder / IMAGES]) or with_nested([place.folder])
    images = files_by_stem(place, folders, (".jpg", ".jpeg"))
    centres = {image: CENTRES[centre] for image, centre in zip(table["image"], table["source"], strict=True)}
    cause = "a part of the archive, or a renamed copy: names of the centre msk end in _downsampled"
    check_listed(place, centres, images, cause=cause)
    return table["image"].map(images)


# The lists -----------------------------------------------------------------------------------------------------------


def _list_folders(place: Place) -> list[Path]:
    return list(dict.fromkeys([place.folder, *with_nested([place.folder / IMAGES]), place.root]))


def _read(
    place: Place, names: Sequence[str], columns: Sequence[str], **allowed: Sequence[str]
) -> pd.DataFrame:
    """The list of one of these names, sorted by image. The others as in `read_table`."""
    path = first_file(_list_folders(place), names)
    if path is None:
        raise place.error(f"{names[0]} is not beside the folder of images.")
    table = read_table(place, path, ("image", *columns, *allowed), unique="image", allowed=allowed)
    return table.sort_values("image", ignore_index=True)


def _refuse(place: Place, images: pd.Series, problem: str) -> None:
    """Refuse lists that contradict each other, or themselves, on some images."""
    if len(images):
        cause = "lists of other versions, or a list that was edited"
        raise place.error(f"{first_names(list(images))}: {problem}.", cause)


def _one_hot(table: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Index of the only class of each row, or -1."""
    import pandas as pd  # slow to import

    numbers = table[list(CLASSES)].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    good = ((numbers == 1).sum(axis=1) == 1) & (numbers.sum(axis=1) == 1)
    return np.where(good, numbers.argmax(axis=1), -1)


def _flamby_fold(place: Place) -> pd.DataFrame:
    """Image, label, source and test of FLamby's list; it must agree with the ground truth if that is there."""
    folds = ("train", "test")
    table = _read(place, SPLITS, CLASSES, target="01234567", center="012345", fold=folds)
    table["label"] = _one_hot(table)
    odd = table["label"] != table["target"].astype(int)
    if "fold2" in table:
        odd |= table["fold2"] != table["fold"] + "_" + table["center"]
    _refuse(place, table["image"][odd], f"its values in {SPLITS[0]} contradict each other")
    if first_file(_list_folders(place), [TRUTH]):
        other = table["image"].map(_truth(place)).fillna(table["label"]) != table["label"]
        _refuse(place, table["image"][other], f"{SPLITS[0]} and {TRUTH} give it different classes")
    return table.assign(source=table["center"].astype(int), test=table["fold"] == "test")


def _truth(place: Place) -> pd.Series:
    """Class of each image, by its name, from the challenge's ground truth."""
    table = _read(place, [TRUTH], CLASSES)
    import pandas as pd

    labels = pd.Series(_one_hot(table), index=table["image"])
    _refuse(place, table["image"][labels.to_numpy() < 0], f"{TRUTH} gives it two classes or none")
    return labels


def _own_fold(place: Place, seed: int) -> pd.DataFrame:
    """Image, label, source and test of the images whose lesion is known: a fifth of each centre to the test set."""
    truth = _truth(place)
    table = _read(place, [METADATA], ["lesion_id"])
    table = table[table["lesion_id"] != ""].reset_index(drop=True)
    table["label"] = table["image"].map(truth)
    _refuse(place, table["image"][table["label"].isna()], f"{TRUTH} does not have it")
    origin = table["lesion_id"].str[:3]
    centre = origin.map({"BCN": "bcn", "MSK": "msk"})
    if (origin == "HAM").any():
        centre = centre.where(origin != "HAM", table["image"].map(_ham_archives(place)))
    _refuse(place, table["image"][~centre.isin(CENTRES)], "its lesion does not tell its centre")
    table["source"] = centre.map(CENTRES.index)
    members = [np.flatnonzero(table["source"] == number) for number in range(len(CENTRES))]
    generator = np.random.default_rng(seed)
    table["test"] = False
    for rows, size in zip(members, fifths([len(rows) for rows in members]), strict=True):
        table.loc[rows[generator.permutation(len(rows))[:size]], "test"] = True
    return table


def fifths(sizes: Sequence[int]) -> list[int]:
    """A fifth of each size, rounded so that the sum is a fifth of their sum, rounded up.

    The largest remainders are rounded up, the first if they are equal: the sizes of FLamby's test sets.
    """
    tests = [size // 5 for size in sizes]
    short = -(-sum(sizes) // 5) - sum(tests)
    for k in sorted(range(len(sizes)), key=lambda k: -(sizes[k] % 5))[:short]:
        tests[k] += 1
    return tests


def _ham_archives(place: Place) -> dict[str, str]:
    """Archive of each image of HAM10000, from the column `dataset` of its own metadata."""
    path = first_file([*_list_folders(place), place.root / "HAM10000", place.root / "ham10000"], HAM_METADATA)
    if path is None:
        cause = "it comes with HAM10000, https://doi.org/10.7910/DVN/DBW86T"
        raise place.error(f"the four HAM10000 centres need {HAM_METADATA[0]}, which is not there.", cause)
    table = read_table(place, path, ("image_id", "dataset"), unique="image_id")
    return dict(zip(table["image_id"], table["dataset"], strict=True))
