"""MNIST, FashionMNIST, CMNIST, CIFAR and SVHN: what is read, and how missing files are downloaded."""

import gzip
import hashlib
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pooch
import pytest
import raw_trees
import torchvision.datasets

from datasets import svhn
from datasets.cifar import CIFAR10, CIFAR100
from datasets.core.base import DataError
from datasets.core.download import DownloadTree, RawFolder, fetch
from datasets.core.prepare import load
from datasets.mnist import FASHION, MNIST

LOOSE = {"strict": False}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


# What is read --------------------------------------------------------------------------------------------------------


def test_mnist(raw: Callable[..., Path], cache: Path) -> None:
    """Some files are packed, some are not; pixels follow the 16 bytes of the header."""
    root = raw("mnist")
    path = root / "MNIST/raw/train-images-idx3-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.with_suffix("").write_bytes(content)
    path.unlink()
    data = load("mnist", LOOSE, root, cache)
    assert data.train.images.shape == (50, 1, 28, 28) and data.test.images.shape == (40, 1, 28, 28)
    assert tuple(data.train.labels[:10]) == (5, 0, 4, 1, 9, 2, 1, 3, 1, 4)
    assert tuple(data.test.labels[:10]) == (7, 2, 1, 0, 4, 1, 4, 9, 5, 9)
    assert bytes(data.train.images[0, 0, 0, :4]) == content[16:20]
    assert (data.mean, data.std, data.note) == ((0.1307,), (0.3081,), "")


def test_two_roots_are_two_sets_when_not_strict(
    raw: Callable[..., Path], tmp_path: Path, cache: Path
) -> None:
    one = raw("mnist")
    raw_trees.mnist(tmp_path / "two", train=5)
    prints = {load("mnist", LOOSE, root, cache).fingerprint for root in (one, tmp_path / "two")}
    assert len(prints) == 2


# RandomState(42).random_sample() starts .37 .95 .73 .60 .16 .16 .06 .87 .60 .71: above a half is green.
FIRST_COLOURS = [0, 1, 1, 1, 0, 0, 0, 1, 1, 1]


def test_cmnist_colours(raw: Callable[..., Path], cache: Path) -> None:
    root = raw("mnist")
    data, grey = (load(name, LOOSE, root, cache) for name in ("cmnist", "mnist"))
    assert data.classes == ("digit < 5", "digit >= 5") and data.attributes == ("red", "green")
    assert data.mean == (0.1307,) * 3 and data.std == (0.3081,) * 3
    for coloured, plain in ((data.train, grey.train), (data.test, grey.test)):
        assert coloured.images.shape == (len(plain), 3, 28, 28)
        np.testing.assert_array_equal(coloured.labels, plain.labels > 4)
        # class 0 is drawn first and anew for each split
        np.testing.assert_array_equal(coloured.attributes[coloured.labels == 0][:10], FIRST_COLOURS)
        every = np.arange(len(plain))
        np.testing.assert_array_equal(coloured.images[every, coloured.attributes], plain.images[:, 0])
        assert not coloured.images[every, 1 - np.asarray(coloured.attributes)].any()
        assert not coloured.images[:, 2].any()


@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100", "SVHN"])
def test_the_same_as_torchvisions_readers(
    raw: Callable[..., Path], cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Pixels, labels, order and names of classes of the same miniature files."""
    monkeypatch.setattr(torchvision.datasets.cifar, "check_integrity", lambda *_: True)
    monkeypatch.setattr(torchvision.datasets.SVHN, "_check_integrity", lambda self: True)
    root = raw(name.lower())
    data = load(name.lower(), LOOSE, root, cache)
    for part, split in (("train", data.train), ("test", data.test)):
        which = {"split": part} if name == "SVHN" else {"train": part == "train"}
        theirs = getattr(torchvision.datasets, name)(str(root), **which)
        pixels, labels = zip(*theirs, strict=True)
        np.testing.assert_array_equal(split.labels, labels)
        np.testing.assert_array_equal(split.images, np.stack(pixels).transpose(0, 3, 1, 2))
        assert list(data.classes) == getattr(theirs, "classes", list("0123456789"))


# Downloads -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], DownloadTree]:
    """The tree of a data set whose second mirror is a folder here; the first is gone. Checksums are those there."""

    def downloader(**_: object) -> Callable[..., None]:
        def copy(url: str, path: str, _: object) -> None:
            Path(path).write_bytes(Path(url.removeprefix("http://")).read_bytes())

        return copy

    monkeypatch.setattr(pooch, "HTTPDownloader", downloader)

    def serve(name: str) -> DownloadTree:
        tree, server = (
            {"mnist": MNIST.tree, "cifar10": CIFAR10.tree, "svhn": svhn.TREE}[name],
            tmp_path / "server",
        )
        server.mkdir()
        getattr(raw_trees, name)(server)
        folder = server / tree.folders[0]
        files = {file: md5(RawFolder(tree, server, folder).read(file)) for file in tree.files}
        if name == "cifar10":
            with tarfile.open(server / "cifar-10-python.tar.gz", "w:gz") as archive:
                archive.add(folder, folder.name)
            folder = server
        packed = {file: md5((folder / file).read_bytes()) for file in tree.published}
        return replace(tree, files=files, published=packed, mirrors=("http:///gone/", f"http://{folder}/"))

    return serve


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.mark.parametrize("name", ["mnist", "cifar10", "svhn"])
def test_missing_files_are_downloaded(
    tmp_path: Path, served: Callable[[str], DownloadTree], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """From the second mirror, since the first has none; the second time they are there."""
    tree = served(name)
    folder = fetch(tree, tmp_path / "data")
    assert folder.folder == tmp_path / "data" / tree.folders[0] and folder.missing() == []
    assert all(folder.read(file, verify=True) for file in tree.files)
    monkeypatch.setattr(pooch, "retrieve", lambda *_: pytest.fail("downloaded again"))
    assert fetch(tree, tmp_path / "data").missing() == []


@pytest.mark.parametrize("name", ["mnist", "cifar10", "svhn"])
def test_a_download_that_is_not_the_published_file(
    tmp_path: Path, served: Callable[[str], DownloadTree], name: str
) -> None:
    tree = served(name)
    wrong = replace(tree, published=dict.fromkeys(tree.published, "0" * 32))
    with pytest.raises(DataError, match=rf"{tree.title}: .*: got no .* by a download from .*MD5 hash"):
        fetch(wrong, tmp_path / "data")
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


def test_addresses_and_checksums_are_torchvisions() -> None:
    theirs = torchvision.datasets
    for kind, other in ((MNIST, theirs.MNIST), (FASHION, theirs.FashionMNIST)):
        assert list(kind.tree.mirrors) == other.mirrors
        assert list(kind.tree.published.items()) == other.resources
    for kind, cifar in ((CIFAR10, theirs.CIFAR10), (CIFAR100, theirs.CIFAR100)):
        assert (f"{kind.tree.mirrors[0]}{cifar.filename}",) == (cifar.url,)
        assert kind.tree.published == {cifar.filename: cifar.tgz_md5}
        assert [md5 for _, md5 in (*cifar.train_list, *cifar.test_list)] == [*kind.tree.files.values()][:-1]
    for url, name, code in (theirs.SVHN.split_list[part] for part in ("train", "test")):
        assert svhn.TREE.published[name] == code and url == svhn.TREE.mirrors[0] + name


# The real files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "fashionmnist", "cmnist"])
def test_real_files_have_the_published_counts(real_data: Path, cache: Path, name: str) -> None:
    if not (real_data / ("FashionMNIST" if name == "fashionmnist" else "MNIST")).is_dir():
        pytest.skip(f"no real files of {name} under {real_data}")
    data = load(name, root=real_data, cache=cache)
    assert data.expected and all(data.count(*cell) == number for *cell, number in data.expected)
    if name == "mnist":
        images = np.asarray(data.train.images) / 255.0
        assert round(images.mean(), 4) == 0.1307 and round(images.std(), 4) == 0.3081
