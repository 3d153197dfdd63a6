"""ISIC2019 as FLamby's Fed-ISIC2019: dermoscopic images of eight kinds of lesions from six centres (FedMR, Table 2).

Centres, folds and preprocessing: Ogier du Terrail et al., FLamby, NeurIPS 2022. FLamby keeps the 23,247 of 25,331
images whose lesion is known; it draws its fold over images, so that a lesion may be on both sides. It brings the
shorter side to 224 pixels, evens out the colours and later crops 200 x 200. Arrays have one size, so here the central
224 x 224 are cut out after the colours: random crops cannot reach beyond it, the central crop is the same.
"""

from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from pydantic import Field

from datasets.core.base import Facts, RawOptions, UInt8Array, published
from datasets.core.folders import Tree, files_by_stem, find, first_file
from datasets.core.images import ImageRow, ListedDataset, ToSquare, open_rgb, two_parts
from datasets.core.lists import read_table
from datasets.core.registry import dataset

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
SPLITS = (
    *("train_test_split", "train_test_split.csv", "train_test_split.txt"),
    *("fed_isic2019_train_test_split", "fed_isic2019_train_test_split.csv", "isic2019_train_test_split.csv"),
)
FLAMBY = (
    "https://github.com/owkin/FLamby, flamby/datasets/fed_isic2019/dataset_creation_scripts/train_test_split "
    "(23,247 rows)"
)

TREE = Tree(
    title="ISIC2019",
    folders=("ISIC2019", "ISIC_2019", "isic-2019", "fed_isic2019", "Fed-ISIC2019"),
    layout=f"{IMAGES}/ISIC_*.jpg and train_test_split in ISIC2019/",
    page="https://challenge.isic-archive.com/data/#2019",
    archive=f"{IMAGES}.zip (about 9 GB); the fold: {FLAMBY}",
    # Originals have 1024 x 1024 or 600 x 450; those of the centre msk vary.
    sides={"bcn": 1024, "vidir_molemax": 450, "vidir_modern": 450, "rosendahl": 450, "vienna_dias": 450},
    licence="CC BY-NC 4.0",
)


class Isic2019Options(RawOptions):
    """Options of ISIC2019.

    Attributes:
        size: Height and width in pixels: the shorter side is brought to it, then the centre is cut out.
        colour_constancy: Even out the colours by shades of gray, as FLamby does.
    """

    size: int = Field(default=224, ge=8, le=1024)
    colour_constancy: bool = True


def shades_of_gray(image: UInt8Array) -> UInt8Array:
    """Scale the channels of uint8 [H, W, 3] as if the light had been grey.

    The light is the Minkowski mean of each channel, e_c = (mean I_c^p)^(1/p), brought to length 1; I_c is divided by
    sqrt(3) e_c (Finlayson and Trezzi 2004; p = 6). Values over 255 become 255, where FLamby's cast wraps around.
    """
    values = np.arange(256, dtype=np.float64)
    channels = [image[..., channel] for channel in range(3)]
    light = np.array([(values**6)[channel].mean() ** (1 / 6) for channel in channels])
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


EXPECTED = published({"train": np.transpose(TRAIN), "test": np.transpose(TEST)}, CLASSES, CENTRES)


@dataset(
    "isic2019",
    options=Isic2019Options,
    tree=TREE,
    facts=lambda options: Facts.of(EXPECTED, len(CLASSES), options.size, sources=len(CENTRES)),
)
def isic2019(options: Isic2019Options, root: Path) -> ListedDataset:
    """ISIC2019 in the six centres of FLamby's Fed-ISIC2019 (FedMR): 18,597 + 4,650 dermoscopic images, 8 classes."""
    place = find(TREE, root, (IMAGES, *SPLITS))
    image_folders = [place.folder / IMAGES, place.folder / IMAGES / IMAGES]
    list_file = first_file([place.folder, *image_folders, place.root], SPLITS)
    if list_file is None:
        raise place.error(f"got no {SPLITS[0]} beside the folder of images")
    allowed = {"target": "01234567", "center": "012345", "fold": ("train", "test")}
    table = read_table(place, list_file, ("image", *allowed), unique="image", allowed=allowed)
    table.sort(key=itemgetter("image"))
    images = files_by_stem([place.folder, *image_folders], (".jpg", ".jpeg"))
    place.check_listed([row["image"] for row in table], images)
    rows = [
        ImageRow(images[row["image"]], row["fold"] == "test", int(row["target"]), source=int(row["center"]))
        for row in table
    ]
    return ListedDataset(
        *two_parts(rows),
        classes=CLASSES,
        decode=Dermoscopy(options.size, colour_constancy=options.colour_constancy),
        sources=CENTRES,
        note="centre crop of FLamby's images" + "; colours as they are" * (not options.colour_constancy),
        expected=EXPECTED,
        files=place.files,
    )
