"""Acevedo-20, Matek-19, Bodzas-23 and NIID-2: published numbers, classes, and what is read of miniature raw trees."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from raw_trees import listed, picture

from datasets import acevedo, bodzas, matek, niid2
from datasets.blood_cells import BloodOptions, Cells, split_by_class, training_share
from datasets.core.base import DataError
from datasets.core.images import Files

ACEVEDO_TOP = "PBC_dataset_normal_DIB"
MATEK_TOP = "PKG - AML-Cytomorphology_LMU/AML-Cytomorphology"


def fake_cells(counts: Mapping[str, int]) -> Cells:
    """Files that are not there, as many as were published."""
    return {code: [Path(f"{code}/{k}") for k in range(number)] for code, number in counts.items()}


def per_class(part: Files, classes: int) -> list[int]:
    return np.bincount(part.labels, minlength=classes).tolist()


# Published numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("archive", "classes", "train", "test"),
    [
        # 80 % of ten subtypes are FedSDC's 11,630 (of 14,543); of the eight folders they would be 13,671.
        (acevedo.PUBLISHED, acevedo.CLASSES["subtypes"], 11_630, 2_913),
        (acevedo.PUBLISHED, acevedo.CLASSES["folders"], 13_671, 3_421),
    ],
)
def test_eighty_percent_of_each_class(
    archive: dict[str, int], classes: dict[str, tuple[str, ...]], train: int, test: int
) -> None:
    assert sum(archive.values()) == 17_092
    assert [training_share(number) for number in (2, 5, 11, 1218, 1633)] == [1, 4, 8, 974, 1306]
    data = split_by_class(fake_cells(archive), archive, classes, BloodOptions())
    assert (len(data.train), len(data.test)) == (train, test)
    assert all(data.count(*cell) == number for *cell, number in data.expected)


def test_niid2_under_the_map(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """48,917 images: 18,365 - 18 (PMB), 17,092 - 151 - 50 - 2348, 16,027; at most 300 of a cell for training."""
    for module in (matek, acevedo, bodzas):
        name = f"{module.__name__.rpartition('.')[2]}_cells"
        monkeypatch.setattr(module, name, lambda _, counts=module.PUBLISHED: fake_cells(counts))
    data = niid2.niid2(niid2.Niid2Options(), tmp_path)
    assert (len(data.classes), data.sources) == (13, ("matek", "acevedo", "bodzas"))
    train, test = np.zeros((13, 3), dtype=int), np.zeros((13, 3), dtype=int)
    for table, part in ((train, data.train), (test, data.test)):
        np.add.at(table, (part.labels, part.sources), 1)
    assert (train + test).tolist() == [
        [79, 1218, 1023],  # basophil
        [424, 3117, 1017],  # eosinophil
        [78, 1551, 510],  # erythroblast
        [3268, 0, 2534],  # myeloblast: MYO, not MYB
        [70, 592, 0],  # promyelocyte
        [42, 1137, 0],  # myelocyte
        [15, 1015, 0],  # metamyelocyte
        [109, 1633, 99],  # band neutrophil
        [8484, 1646, 3201],  # segmented neutrophil
        [26 + 1789, 1420, 2040],  # monocyte
        [3937, 1214, 2557 + 3046],  # lymphocyte
        [11, 0, 0],  # atypical lymphocyte
        [15, 0, 0],  # smudge cell
    ]
    np.testing.assert_array_equal(train, np.minimum(train + test, 300))
    assert len({*data.train.paths, *data.test.paths}) == 48_917
    assert all(data.count(*cell) == number for *cell, number in data.expected)


# Miniature trees -----------------------------------------------------------------------------------------------------


def test_acevedo_classes_and_seeds(raw: Callable[..., Path]) -> None:
    root = raw("acevedo")
    (root / ACEVEDO_TOP / "neutrophil/.DS_169665.jpg").write_bytes(b"junk")
    (root / ACEVEDO_TOP / "__MACOSX").mkdir()
    eight = listed("acevedo", root, classes="folders")
    # four prefixes of 3 images in ig: 9 of 12; three in neutrophil: 7 of 9; of 3 images 2
    assert eight.classes == tuple(acevedo.PREFIXES) and per_class(eight.train, 8) == [2, 2, 2, 9, 2, 2, 7, 2]
    one, again, other = (listed("acevedo", root, seed=seed) for seed in (0, 0, 1))
    assert list(one.train.paths) == list(again.train.paths) != list(other.train.paths)
    assert {*one.train.paths, *one.test.paths} == {*other.train.paths, *other.test.paths}
    assert not set(one.train.paths) & set(one.test.paths)
    for path, label in zip(one.train.paths, one.train.labels, strict=True):
        assert path.name.split("_")[0] in acevedo.SUBTYPES[one.classes[label]]


def test_bodzas_equal_names_fields_and_spellings(
    raw: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of their numbers: 2 before 10. Nothing is opened before it is decoded."""
    root = raw("bodzas", each=12)
    top = root / "Bodzas-23"
    picture(top / "Monocyte/field_3.bmp", 0, 0)
    picture(top / "Fields/0.bmp", 0, 0)
    for old, new in (("Basophile", "basophil"), ("Neutrophile Band", "NEUTROPHIL_BAND")):
        (top / old).rename(top / new)
    monkeypatch.setattr(Image, "open", lambda *_: pytest.fail("opened"))
    data = listed("bodzas", root)
    assert per_class(data.train, 9) == [9] * 9 and per_class(data.test, 9) == [3] * 9
    assert len({*data.train.paths, *data.test.paths}) == 9 * 12
    numbers = [int(path.stem) for path in data.train.paths[:9]]
    assert numbers == sorted(numbers) and data.train.paths[0].parent.name == "basophil"
    labels = {
        path.parent.name: label for path, label in zip(data.train.paths, data.train.labels, strict=True)
    }
    assert (labels["NEUTROPHIL_BAND"], labels["Normoblast"]) == (6, 8)
    assert (data.classes[0], data.classes[8]) == ("basophil", "erythroblast")


def test_niid2_takes_from_all_three(raw: Callable[..., Path]) -> None:
    """Of 2 Matek, 3 Acevedo and 2 Bodzas images of a cell, one is for clients; MOB + MON have 4 in one class."""
    root = raw("acevedo", "matek", "bodzas")
    data = listed("niid2", root, pool=1)
    assert data.train.sources is not None and data.test.sources is not None
    assert np.bincount(data.train.sources).tolist() == [13, 10, 8]
    assert np.bincount(data.test.sources).tolist() == [13 + 2, 20, 8 + 2]
    for path, label, source in zip(data.test.paths, data.test.labels, data.test.sources, strict=True):
        code = path.parent.name if source != 1 else path.name.split("_")[0]
        assert code in niid2.CLASSES[data.classes[label]][source]
    # MOB and MON are the largest class of the miniature, 2 + 2 images.
    with pytest.raises(DataError, match=r"pool: got 300; expected less than 4,"):
        listed("niid2", root)
