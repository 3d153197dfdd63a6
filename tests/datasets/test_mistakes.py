"""The mistakes that users make with raw files, on small copies of each data set: one message in six parts for each.

Sizes of the copies are those of `conftest.SMALL`; numbers expected in the messages are the owners' published ones.
"""

import gzip
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_mistakes import (
    Change,
    append,
    array,
    batch,
    cut,
    each,
    hint,
    idx,
    keep_rows,
    matlab,
    mistake,
    move,
    no_root,
    nothing,
    picture,
    remove,
    replace,
    unchanged,
    write,
)  # fmt: skip
from raw_trees import listed

MATEK = "PKG - AML-Cytomorphology_LMU/AML-Cytomorphology"
ACEVEDO = "PBC_dataset_normal_DIB"
HAM = "HAM10000/HAM10000_metadata.csv"
ISIC = "ISIC2019/ISIC_2019_Training"
COVID = "COVID-FL/12_clients/split_real"
IDX = "MNIST/raw/train-images-idx3-ubyte.gz"
LABELS = "MNIST/raw/train-labels-idx1-ubyte.gz"
BATCH = "cifar-10-batches-py"
TRUTH, METADATA, INPUT = f"{ISIC}_GroundTruth.csv", f"{ISIC}_Metadata.csv", f"{ISIC}_Input"
FOLD, ISIC_HAM = "ISIC2019/train_test_split", "ISIC2019/HAM10000_metadata"
WATER = "waterbirds_v1.0/metadata.csv"
ANNOTATIONS = f"{MATEK}/annotations.dat"
ZEROS = ",0.0" * 8

mnist, cifar, svhn = (partial(mistake, name) for name in ("mnist", "cifar10", "svhn"))
retina, covid, ham, isic = (partial(mistake, name) for name in ("retina", "covid_fl", "ham10000", "isic2019"))
acevedo, matek, bodzas = (partial(mistake, name) for name in ("acevedo", "matek", "bodzas"))
water, spaw = partial(mistake, "waterbirds"), partial(mistake, "spawrious")

DOWNLOADS = [
    nothing("mnist", "MNIST/raw/train-images-idx3-ubyte[.gz]", "yann.lecun.com", "FEDTABLES_OFFLINE forbids"),
    nothing("fashionmnist", "FashionMNIST/raw/t10k-labels-idx1-ubyte[.gz]", "zalandoresearch/fashion-mnist"),
    nothing("cifar10", "cifar-10-batches-py/data_batch_1", "cifar-10-python.tar.gz (163 MB)"),
    nothing("cifar100", "cifar-100-python/train", "cifar-100-python.tar.gz (161 MB)", "3 files expected"),
    nothing("svhn", "train_32x32.mat", "ufldl.stanford.edu/housenumbers", "2 files expected"),
    mnist(unchanged, "6bbc9ace898e44ae57da46a324031adb is published", "strict: false", strict=True),
    cifar(unchanged, "5ff9c542aee3614f3951f8cda6e48888 is published", strict=True),
    svhn(unchanged, "e26dedcc434d2e4c54c9b2d4a06d8373 is published", strict=True),
    mnist(move("FashionMNIST", "MNIST"), "move these to FashionMNIST/raw", tree="fashionmnist", strict=True),
    mistake("fashionmnist", move("MNIST", "FashionMNIST"), "is a file of MNIST", tree="mnist"),
    mnist(cut(IDX, 0), "is empty", "47,040,016 bytes", "found:     0 bytes"),
    mnist(cut(IDX, 300), "cannot be unpacked", "found:     300 bytes", "interrupted"),
    mnist(idx(LABELS, 51, magic=2049, extra=-1), "has 58 bytes unpacked; expected 59", "60,008 bytes"),
    mnist(idx(IDX, 50, 32, 32), "has images of 32 x 32 pixels; expected 28 x 28"),
    mnist(idx(IDX, 39, 28, 28), "50 labels for 39 images"),
    mnist(idx(IDX, 70, magic=2049), "starts with the number 2049; expected 2051", "swapped"),
    mnist(write(IDX, gzip.compress(b"abc", mtime=0)), "has 3 bytes unpacked; its header alone needs 16"),
    mnist(write(LABELS, gzip.compress(struct.pack(">2I", 2049, 1) + b"\x1a", mtime=0)), "the label 26"),
    mnist(each(remove(IDX), write(IDX[:-3], "<!DOCTYPE html><html>not found</html>")), "a web page saved under"),
    mnist(each(remove(IDX), write(IDX[:-3], gzip.compress(b"abc" * 9, mtime=0))), "not unpacked"),
    mnist(each(move(LABELS, "train-labels.idx1-ubyte"), write("MNIST/raw/.hidden"), write("MNIST/raw/__MACOSX/")),
        "1 of 4 raw files are missing", "train-images-idx3-ubyte.gz, train-labels.", "dots in the names", "3 found"),
    mnist(each(*(write(f"p{k}") for k in range(8))), "p0, p1, p2, p3, p4 and 3 more in", tree="empty"),
    hint("cifar10", "cifar-10-batches-bin/", "binary version for C"),
    hint("cifar10", "cifar-10-batches-mat/", "Matlab version"),
    hint("cifar10", "cifar-100-python/", "this is cifar-100"),
    hint("cifar10", "cifar-10-batches-py/data_batch_1", "7 files expected, 1 found"),
    hint("svhn", "train.tar.gz", "format 1"),
    cifar(cut(f"{BATCH}/data_batch_3", 50), "cannot be read as a batch", "10,000 images expected"),
    cifar(batch("data_batch_1", data=np.zeros((20, 3072), np.uint8), fine_labels=[0] * 20), "0 `labels`"),
    cifar(batch("data_batch_1", data=np.zeros((20, 3000), np.uint8), labels=[0] * 20), "(20, 3000)"),
    cifar(batch("data_batch_1", data=np.zeros((19, 3072), np.uint8), labels=[0] * 20), "N labels"),
    cifar(batch("test_batch", data=np.zeros((0, 3072), np.uint8), labels=[]), "N > 0"),
    cifar(batch("test_batch", data=np.zeros((2, 3072), np.uint8), labels=[0, -1]), "expected 0 to 9"),
    cifar(batch("test_batch", data=np.zeros((2, 3072), np.uint8), labels=[0, 10]), "expected 0 to 9"),
    cifar(batch("batches.meta", fine_label_names=["a"]), "names 0 classes; CIFAR-10 has 10"),
    svhn(cut("train_32x32.mat", 500), "cannot be read as a Matlab file"),
    svhn(matlab(X=np.zeros((32, 32, 3, 4), np.uint8), y=[[0], [1], [2], [3]]), "some of them [0]"),
    svhn(matlab(X=np.zeros((32, 32, 3, 4), np.uint8), y=[[1], [2]]), "2 labels for 4 images"),
    svhn(matlab(X=np.zeros((28, 28, 3, 2), np.uint8), y=[[1], [2]]), "lacks `X` (uint8, 32 x 32 x 3"),
    svhn(matlab(images=np.zeros((32, 32, 3, 4), np.uint8)), "lacks `X`"),
]  # fmt: skip

FEDLD = [
    nothing("retina", "Retina/labels.csv, Retina/train, Retina/test, Retina/test.csv"),
    nothing("covid_fl", "COVID-FL/12_clients/split_real", "1cuvoYvt-EVs5qtA5Xgos0yUJmfPhRbwg"),
    hint("retina", "Retina/train-all/", "older copy of ViT-FL"),
    hint("retina", "Retina.zip", "data: the archive is not unpacked"),
    hint("retina", "Retina/trainLabels.csv", "files of the Kaggle competition"),
    hint("retina", "Retina/12_clients/", "this is COVID-FL"),
    hint("retina", "FedLD/Retina/labels.csv", "or the files lie deeper"),
    hint("covid_fl", "COVID-FL/5_clients/", "this is Retina"),
    retina(remove("Retina/labels.csv"), "no `labels.csv` in", "4 files and folders expected, 3 found"),
    covid(remove("COVID-FL/12_clients"), "no `12_clients/split_real` in"),
    covid(move("Retina", "COVID-FL"), "this is Retina", tree="retina"),
    retina(move("COVID-FL", "Retina"), "labels 0.0 (normal), 1.0 (diseased)", tree="covid_fl"),
    # 10 training images are dealt to the clients in turn: client_2 has 1 and 6.
    retina(remove("Retina/train/6_left.npy"), "10 images expected, 9 found", "split_2/client_2.csv 2/1", split=2),
    retina(remove("Retina/train/6_left.npy"), "1 of 10 listed images are not in train/", "train.csv 10/9"),
    retina(replace("Retina/labels.csv", "3_left_test.npy,1.0\n", ""), "have no label in labels.csv: 3_left_test.npy"),
    *(
        retina(replace("Retina/labels.csv", "0_left.npy,0.0\n", f"{row}\n"), *words)
        for row, *words in (
            ("name,label", "row 1 of labels.csv has none of the labels 0.0 (normal), 1.0 (diseased)"),
            ("0_left.npy,0.5", "found:     0_left.npy,0.5"),
            ("0_left.npy", "row 1 of labels.csv has none of the labels"),
            ("0_left.npy,0.0\n0_left.npy,1.0", "row 2 of labels.csv has none", "or another one than further up"),
        )
    ),
    retina(write("Retina/test.csv"), "test.csv is empty"),
    retina(write("Retina/test.csv", b"PK\x03\x04\xff\xfe"), "no UTF-8 text"),
    retina(remove("*/*/split_3/client_4.csv"), "missing: 5_clients/split_3/client_4.csv", "legacy_seed=2022", split=3),
    retina(append("Retina/5_clients/split_1/client_5.csv", "0_left.npy"), "1 of 3 names in 5_clients/", split=1),
    retina(remove("Retina/train/*", "Retina/train.csv"), "too few images: arrays in train/ 0"),
    retina(unchanged, "normal 4,500/5, diseased 4,499/5", "strict: false", strict=True),
    *(
        retina(change, "5_left.npy is no image", *words, "16 images expected, 15 found; expected/found: diseased 8/7",
                decoding=True)
        for change, *words in (
            (cut("Retina/train/5_left.npy", 200), "interrupted"),
            (array("Retina/train/5_left.npy", np.zeros((4, 16, 16))), "its shape is (4, 16, 16)"),
            (array("Retina/train/5_left.npy", np.zeros((0, 16, 3))), "its shape is (0, 16, 3)"),
            (array("Retina/train/5_left.npy", np.full((16, 16), np.nan)), "not finite"),
            (array("Retina/train/5_left.npy", [["a"]]), "its values are <U1"),
            (array("Retina/train/5_left.npy", np.array([[{}]], dtype=object)), "allow_pickle"),
        )
    ),
    covid(remove(f"{COVID}/ricord_c.csv"), "are missing: 12_clients/split_real/ricord_c.csv.", "11 found"),
    covid(write(f"{COVID}/ricord_d.csv", "x"), "other sites than COVID-FL has: ricord_d", strict=True),
    covid(remove("COVID-FL/train/gz/gz_1.png"), "1 of 48 listed images are not in train/", "split_real/gz.csv 4/3"),
    covid(replace("COVID-FL/labels.csv", ",2.0", ",1.0"), "too few images: COVID-19 0", strict=True),
]  # fmt: skip

BLOOD = [
    nothing("acevedo", "PBC_dataset_normal_DIB/{basophil,", "snkd93bnjr/1, PBC_dataset_normal_DIB.zip"),
    nothing("matek", "PKG - AML-Cytomorphology_LMU/AML-Cytomorphology/{BAS,", "aml-cytomorphology_lmu/, PKG"),
    nothing("bodzas", "Bodzas-23/{Basophile,", "figshare.22680517, one zip of about 45 GB"),
    hint("acevedo", "PBC_dataset_normal_DIB.zip", "the archive is not unpacked"),
    hint("matek", "AML-Cytomorphology_LMU/PKG - AML-Cytomorphology_LMU.sums", "checksums only"),
    hint("matek", "AML-Cytomorphology_LMU/PKG.aspx", "start it again"),
    acevedo(remove(f"{ACEVEDO}/platelet"), "1 of 8 class folders are missing (platelet)", "not all of"),
    matek(remove(f"{MATEK}/LYA"), "1 of 15 class folders are missing (LYA)", "15 class folders expected, 14 found"),
    acevedo(remove(f"{ACEVEDO}/monocyte/*"), "too few images: monocyte 0", "at least 2 of each expected"),
    acevedo(move(f"{ACEVEDO}/ig/*.jpg", "ig_{}_copy.jpg"), "is not called MY_<number> or MMY_<number>", "12 of them"),
    acevedo(move(f"{ACEVEDO}/neutrophil/SNE_1.jpg", "../ig/SNE_1.jpg"), "SNE_1.jpg in ig/", "another class"),
    acevedo(unchanged, "13 of 13 numbers", "17,092 images expected, 39 found", "BA 1,218/3,", strict=True),
    bodzas(picture("Bodzas-23/Normoblast/1.png"), "Normoblast/1.png have the same name", "1 version of 1 expected"),
    matek(picture(f"{MATEK}/EBO/EBO_0002.tif"), "EBO/EBO_0002.tiff have the same name"),
    matek(remove(f"{MATEK}/MYO/MYO_0002.tiff"), "annotations.dat have no file: MYO/MYO_0002.", "Aspera", "MYO 2/1"),
    matek(replace(ANNOTATIONS, "BAS_0001.tiff BAS", "BAS_0001.tiff EBO"), "in line 1"),
    matek(replace(ANNOTATIONS, "BAS_0002.tiff BAS nan nan", "BAS_0002.tiff BAS"), "4 columns expected, 2 found"),
    matek(unchanged, "15 of 15 numbers of images are not the published ones", "Aspera", "BAS 79/2", strict=True),
    matek(move("PKG*/AML*", "a/b/c/AML"), "15 of 15 class folders are missing", "found:     a/ in"),
]  # fmt: skip

SKIN = [
    nothing("ham10000", "HAM10000_images_part_1/ISIC_*.jpg", "HAM10000_images_part2.zip (5,015 images)"),
    isic(no_root, "23,247 rows", "about 9 GB", "does not exist", tree="empty"),
    hint("ham10000", "HAM10000/HAM10000_images_part1.zip", "not unpacked"),
    hint("ham10000", "HAM10000/hmnist_28_28_RGB.csv", "shrunken pixels"),
    hint("ham10000", "HAM10000/ISIC_2019_Training_GroundTruth.csv", "this is ISIC2019"),
    hint("isic2019", "ISIC2019/ISIC_2019_Test_Input/", "the challenge's test images", fold="own"),
    hint("isic2019", "ISIC2019/HAM10000_images_part_1/", "this is HAM10000 alone", fold="own"),
    ham(remove(HAM), "there is no HAM10000_metadata", "0 and 28 found"),
    # Even numbers of the 28 images, two of each class, lie in the first folder.
    ham(remove("HAM10000/HAM10000_images_part_2"), "14 of 28 listed images have no file", "part2.zip (5,015"),
    ham(remove("HAM10000/*/ISIC_0024306.jpg"), "ISIC_0024306", "akiec 4/3", "28 images expected, 27 found"),
    ham(write(HAM, "image,age_approx,lesion_id\nISIC_0000000,55,\n"), "has no column image_id, dx", "1 of them found"),
    ham(replace(HAM, ",mel,", ",melanoma,"), "unknown dx melanoma"),
    ham(replace(HAM, ",rosendahl", ",queensland"), "unknown dataset queensland"),
    ham(replace(HAM, "ISIC_0024307", "ISIC_0024306"), "lists ISIC_0024306 twice"),
    ham(write(HAM, "lesion_id,image_id,dx\nHAM_0,ISIC_00"), "is cut off in line 2"),
    ham(write(HAM, 'lesion_id,image_id,dx\n"' + "x" * 200_000), "cannot be read as a table"),
    ham(unchanged, "10,015 images expected, 28 found", "df 115/4", "strict: false", strict=True),
    ham(unchanged, "too few images: akiec 4, bcc 4,", "at least 5", "lower dataset.options.held_out", held_out=4),
    # 6 centres of 2 + 1 images of each of 8 classes; image n has class n // 3 % 8 and centre n // 24.
    isic(remove(FOLD), "dataset_creation_scripts/train_test_split", "fold=own", "1 file train_test_split expected"),
    isic(remove(TRUTH), "GroundTruth.csv is not beside", fold="own"),
    isic(remove(METADATA), "Metadata.csv is not beside", fold="own"),
    isic(replace(ISIC_HAM, ",dataset", ",data"), "the column `dataset` came later", fold="own"),
    isic(remove(ISIC_HAM), "need HAM10000_metadata", "10.7910/DVN/DBW86T", fold="own"),
    isic(remove(f"{ISIC}_Input/ISIC_0000001.jpg"), "1 of 144 listed images have no file", "bcn 24/23", "cut-down"),
    isic(each(remove(INPUT), write(f"{ISIC}_Input.zip")), "not unpacked", "bcn 24/0"),
    isic(move(INPUT, "ISIC_2019_Training_Input_preprocessed"), "shrunken JPEG files"),
    isic(each(replace(FOLD, "ISIC_0000100", "ISIC_0000100_downsampled"), remove(TRUTH)), "msk 24/23", "_downsampled"),
    *(
        isic(replace(FOLD, f"1.0{ZEROS},0,0,train,train_0", row), word)
        for row, word in (
            (f"1.0{ZEROS},0,6,train,train_6", "has the unknown center 6"),
            (f"1.0{ZEROS},0,0,valid,valid_0", "has the unknown fold valid"),
            (f"1.0{ZEROS},1,0,train,train_0", "ISIC_0000000, ISIC_0000001: its values in train_test_split contradict"),
            (f"1.0{ZEROS},0,0,train,train_1", "contradict"),
            (f"one{ZEROS},0,0,train,train_0", "contradict"),
            (f"1.0,1.0{ZEROS[4:]},0,0,train,train_0", "contradict"),
        )
    ),
    isic(replace(FOLD, "ISIC_0000002", "ISIC_0000001"), "lists ISIC_0000001 twice"),
    isic(replace(TRUTH, "ISIC_0000000,1.0,0.0", "ISIC_0000000,0.0,1.0"), "ISIC_0000000:", "different classes"),
    isic(replace(TRUTH, "ISIC_0000000,1.0", "ISIC_0000000,0.0"), "two classes or none"),
    isic(write(TRUTH, "image,MEL,NV,BCC,AKIEC\nx,1,0,0,0\n"), "has no column AK", "another year"),
    isic(replace(METADATA, "BCN_0000000", "XYZ_0000000"), "ISIC_0000000: its lesion does not tell", fold="own"),
    isic(replace(METADATA, "ISIC_0000000,", "ISIC_0000999,"), "ISIC_0000999:", "does not have it", fold="own"),
    isic(append(METADATA, "ISIC_0000000,55,torso,BCN_9,female"), "lists ISIC_0000000 twice", fold="own"),
    isic(unchanged, "23,247 images expected, 144 found", "bcn test MEL 578/1", "strict: false", strict=True),
    isic(unchanged, "bcn test 2,483/5", strict=True, fold="own"),
    isic(keep_rows(FOLD, ",train,"), "too few images: test 0"),
    isic(keep_rows(FOLD, ",test,"), "too few images: train 0"),
]  # fmt: skip

DIVERSE = [
    water(no_root, "waterbird_complete95_forest2water2/metadata.csv", "does not exist", tree="empty"),
    spaw(no_root, "data/spawrious224\n", "not downloaded yet", "3,168 + 3,168 images expected", tree="empty"),
    hint("waterbirds", "CUB_200_2011/", "CUB_200_2011 found, not WaterBirds"),
    hint("waterbirds", "waterbirds/metadata_waterbirds.csv", "SubpopBench's own list"),
    hint("waterbirds", "waterbirds_v1.0/001.Black_footed_Albatross/", "without the list of the archive"),
    hint("waterbirds", "waterbirds_v1.0/deeper/metadata.csv", "the files lie deeper"),
    hint("spawrious", "spawrious224__o2o_easy.tar.gz", "o2o archive"),
    hint("spawrious", "spawrious__m2m.tar.gz", "m2m archive"),
    hint("spawrious", "spawrious224/domain_adaptation_ds/", "beside domain_adaptation_ds"),
    hint("spawrious", "spawrious224/beach/", "the places lie here directly"),
    hint("spawrious", "photos/", "belong to another data set"),
    # Images 1 to 12 train, 13 to 20 validation, 21 to 32 test; in each three of a cell, 21 is a land bird on land.
    water(each(remove("*/*/Bird_0021.jpg", "*/*/Bird_0013.jpg"), move("*/*/Bird_0012.jpg", "x.png")),
        "2 of 24 listed images have no file: 001.Bird_0/Bird_0012.jpg",
        "expected/found: train y=1 place=1 3/2, test y=0 place=0 3/2",
    ),
    water(unchanged, "generated anew from CUB and Places", "11,788 images", "test y=1 place=0 642/3", strict=True),
    water(replace(WATER, ".jpg,1,", ".jpg,2,"), "has the unknown y 2", "32 rows with 0, 1 expected, 16 with others"),
    water(replace(WATER, ",0,0,0,", ",0,train,0,"), "has the unknown split train"),
    water(append(WATER, "1,002.Bird_1/Bird_0001.jpg,0,0,0,x"), "lists 002.Bird_1/Bird_0001.jpg twice"),
    water(keep_rows(WATER, ",2,"), "too few images: train 0"),
    spaw(remove("spawrious224/1"), "too few images: folder 1: 0", "the m2m archive has folder 0 only"),
    spaw(remove("*/*/snow/labrador"), "too few images: snow/labrador 0", "o2o archive"),
    spaw(remove("*/*/snow/labrador/*_[0-7].png"), "too few images: snow/labrador 4", "needs 6 images"),
    spaw(move("*/*/snow/labrador/*.png", "{}.jpg"), "too few images: snow/labrador 0", "are not png"),
    spaw(unchanged, "16 of 16 numbers of images", "1/snow/corgi 3,168/10", strict=True, breeds=4),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tree", "change", "options", "words", "decoding"), [*DOWNLOADS, *FEDLD, *BLOOD, *SKIN, *DIVERSE]
)
@pytest.mark.filterwarnings("ignore:Truncated File Read")
def test_one_message_in_six_parts(
    raw: Callable[..., Path],
    refused: Callable[..., str],
    name: str,
    tree: str,
    change: Change,
    options: dict[str, Any],
    words: tuple[str, ...],
    decoding: bool,
) -> None:
    root = raw() if tree == "empty" else raw(tree)
    change(root)
    message = refused(name, root, options, decoding=decoding)
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(
    "name", ["acevedo", "matek", "bodzas", "ham10000", "isic2019", "waterbirds", "spawrious", "covid_fl"]
)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_bad_image_of_each(raw: Callable[..., Path], refused: Callable[..., str], name: str) -> None:
    root, options = raw(name), {"held_out": 1} if name == "ham10000" else {}
    data = listed(name, root, **options)
    path, label = data.train.paths[0], data.train.labels[0]
    number = sum(int((part.labels == label).sum()) for part in (data.train, data.test))
    path.write_bytes(path.read_bytes()[:8])
    message = refused(name, root, options, decoding=True)
    assert message.startswith(f"{data.places[0].tree.title}: {path.name} cannot be decoded")
    assert (
        f"expected:  {path.relative_to(root)}, an image" in message and "8 bytes that begin with" in message
    )
    assert f"expected/found: {data.classes[label]} {number}/{number - 1};" in message
