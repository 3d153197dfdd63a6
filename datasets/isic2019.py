"""ISIC2019 as FLamby's Fed-ISIC2019: dermoscopic images of eight kinds of lesions from six centres (FedMR, Table 2).

Centres, folds and preprocessing: Ogier du Terrail et al., FLamby, NeurIPS 2022. FLamby keeps the 23,247 of 25,331
images whose lesion is known; it draws its fold over images, so that a lesion may be on both sides. It brings the
shorter side to 224 pixels, evens out the colours and later crops 200 x 200. Arrays have one size, so here the central
224 x 224 are cut out after the colours: random crops cannot reach beyond it, the central crop is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from pydantic import Field

from datasets.core.base import Expected, Facts, RawOptions, UInt8Array, published
from datasets.core.folders import Place, Tree, files_by_stem, find, first_file, first_names
from datasets.core.images import ImageRow, ListedDataset, ToSquare, open_rgb, two_parts
from datasets.core.lists import read_table
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
    # Originals have 1024 x 1024 or 600 x 450; those of the centre msk vary.
    sides={"bcn": 1024, "vidir_molemax": 450, "vidir_modern": 450, "rosendahl": 450, "vienna_dias": 450},
    licence="CC BY-NC 4.0",
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
class Dermoscopy(ToSquare):
    """Decode as FLamby preprocesses: shorter side to ``size``, bilinear, colours, and then the centre."""

    how: Literal["squash", "cover"] = "cover"
    colour_constancy: bool = True

    def open(self, path: Path) -> Image.Image:
        """The image with its shorter side brought to ``size`` and its colours evened out."""
        image = open_rgb(path)
        if self.colour_constancy:
            short = min(image.size)
            width, height = (int(self.size * side / short) for side in image.size)
            if (width, height) != image.size:
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            image = Image.fromarray(shades_of_gray(np.asarray(image)))
        return image


def _expected(options: Isic2019Options) -> Expected:
    if options.fold == "own":  # as many images of each centre
        sums = {part: np.sum(counts, axis=1) for part, counts in (("train", TRAIN), ("test", TEST))}
        return published(sums, ("",), CENTRES)
    return published({"train": np.transpose(TRAIN), "test": np.transpose(TEST)}, CLASSES, CENTRES)


@dataset(
    "isic2019",
    options=Isic2019Options,
    tree=TREE,
    facts=lambda options: Facts.of(_expected(options), len(CLASSES), options.size, sources=len(CENTRES)),
)
def isic2019(options: Isic2019Options, root: Path) -> ListedDataset:
    """ISIC2019 in the six centres of FLamby's Fed-ISIC2019 (FedMR): 18,597 + 4,650 dermoscopic images, 8 classes."""
    place = find(TREE, root, (IMAGES, TRUTH, METADATA, *SPLITS))
    fold = _flamby_fold(place) if options.fold == "flamby" else _own_fold(place, options.fold_seed)
    images = files_by_stem([place.folder, *_image_folders(place)], (".jpg", ".jpeg"))
    place.check_listed([name for name, *_ in fold], images)
    rows = [ImageRow(images[name], test, label, source=centre) for name, label, centre, test in fold]
    ours = f"the fold is ours (seed {options.fold_seed}), not FLamby's: other images in the test set; "
    return ListedDataset(
        *two_parts(rows),
        classes=CLASSES,
        decode=Dermoscopy(options.size, colour_constancy=options.colour_constancy),
        sources=CENTRES,
        note=(
            f"{ours * (options.fold == 'own')}centre crop of FLamby's images"
            f"{'; colours as they are' * (not options.colour_constancy)}"
        ),
        expected=_expected(options),
        files=place.files,
    )


# The lists -----------------------------------------------------------------------------------------------------------

Fold = list[tuple[str, int, int, bool]]
"""Name, class, centre of each image, sorted by name, and whether it is for testing."""


def _flamby_fold(place: Place) -> Fold:
    """FLamby's list."""
    table = _read(place, SPLITS, target="01234567", center="012345", fold=("train", "test"))
    return [(row["image"], int(row["target"]), int(row["center"]), row["fold"] == "test") for row in table]


def _own_fold(place: Place, seed: int) -> Fold:
    """The images whose lesion is known: a fifth of each centre to the test set."""
    truth = {row["image"]: row for row in _read(place, [TRUTH], **dict.fromkeys(CLASSES))}
    labels = {name: [row[label] in ("1.0", "1") for label in CLASSES] for name, row in truth.items()}
    unclear = [name for name, ones in labels.items() if sum(ones) != 1]
    _refuse(place, unclear, f"two classes or none in {TRUTH} for")
    metadata = _read(place, [METADATA], lesion_id=None)
    lesions = {row["image"]: row["lesion_id"] for row in metadata if row["lesion_id"]}
    _refuse(place, [name for name in lesions if name not in labels], f"no row of {TRUTH} for")
    archives = _ham_archives(place) if any(lesion.startswith("HAM") for lesion in lesions.values()) else {}
    centres = {}
    for name, lesion in lesions.items():
        centres[name] = {"BCN": "bcn", "MSK": "msk", "HAM": archives.get(name, "")}.get(lesion[:3], "")
    unclear = [name for name, centre in centres.items() if centre not in CENTRES]
    _refuse(place, unclear, "a lesion that does not tell its centre for")
    members = [[name for name in centres if centres[name] == centre] for centre in CENTRES]
    generator = np.random.default_rng(seed)
    test: set[str] = set()
    for images, size in zip(members, fifths([len(images) for images in members]), strict=True):
        test.update(generator.permutation(images)[:size])
    return [
        (name, labels[name].index(True), CENTRES.index(centre), name in test)
        for name, centre in centres.items()
    ]


def fifths(sizes: Sequence[int]) -> list[int]:
    """A fifth of each size, rounded so that the sum is a fifth of their sum, rounded up.

    The largest remainders are rounded up, the first if they are equal: the sizes of FLamby's test sets.
    """
    tests = [size // 5 for size in sizes]
    short = -(-sum(sizes) // 5) - sum(tests)
    for k in sorted(range(len(sizes)), key=lambda k: -(sizes[k] % 5))[:short]:
        tests[k] += 1
    return tests


def _ham_archives(place: Place) -> Mapping[str, str]:
    """Archive of each image of HAM10000, from the column `dataset` of its own metadata."""
    path = first_file([*_list_folders(place), place.root / "HAM10000", place.root / "ham10000"], HAM_METADATA)
    if path is None:
        raise place.error(
            f"got no {HAM_METADATA[0]} of HAM10000 (https://doi.org/10.7910/DVN/DBW86T), which has four centres"
        )
    table = read_table(place, path, ("image_id", "dataset"), unique="image_id")
    return {row["image_id"]: row["dataset"] for row in table}


def _read(place: Place, names: Sequence[str], **columns: Sequence[str] | None) -> list[dict[str, str]]:
    """The list of one of these names, sorted by image, with these columns and their allowed values; None: any."""
    path = first_file(_list_folders(place), names)
    if path is None:
        raise place.error(f"got no {names[0]} beside the folder of images")
    allowed = {column: values for column, values in columns.items() if values is not None}
    table = read_table(place, path, ("image", *columns), unique="image", allowed=allowed)
    return sorted(table, key=itemgetter("image"))


def _image_folders(place: Place) -> list[Path]:
    return [place.folder / IMAGES, place.folder / IMAGES / IMAGES]


def _list_folders(place: Place) -> list[Path]:
    return [place.folder, *_image_folders(place), place.root]


def _refuse(place: Place, images: Sequence[str], problem: str) -> None:
    """Refuse lists that contradict each other, or themselves, on some images."""
    if images:
        raise place.error(f"got {problem} {first_names(images)}", expected="the lists of one version")
