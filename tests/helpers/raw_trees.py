"""Small copies of the papers' raw data, in the layouts that their owners publish.

Names of folders and files, formats, columns and lists are the real ones (the data sets' own tests look at each of them,
and at all that users get wrong); images are small, few, and of noise around a colour of their class.
"""

import gzip
import pickle
import struct
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.io import savemat

from datasets.core.images import ListedDataset
from datasets.core.registry import get, parse

Pixels = npt.NDArray[np.uint8]


def listed(name: str, root: Path, **options: Any) -> ListedDataset:
    """What the builder of image files lists; a cut-down copy unless `strict` is given."""
    entry = get(name)
    made = entry.build(parse(entry, {"strict": False, **options}), root)
    assert isinstance(made, ListedDataset)
    return made


def pixels(label: int, number: int, height: int, width: int) -> Pixels:
    """Image ``number`` of a class, uint8 [height, width, 3]."""
    colour = 40 + 35 * np.array([label % 3, label // 3 % 3, label // 9 % 12])
    noise = np.random.default_rng([label, number]).integers(-30, 31, (height, width, 3))
    return np.clip(colour + noise, 0, 255).astype(np.uint8)


def picture(
    path: Path, label: int, number: int, height: int = 18, width: int = 24, mode: str = "RGB"
) -> None:
    """Write one image file; its format is that of the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(label, number, height, width)).convert(mode).save(path)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


# FedLD ---------------------------------------------------------------------------------------------------------------


def retina(root: Path, train: int = 40, size: int = 256) -> None:
    """``train`` + 6 images of 2 classes as arrays of ``size`` x ``size``; three splits of five clients."""
    top, labels = root / "Retina", []
    for part, count in (("train", train), ("test", 6)):
        names = [f"{n}_left{'_test' * (part == 'test')}.npy" for n in range(count)]
        for n, name in enumerate(names):
            (top / part).mkdir(parents=True, exist_ok=True)
            np.save(top / part / name, pixels(n % 2, n, size, size))
        write_lines(top / f"{part}.csv", names)
        labels += [f"{name},{n % 2}.0" for n, name in enumerate(names)]
        for split, client in product((1, 2, 3), range(5)) if part == "train" else ():
            write_lines(top / f"5_clients/split_{split}/client_{client + 1}.csv", names[client::5])
    write_lines(top / "labels.csv", labels)


def covid_fl(root: Path) -> None:
    """12 sites of 4 images, 3 classes, and 6 test images."""
    top, labels = root / "COVID-FL", []
    rsna = [f"rsna-{k}" for k in range(5)]
    for site in ("bimcv", "cohen", "eurorad", "gz", "ml-workgroup", "ricord_c", *rsna, "sirm"):
        names = [f"{site}/{site}_{n}.png" for n in range(4)]
        for n, name in enumerate(names):
            picture(top / "train" / name, n % 3, n, 30, 40, "L")
            labels.append(f"{name},{n % 3}.0")
        write_lines(top / f"12_clients/split_real/{site}.csv", names)
    names = [f"test_{n}.jpg" for n in range(6)]
    for n, name in enumerate(names):
        picture(top / "test" / name, n % 3, n, 30, 40)
        labels.append(f"{name},{n % 3}.0")
    write_lines(top / "test.csv", names)
    write_lines(top / "labels.csv", labels)


# FedSDC --------------------------------------------------------------------------------------------------------------

ACEVEDO = {
    "basophil": ("BA",), "eosinophil": ("EO",), "erythroblast": ("ERB",), "lymphocyte": ("LY",), "monocyte": ("MO",),
    "ig": ("MMY", "MY", "PMY", "IG"), "neutrophil": ("SNE", "BNE", "NEUTROPHIL"), "platelet": ("PLATELET",),
}  # fmt: skip
MATEK = "BAS EBO EOS KSC LYA LYT MMZ MOB MON MYB MYO NGB NGS PMB PMO".split()
BODZAS = (
    *("Basophile", "Eosinophile", "Lymphoblast", "Lymphocyte", "Monocyte", "Myeloblast"),
    *("Neutrophile Band", "Neutrophile Segment", "Normoblast"),
)
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
OBJECTS = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def acevedo(root: Path, each: int = 20, size: tuple[int, int] = (18, 24)) -> None:
    """``each`` images of each of the 13 prefixes."""
    for folder, prefixes in ACEVEDO.items():
        for label, n in product(range(len(prefixes)), range(each)):
            name = f"{prefixes[label]}_{1000 * label + n}.jpg"
            picture(root / "PBC_dataset_normal_DIB" / folder / name, ord(folder[0]) % 10 + label, n, *size)


def matek(root: Path, each: int = 20) -> None:
    """``each`` images of each of the 15 codes, with an alpha channel."""
    top = root / "PKG - AML-Cytomorphology_LMU/AML-Cytomorphology"
    for label, code in enumerate(MATEK):
        for n in range(1, each + 1):
            picture(top / f"{code}/{code}_{n:04}.tiff", label, n, 20, 20, "RGBA")


def bodzas(root: Path, each: int = 20) -> None:
    """``each`` images of each of the 9 classes."""
    for label, folder in enumerate(BODZAS):
        for n in range(each):
            picture(root / "Bodzas-23" / folder / f"{n}.bmp", label, n)


def ham10000(root: Path, each: int = 24) -> None:
    """``each`` images of each of 7 classes, of four archives, in both folders of images."""
    archives = ("vidir_molemax", "vidir_modern", "rosendahl", "vienna_dias")
    lines = ["lesion_id,image_id,dx,dx_type,age,sex,localization,dataset"]
    classes = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
    for n in range(each * len(classes)):
        name, label = f"ISIC_{24306 + n:07}", n % len(classes)
        picture(root / f"HAM10000/HAM10000_images_part_{1 + n % 2}" / f"{name}.jpg", label, n)
        lines.append(f"HAM_{n:07},{name},{classes[label]},histo,80.0,male,scalp,{archives[n % 4]}")
    write_lines(root / "HAM10000/HAM10000_metadata.csv", lines)


# FedDiverse ----------------------------------------------------------------------------------------------------------


def waterbirds(root: Path, train: int = 110) -> None:
    """The list of WILDS: ``train`` training images of each (class, place), 2 of validation, 3 of test."""
    top = root / "waterbirds_v1.0"
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    cells = [
        (label, split, place)
        for split, count in ((0, train), (1, 2), (2, 3))
        for label, place in product((0, 1), (0, 1))
        for _ in range(count)
    ]
    for n, (label, split, place) in enumerate(cells, 1):
        name = f"{1 + n % 3:03}.Bird_{n % 3}/Bird_{n:04}.jpg"
        picture(top / name, 2 * label + place, n)
        lines.append(f"{n},{name},{label},{split},{place},/f/forest/{n:08}.jpg")
    write_lines(top / "metadata.csv", lines)


def spawrious(root: Path, each: int = 130) -> None:
    """``each`` images of each of 4 breeds in each of both halves on beach and snow."""
    breeds, places = ("labrador", "dachshund", "bulldog", "corgi"), ("beach", "snow")
    for half, place, breed, n in product((0, 1), (0, 1), range(4), range(each)):
        name = f"{half}/{places[place]}/{breeds[breed]}/{places[place]}_{breeds[breed]}_{n}.png"
        picture(root / "spawrious224" / name, 2 * breed + place, 200 * half + n, 16, 16)


FIRST = {
    ("MNIST", "train"): (5, 0, 4, 1, 9, 2, 1, 3, 1, 4),
    ("MNIST", "t10k"): (7, 2, 1, 0, 4, 1, 4, 9, 5, 9),
    ("FashionMNIST", "train"): (9, 0, 0, 3, 0, 2, 7, 2, 5, 5),
    ("FashionMNIST", "t10k"): (9, 2, 1, 1, 6, 1, 4, 6, 5, 7),
}
"""The first labels of the real files."""


def mnist(root: Path, folder: str = "MNIST", train: int = 60) -> None:
    """``train`` training images and 3 test images of each of 10 classes, in packed IDX files."""
    place = root / folder / "raw"
    place.mkdir(parents=True)
    for prefix, each in (("train", train), ("t10k", 3)):
        labels = np.array([*FIRST[folder, prefix], *(k % 10 for k in range(10 * each))], dtype=np.uint8)
        images = np.stack([pixels(int(label), n, 28, 28)[..., 0] for n, label in enumerate(labels)])
        for name, content in (
            ("images-idx3", struct.pack(">4I", 2051, *images.shape) + images.tobytes()),
            ("labels-idx1", struct.pack(">2I", 2049, len(labels)) + labels.tobytes()),
        ):
            (place / f"{prefix}-{name}-ubyte.gz").write_bytes(gzip.compress(content))


# PACS ----------------------------------------------------------------------------------------------------------------


def pacs(root: Path, each: int = 20) -> None:
    """``each`` images of each of 7 classes in 4 domains; the sketches are PNG files."""
    for domain, (label, name), n in product(DOMAINS, enumerate(OBJECTS), range(each)):
        file = f"n02106662_{n}-1.png" if domain == "sketch" else f"pic_{n:03}.jpg"
        picture(root / "PACS" / domain / name / file, label, n, 20, 20)


# FedMR ---------------------------------------------------------------------------------------------------------------


def fashionmnist(root: Path) -> None:
    """40 + 3 images of each class."""
    mnist(root, "FashionMNIST", train=40)


def _cifar(top: Path, sizes: dict[str, int], classes: int, key: str, meta: dict[str, object]) -> None:
    top.mkdir()
    for name, count in sizes.items():
        labels = [n % classes for n in range(count)]
        rows = np.stack([pixels(k, n, 32, 32).transpose(2, 0, 1).ravel() for n, k in enumerate(labels)])
        batch = {"data": rows, key: labels, "coarse_labels": [k // 5 for k in labels], "filenames": []}
        (top / name).write_bytes(pickle.dumps(batch, protocol=2))
    for name, content in meta.items():
        (top / name).write_bytes(pickle.dumps(content, protocol=2))


def cifar10(root: Path) -> None:
    """80 images in each of five batches, 20 in the test batch."""
    sizes = {f"data_batch_{k}": 80 for k in range(1, 6)} | {"test_batch": 20}
    meta = {"batches.meta": {"label_names": [f"name{k}" for k in range(10)]}}
    _cifar(root / "cifar-10-batches-py", sizes, 10, "labels", meta)


def cifar100(root: Path) -> None:
    """12 + 1 images of each fine class."""
    meta = {"meta": {"fine_label_names": [f"fine{k}" for k in range(100)]}}
    _cifar(root / "cifar-100-python", {"train": 1200, "test": 100}, 100, "fine_labels", meta)


def svhn(root: Path) -> None:
    """400 + 20 images; the label of the digit 0 is 10."""
    for part, count in (("train", 400), ("test", 20)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.stack([pixels(int(k), n, 32, 32) for n, k in enumerate(labels)], axis=-1)
        content = {"X": images, "y": np.where(labels == 0, 10, labels)[:, None]}
        savemat(root / f"{part}_32x32.mat", content, do_compression=True)


def isic2019(root: Path) -> None:
    """6 centres with 2 + 1 images of each of 8 classes, and FLamby's list."""
    top, fold = root / "ISIC2019", ["image,MEL,NV,BCC,AK,BKL,DF,VASC,SCC,UNK,target,center,fold,fold2"]
    for n, (centre, label, copy) in enumerate(product(range(6), range(8), range(3))):
        part, row = (
            "test" if copy == 2 else "train",
            ",".join("1.0" if k == label else "0.0" for k in range(9)),
        )
        fold.append(f"ISIC_{n:07},{row},{label},{centre},{part},{part}_{centre}")
        picture(top / f"ISIC_2019_Training_Input/ISIC_{n:07}.jpg", label, n)
    write_lines(top / "train_test_split", fold)


WRITERS: tuple[Callable[[Path], None], ...] = (
    *(retina, covid_fl, acevedo, matek, bodzas, ham10000, waterbirds, spawrious, pacs),
    *(mnist, fashionmnist, cifar10, cifar100, svhn, isic2019),
)
