"""ISIC2019 as FLamby's Fed-ISIC2019: dermoscopic images of eight kinds of lesions from six centres (FedMR, Table 2).

Centres, folds and preprocessing: Ogier du Terrail et al., FLamby, NeurIPS 2022. FLamby keeps the 23,247 of 25,331
images whose lesion is known; it draws its fold over images, so that a lesion may be on both sides. It brings the
shorter side to 224 pixels, evens out the colours and later crops 200 x 200. Arrays have one size, so here the central
224 x 224 are cut out after the colours: random crops cannot reach beyond it, the central crop is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from pydantic import Field

from datasets.core.base import DataError, Facts, RawOptions, UInt8Array, published
from datasets.core.folders import (
    STRICT,
    Place,
    Tree,
    files_by_stem,
    find,
    first_file,
    first_names,
    readable,
    with_nested,
)
from datasets.core.images import Files, ListedDataset, ToSquare, check_pixels, open_rgb
from datasets.core.lists import counts_text, read_table
from datasets.core.registry import dataset
from datasets.ham10000 import METADATA as HAM_METADATA

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
    "(23,247 rows; size in bytes not known)"
)
CHANGED = "a file that was edited, or lists of two versions side by side"

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


@dataclass(frozen=True)
class Row:
    """One image of the data set: name without suffix, indices of class and centre, and whether it is a test image."""

    image: str
    label: int
    centre: int
    test: bool


def _facts(options: Isic2019Options) -> Facts:
    # Our own fold has as many images.
    return TREE.facts(int(np.sum(TRAIN)), int(np.sum(TEST)), len(CLASSES), options.size, sources=len(CENTRES))


@dataset("isic2019", options=Isic2019Options, facts=_facts)
def isic2019(options: Isic2019Options, root: Path) -> ListedDataset:
    """ISIC2019 in the six centres of FLamby's Fed-ISIC2019 (FedMR): 18,597 + 4,650 dermoscopic images, 8 classes."""
    flamby = options.fold == "flamby"
    with readable(TREE, root):
        place = find(TREE, root, (IMAGES, TRUTH, METADATA, *SPLITS))
        rows = _flamby_rows(place) if flamby else _own_rows(place, options.fold_seed)
        _check_counts(rows, place, flamby, options.strict)
        paths = _paths(rows, place)
    if options.strict:
        _check_pixels(rows, paths, place)

    def part(test: bool) -> Files:
        chosen = [row for row in rows if row.test is test]
        return Files(
            [paths[row.image] for row in chosen],
            np.array([row.label for row in chosen], dtype=np.int64),
            sources=np.array([row.centre for row in chosen], dtype=np.int64),
        )

    note = "centre crop of FLamby's images"
    if not flamby:
        note = (
            f"the fold is ours (seed {options.fold_seed}), not FLamby's: other images in the test set; {note}"
        )
    counts = {"train": np.transpose(TRAIN), "test": np.transpose(TEST)}
    return ListedDataset(
        train=part(False),
        test=part(True),
        decode=Dermoscopy(options.size, options.colour_constancy),
        places=(place,),
        classes=CLASSES,
        sources=CENTRES,
        note=note if options.colour_constancy else f"{note}; colours as they are",
        expected=published(counts, CLASSES, CENTRES) if options.strict and flamby else (),
    )


def _check_counts(rows: Sequence[Row], place: Place, flamby: bool, strict: bool) -> None:
    """Compare a list with FLamby's counts by centre, fold and (in its own fold) class; any copy needs both folds."""
    wanted, found = Counter[str](), Counter[str]()
    for part, table in (("train", TRAIN), ("test", TEST)):
        for (centre, label), number in np.ndenumerate(np.array(table)):
            wanted[f"{CENTRES[centre]} {part}" + f" {CLASSES[label]}" * flamby] += int(number)
    for row in rows:
        part = "test" if row.test else "train"
        found[f"{CENTRES[row.centre]} {part}" + f" {CLASSES[row.label]}" * flamby] += 1
    empty = [
        part for part, test in (("train", False), ("test", True)) if test not in {row.test for row in rows}
    ]
    if strict and found != wanted:  # a counter's missing entries count as 0
        problem = "the list does not have the published counts of Fed-ISIC2019."
    elif empty:
        problem = f"the list has no image of the {' and the '.join(empty)} set."
    else:
        return
    raise place.error(
        problem,
        found=f"{len(rows):,} images whose lesion is known; 23,247 are published",
        cause=f"another version of the lists, a list that was cut off, or a cut-down copy; {STRICT}",
        counts=counts_text(wanted, found),
    )


def _check_pixels(rows: Sequence[Row], paths: Mapping[str, Path], place: Place) -> None:
    """Refuse a resized copy, by the first image of each centre whose size is known."""
    for centre, side in SHORTER_SIDE.items():
        first = next((row.image for row in rows if CENTRES[row.centre] == centre), None)
        if first is not None:
            pixels = f"{side:,} on the shorter side (centre {centre})"
            counts = f"{len(rows):,} images expected and found"
            check_pixels(
                place, [paths[first]], lambda *sides, least=side: min(sides) >= least, pixels, counts
            )


def _paths(rows: Sequence[Row], place: Place) -> dict[str, Path]:
    """The file of each name on the list. Other files are ignored."""
    folders = with_nested([place.folder / IMAGES]) or with_nested([place.folder])
    images = files_by_stem(place, folders, (".jpg", ".jpeg"))
    missing = [row for row in rows if row.image not in images]
    if not missing:
        return images
    by_centre = Counter(CENTRES[row.centre] for row in rows)
    there = by_centre - Counter(CENTRES[row.centre] for row in missing)
    ending, cause = "_downsampled", ""
    short = [row.image for row in missing if row.image.endswith(ending)]
    if any(name.removesuffix(ending) in images for name in short):
        cause = (
            f"a renamed copy: the owner's names end in {ending} for all but three images of the centre msk"
        )
    elif images:
        cause = "a cut-down copy, or an archive that was not unpacked to its end"
    raise place.error(
        f"the list has {len(rows):,} names, {len(missing):,} of them have no file ({len(short):,} of these end in "
        f"{ending}): {first_names([row.image for row in missing])}.",
        looked_at=place.folder / IMAGES,
        cause=cause,
        counts=counts_text({name: by_centre[name] for name in CENTRES}, there),
    )


def _list_folders(place: Place) -> list[Path]:
    return list(dict.fromkeys([place.folder, *with_nested([place.folder / IMAGES]), place.root]))


def _missing_list(name: str, place: Place, rows: str, cause: str = "") -> DataError:
    return place.error(
        f"{name} is not beside the folder of images.",
        looked_at=place.folder / name,
        cause=cause,
        counts=f"{rows} rows of {name} expected, 0 found",
    )


def _bad_row(place: Place, path: Path, problem: str) -> DataError:
    expected = "one row for each image, with one class, centre 0 to 5 and fold train or test"
    return place.bad_file(path, f"is not consistent: {problem}", expected, CHANGED, "23,247 rows expected")


# FLamby's fold -------------------------------------------------------------------------------------------------------


def _flamby_rows(place: Place) -> list[Row]:
    """Rows of `train_test_split`, sorted by image; they must agree with the ground truth if that is there."""
    path = first_file(_list_folders(place), SPLITS)
    if path is None:
        cause = (
            "the file comes with FLamby's code and not with the images. Without it: dataset.options.fold=own "
            "derives the same centres from the metadata and draws another fold"
        )
        raise _missing_list(SPLITS[0], place, "23,247", cause)
    needed = ("image", *CLASSES, "target", "center", "fold")
    rows: dict[str, Row] = {}
    truth = _truth(place, required=False)
    for row in read_table(place, path, needed, "another file under this name; FLamby's is needed"):
        name, fold, label, centre = row["image"], row["fold"], _one_hot(row), row["center"].removesuffix(".0")
        good = fold in ("train", "test") and centre in map(str, range(len(CENTRES)))
        good = good and row["target"].removesuffix(".0") == str(label)
        if not good or row.get("fold2", f"{fold}_{centre}") != f"{fold}_{centre}":
            raise _bad_row(
                place, path, f"the values of {name} contradict each other ({', '.join(row.values())})"
            )
        if name in rows:
            raise _bad_row(place, path, f"{name} is listed twice")
        if truth.get(name, label) != label:
            problem = f"{name} has the class {CLASSES[label]} here and {CLASSES[truth[name]]} in {TRUTH}"
            raise _bad_row(place, path, problem)
        rows[name] = Row(name, label, int(centre), fold == "test")
    return sorted(rows.values(), key=lambda row: row.image)


def _one_hot(row: Mapping[str, str]) -> int:
    """Index of the only class of a row, or -1."""
    try:
        chosen = [k for k, name in enumerate(CLASSES) if float(row[name]) == 1]
    except ValueError:
        return -1
    return chosen[0] if len(chosen) == 1 else -1


# A fold of our own ---------------------------------------------------------------------------------------------------


def _own_rows(place: Place, seed: int) -> list[Row]:
    """Images whose lesion is known, with their centres, in a fold by centre: a fifth of each to the test set."""
    truth = _truth(place, required=True)
    path = first_file(_list_folders(place), [METADATA])
    if path is None:
        raise _missing_list(METADATA, place, "25,331")
    known: dict[str, str] = {}
    cause = "the metadata of another year or of HAM10000"
    for row in read_table(place, path, ("image", "lesion_id"), cause):
        if known.setdefault(row["image"], row["lesion_id"]) != row["lesion_id"]:
            raise _bad_row(place, path, f"{row['image']} has two lesions")
    known = {name: lesion for name, lesion in known.items() if lesion}
    absent = [name for name in known if name not in truth]
    if absent:
        raise _bad_row(place, path, f"{TRUTH} does not have {first_names(absent)}")
    archives = _ham_archives(place) if any(lesion.startswith("HAM") for lesion in known.values()) else {}
    centres = {}
    for name, lesion in sorted(known.items()):
        archive = {"BCN": "bcn", "MSK": "msk", "HAM": archives.get(name, "")}.get(lesion[:3], "")
        if archive not in CENTRES:
            raise _bad_row(place, path, f"the centre of {name} (lesion {lesion}) is not known")
        centres[name] = CENTRES.index(archive)
    members = [[name for name in centres if centres[name] == number] for number in range(len(CENTRES))]
    generator = np.random.default_rng(seed)
    tests: set[str] = set()
    for names, size in zip(members, fifths([len(names) for names in members]), strict=True):
        tests.update(names[k] for k in generator.permutation(len(names))[:size])
    return [Row(name, truth[name], centre, name in tests) for name, centre in centres.items()]


def fifths(sizes: Sequence[int]) -> list[int]:
    """A fifth of each size, rounded so that the sum is a fifth of their sum, rounded up.

    The largest remainders are rounded up, the first if they are equal: the sizes of FLamby's test sets.
    """
    tests = [size // 5 for size in sizes]
    short = -(-sum(sizes) // 5) - sum(tests)
    for k in sorted(range(len(sizes)), key=lambda k: -(sizes[k] % 5))[:short]:
        tests[k] += 1
    return tests


def _truth(place: Place, required: bool) -> dict[str, int]:
    """Class of each image from the one-hot ground truth; empty if it is not there and not required."""
    path = first_file(_list_folders(place), [TRUTH])
    if path is None and required:
        raise _missing_list(TRUTH, place, "25,331")
    labels: dict[str, int] = {}
    cause = "the ground truth of another year: 2018 has seven classes"
    for row in [] if path is None else read_table(place, path, ("image", *CLASSES), cause):
        label, name = _one_hot(row), row["image"]
        if label < 0 or labels.setdefault(name, label) != label:
            raise _bad_row(place, path or place.folder, f"{name} has two classes or none")
    return labels


def _ham_archives(place: Place) -> dict[str, str]:
    """Archive of each image of HAM10000, from the column `dataset` of its own metadata."""
    path = first_file([*_list_folders(place), place.root / "HAM10000", place.root / "ham10000"], HAM_METADATA)
    if path is None:
        raise place.error(
            "the four HAM10000 centres need HAM10000_metadata, which is not there.",
            looked_at=place.folder / HAM_METADATA[0],
            expected=f"{HAM_METADATA[0]} or {HAM_METADATA[1]} beside {IMAGES}/, or in HAM10000/ under the data root",
            cause="it comes with HAM10000 and not with ISIC2019",
            get="https://doi.org/10.7910/DVN/DBW86T, HAM10000_metadata (10,015 rows; size in bytes not known)",
            counts="10,015 rows expected, 0 found",
        )
    rows = read_table(place, path, ("image_id", "dataset"), "an older copy: the column `dataset` came later")
    return {row["image_id"]: row["dataset"] for row in rows}
