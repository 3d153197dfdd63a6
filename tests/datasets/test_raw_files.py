"""Raw files: the layouts that are accepted, and every mistake that users make with them."""

from __future__ import annotations

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets
from scipy.io import savemat

from datasets.cmnist import colour
from datasets.core import download as raw
from datasets.core.base import DataError, Split
from datasets.core.prepare import load

MNIST_FIRST = {"train": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4), "t10k": (7, 2, 1, 0, 4, 1, 4, 9, 5, 9)}
FASHION_FIRST = {"train": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5), "t10k": (9, 2, 1, 1, 6, 1, 4, 6, 5, 7)}
LOOSE = {"strict": False}
FOLDERS = ["MNIST/raw", "MNIST/MNIST/raw", "MNIST/raw/raw", "MNIST", "raw", "."]
PARTS = ("looked at: ", "expected: ", "found: ", "cause: ", "get it: ", "counts: ")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTABLES_OFFLINE", "1")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fails(name: str, root: Path, cache: Path, options: dict[str, Any] = LOOSE) -> str:
    """The message of the error that loading ends in; it has all parts and leaves nothing prepared."""
    with pytest.raises(DataError) as caught:
        load(name, options, root=root, cache=cache)
    message = str(caught.value)
    assert all(part in message for part in PARTS), message
    assert not any(cache.glob(f"{name}-*"))
    return message


# Miniature raw trees in the real layouts: same names, headers and pickles, other counts and checksums --------------


def idx_images(images: np.ndarray) -> bytes:
    return struct.pack(">4I", 2051, *images.shape) + images.tobytes()


def idx_labels(labels: np.ndarray) -> bytes:
    return struct.pack(">2I", 2049, len(labels)) + labels.astype(np.uint8).tobytes()


@pytest.fixture
def mini_mnist(tmp_path: Path) -> Callable[..., Path]:
    """Writes an MNIST-like tree of 40 + 20 images and returns the root; images are 28 x 28 noise."""

    def write(
        folder: str = "MNIST/raw",
        first: dict[str, tuple[int, ...]] = MNIST_FIRST,
        zipped: bool = False,
        root: Path = tmp_path / "data",
    ) -> Path:
        place = root / folder
        place.mkdir(parents=True, exist_ok=True)
        generator = np.random.default_rng(3)
        for part, count in (("train", 40), ("t10k", 20)):
            labels = np.array([*first[part], *(k % 10 for k in range(count - 10))])
            images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
            for name, content in (
                (f"{part}-images-idx3-ubyte", idx_images(images)),
                (f"{part}-labels-idx1-ubyte", idx_labels(labels)),
            ):
                (place / (name + ".gz" * zipped)).write_bytes(gzip.compress(content) if zipped else content)
        return root

    return write


@pytest.fixture
def mini_cifar10(tmp_path: Path) -> Callable[..., Path]:
    """Writes cifar-10-batches-py with 20 rows per batch; image number i of a batch has its red plane filled with i."""

    def write(folder: str = "cifar-10-batches-py", keys: type = str) -> Path:
        place = tmp_path / "data" / folder
        place.mkdir(parents=True)
        for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
            rows = np.zeros((20, 3072), dtype=np.uint8)
            rows[:, :1024] = np.arange(20)[:, None]  # red plane
            rows[:, 2048:] = 7  # blue plane
            batch = {
                "data": rows,
                "labels": [k % 10 for k in range(20)],
                "batch_label": name,
                "filenames": [],
            }
            dump(place / name, batch, keys)
        meta = {"label_names": [f"name{k}" for k in range(10)], "num_vis": 3072}
        dump(place / "batches.meta", meta, keys)
        return tmp_path / "data"

    return write


@pytest.fixture
def mini_cifar100(tmp_path: Path) -> Callable[..., Path]:
    """Writes cifar-100-python with 100 training and 100 test rows, one per fine class."""

    def write(folder: str = "cifar-100-python") -> Path:
        place = tmp_path / "data" / folder
        place.mkdir(parents=True)
        for name in ("train", "test"):
            rows = np.full((100, 3072), 9, dtype=np.uint8)
            fine = list(range(99, -1, -1))
            batch = {"data": rows, "fine_labels": fine, "coarse_labels": [k // 5 for k in fine]}
            dump(place / name, batch, str)
        dump(place / "meta", {"fine_label_names": [f"fine{k}" for k in range(100)]}, str)
        return tmp_path / "data"

    return write


@pytest.fixture
def mini_svhn(tmp_path: Path) -> Callable[..., Path]:
    """Writes train_32x32.mat and test_32x32.mat with labels 1..10; image n has red n, green 100, blue 200."""

    def write(folder: str = ".") -> Path:
        place = tmp_path / "data" / folder
        place.mkdir(parents=True, exist_ok=True)
        for part, count in (("train", 20), ("test", 10)):
            images = np.zeros((32, 32, 3, count), dtype=np.uint8)
            images[:, :, 0] = np.arange(count)
            images[:, :, 1], images[:, :, 2] = 100, 200
            labels = np.array([[k % 10 + 1] for k in range(count)], dtype=np.uint8)
            savemat(place / f"{part}_32x32.mat", {"X": images, "y": labels})
        return tmp_path / "data"

    return write


def dump(path: Path, batch: dict[str, Any], keys: type) -> None:
    """Pickle as the owner did (protocol 2), with keys as text or as bytes."""
    with open(path, "wb") as handle:
        pickle.dump(
            {key if keys is str else key.encode(): value for key, value in batch.items()}, handle, protocol=2
        )


# MNIST and FashionMNIST ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", FOLDERS)
def test_mnist_layouts(mini_mnist: Callable[..., Path], cache: Path, folder: str, zipped: bool) -> None:
    root = mini_mnist(folder, zipped=zipped)
    data = load("mnist", LOOSE, root=root, cache=cache)
    assert data.train.images.shape == (40, 1, 28, 28) and data.test.images.shape == (20, 1, 28, 28)
    assert tuple(data.train.labels[:10]) == MNIST_FIRST["train"]
    assert tuple(data.test.labels[:10]) == MNIST_FIRST["t10k"]
    # the first four bytes of the first image follow the 16 bytes of the header
    content = (root / folder / f"train-images-idx3-ubyte{'.gz' * zipped}").read_bytes()
    content = gzip.decompress(content) if zipped else content
    assert bytes(data.train.images[0, 0, 0, :4]) == content[16:20]
    assert (data.mean, data.std, data.note) == ((0.1307,), (0.3081,), "")


def test_mixed_packed_and_unpacked(mini_mnist: Callable[..., Path], cache: Path) -> None:
    root = mini_mnist()
    path = root / "MNIST/raw/train-labels-idx1-ubyte"
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    data = load("mnist", LOOSE, root=root, cache=cache)
    assert tuple(data.train.labels[:10]) == MNIST_FIRST["train"] and len(data.train) == 40


def test_fashionmnist(mini_mnist: Callable[..., Path], cache: Path) -> None:
    data = load("fashionmnist", LOOSE, root=mini_mnist("FashionMNIST/raw", FASHION_FIRST), cache=cache)
    assert data.classes[:2] == ("T-shirt/top", "Trouser") and data.classes[9] == "Ankle boot"


@pytest.mark.parametrize("name", ["mnist", "cmnist"])
@pytest.mark.parametrize("strict", [True, False])
def test_fashionmnist_in_mnists_place(
    mini_mnist: Callable[..., Path], cache: Path, name: str, strict: bool
) -> None:
    message = fails(name, mini_mnist("MNIST/raw", FASHION_FIRST), cache, {"strict": strict})
    assert "files of FashionMNIST" in message and "9 0 0 3 0 2 7 2 5 5" in message
    assert "move these to FashionMNIST/raw" in message


def test_mnist_in_fashionmnists_place(mini_mnist: Callable[..., Path], cache: Path) -> None:
    assert "files of MNIST" in fails("fashionmnist", mini_mnist("FashionMNIST/raw", MNIST_FIRST), cache)


def test_only_the_test_files_are_of_the_other_set(mini_mnist: Callable[..., Path], cache: Path) -> None:
    root = mini_mnist("MNIST/raw", {"train": MNIST_FIRST["train"], "t10k": FASHION_FIRST["t10k"]})
    message = fails("mnist", root, cache)
    assert "files of FashionMNIST" in message and "t10k-labels" in message


def test_a_cut_down_copy_needs_strict_off(mini_mnist: Callable[..., Path], cache: Path) -> None:
    message = fails("mnist", mini_mnist(), cache, {"strict": True})
    assert "6bbc9ace898e44ae57da46a324031adb is published" in message and "strict: false" in message


def test_two_roots_are_two_sets_when_not_strict(
    mini_mnist: Callable[..., Path], tmp_path: Path, cache: Path
) -> None:
    one = mini_mnist(root=tmp_path / "one")
    two = mini_mnist(root=tmp_path / "two")
    name = "MNIST/raw/train-images-idx3-ubyte"
    (two / name).write_bytes((two / name).read_bytes()[:-1] + b"\x00")
    (one / name).write_bytes((one / name).read_bytes()[:-1] + b"\x01")
    prints = {load("mnist", LOOSE, root=root, cache=cache).fingerprint for root in (one, two)}
    assert len(prints) == 2


@pytest.mark.parametrize("size", [0, 7, 300])
@pytest.mark.parametrize("zipped", [False, True])
def test_empty_and_truncated_images(
    mini_mnist: Callable[..., Path], cache: Path, size: int, zipped: bool
) -> None:
    root = mini_mnist(zipped=zipped)
    path = root / "MNIST/raw" / f"train-images-idx3-ubyte{'.gz' * zipped}"
    path.write_bytes(path.read_bytes()[:size])
    message = fails("mnist", root, cache)
    assert str(path) in message
    assert "47,040,016 bytes" in message  # expected: the published size
    assert f"found:     {size:,} bytes" in message
    assert ("is empty" in message) == (size == 0)


def test_truncated_labels(mini_mnist: Callable[..., Path], cache: Path) -> None:
    root = mini_mnist()
    path = root / "MNIST/raw/t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    message = fails("mnist", root, cache)
    # header of 8 bytes and 20 labels
    assert "has 27 bytes unpacked, its header promises 28" in message and "10,008 bytes" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!DOCTYPE html><html>not found</html>", "web page"),
        (gzip.compress(b"abc") * 3, "without the suffix .gz"),
        (struct.pack(">2I", 2049, 4) + bytes(20), "with 2051"),
        (struct.pack(">4I", 2051, 0, 28, 28), "promises 16"),
        (idx_images(np.zeros((40, 32, 32), np.uint8)), "has images of 32 x 32 pixels, 28 x 28 belong there"),
    ],
)
def test_something_else_under_the_name(
    mini_mnist: Callable[..., Path], cache: Path, content: bytes, words: str
) -> None:
    root = mini_mnist()
    (root / "MNIST/raw/train-images-idx3-ubyte").write_bytes(content)
    assert words in fails("mnist", root, cache)


def test_counts_of_images_and_labels_differ(mini_mnist: Callable[..., Path], cache: Path) -> None:
    root = mini_mnist()
    images = np.zeros((39, 28, 28), np.uint8)
    (root / "MNIST/raw/train-images-idx3-ubyte").write_bytes(idx_images(images))
    assert "40 labels for 39 images" in fails("mnist", root, cache)


def test_a_missing_file_lists_what_was_found(mini_mnist: Callable[..., Path], cache: Path) -> None:
    root = mini_mnist()
    (root / "MNIST/raw/train-labels-idx1-ubyte").rename(root / "MNIST/raw/train-labels.idx1-ubyte")
    (root / "MNIST/raw/.hidden").touch()
    (root / "MNIST/raw/__MACOSX").mkdir()
    message = fails("mnist", root, cache)
    assert "1 of 4 raw files are missing" in message
    assert "MNIST/raw/train-labels-idx1-ubyte" in message
    assert (
        "t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, train-images-idx3-ubyte, train-labels.idx1-ubyte in"
        in message
    )
    assert "hidden" not in message and "MACOSX" not in message
    assert "dots in the names" in message
    assert "4 files expected, 3 found" in message


@pytest.mark.parametrize(
    ("name", "expected", "page"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte[.gz]", "yann.lecun.com"),
        ("cmnist", "MNIST/raw/train-images-idx3-ubyte[.gz]", "yann.lecun.com"),
        ("fashionmnist", "FashionMNIST/raw/t10k-labels-idx1-ubyte[.gz]", "zalandoresearch/fashion-mnist"),
        ("cifar10", "cifar-10-batches-py/data_batch_1", "cifar-10-python.tar.gz (163 MB)"),
        ("cifar100", "cifar-100-python/train", "cifar-100-python.tar.gz (161 MB)"),
        ("svhn", "train_32x32.mat", "ufldl.stanford.edu/housenumbers"),
    ],
)
def test_nothing_there(tmp_path: Path, cache: Path, name: str, expected: str, page: str) -> None:
    message = fails(name, tmp_path / "nowhere", cache)
    assert expected in message and page in message and "FEDTABLES_DATA" in message
    assert f"{tmp_path / 'nowhere'} does not exist" in message
    assert "FEDTABLES_OFFLINE forbids a download" in message
    assert not (tmp_path / "nowhere").exists()


def test_more_than_five_names_are_cut(tmp_path: Path, cache: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for k in range(8):
        (root / f"photo{k}.jpg").touch()
    assert "photo0.jpg, photo1.jpg, photo2.jpg, photo3.jpg, photo4.jpg and 3 more in" in fails(
        "mnist", root, cache
    )


# CMNIST -------------------------------------------------------------------------------------------------------------

# RandomState(42).random_sample() starts .37 .95 .73 .60 .16 .16 .06 .87 .60 .71: above a half is green.
FIRST_COLOURS = [0, 1, 1, 1, 0, 0, 0, 1, 1, 1]


def test_cmnist_colours(mini_mnist: Callable[..., Path], cache: Path) -> None:
    data = load("cmnist", LOOSE, root=mini_mnist(), cache=cache)
    grey = load("mnist", LOOSE, root=mini_mnist(), cache=cache)
    assert data.classes == ("digit < 5", "digit >= 5") and data.attributes == ("red", "green")
    assert data.mean == (0.1307,) * 3 and data.std == (0.3081,) * 3
    for coloured, plain in ((data.train, grey.train), (data.test, grey.test)):
        assert coloured.images.shape == (len(plain), 3, 28, 28)
        np.testing.assert_array_equal(coloured.labels, plain.labels > 4)
        # class 0 is drawn first and anew for each split
        np.testing.assert_array_equal(coloured.attributes[coloured.labels == 0][:10], FIRST_COLOURS)
        for k in range(len(plain)):
            colour = int(coloured.attributes[k])
            np.testing.assert_array_equal(coloured.images[k, colour], plain.images[k, 0])
            assert not coloured.images[k, [c for c in range(3) if c != colour]].any()


def test_cmnist_draws_class_1_after_class_0() -> None:
    """With four images of class 0 first, class 1 continues the stream at its fifth number."""
    labels = np.array([9, 0, 1, 2, 3, 8, 7, 6, 5], dtype=np.int64)
    split = colour(Split(np.ones((9, 1, 4, 4), np.uint8), labels))
    assert list(split.attributes[split.labels == 0]) == FIRST_COLOURS[:4]
    assert list(split.attributes[split.labels == 1]) == FIRST_COLOURS[4:9]


# CIFAR --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [str, bytes])
@pytest.mark.parametrize("folder", ["cifar-10-batches-py", "cifar-10-batches-py/cifar-10-batches-py", "."])
def test_cifar10(mini_cifar10: Callable[..., Path], cache: Path, folder: str, keys: type) -> None:
    root = mini_cifar10("cifar-10-batches-py" if folder == "." else folder, keys)
    if folder == ".":  # the root given is the unpacked folder itself
        root = root / "cifar-10-batches-py"
    data = load("cifar10", LOOSE, root=root, cache=cache)
    assert data.train.images.shape == (100, 3, 32, 32) and len(data.test) == 20
    assert data.classes == tuple(f"name{k}" for k in range(10))
    np.testing.assert_array_equal(data.train.labels[:20], [k % 10 for k in range(20)])
    # rows are red, green, blue planes: red holds the row's number, green 0, blue 7
    np.testing.assert_array_equal(data.train.images[23, :, 31, 31], [3, 0, 7])


def test_cifar100_reads_fine_labels(mini_cifar100: Callable[..., Path], cache: Path) -> None:
    data = load("cifar100", LOOSE, root=mini_cifar100(), cache=cache)
    assert len(data.classes) == 100 and data.classes[99] == "fine99"
    np.testing.assert_array_equal(data.train.labels, np.arange(99, -1, -1))
    load(
        "cifar100", LOOSE, root=mini_cifar100("cifar100"), cache=cache.with_name("other")
    )  # FedMR's name of the folder


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ("cifar-10-batches-bin", "binary version for C"),
        ("cifar-10-binary.tar.gz", "binary version for C"),
        ("cifar-10-batches-mat", "Matlab version"),
        ("cifar-10-python.tar.gz", "not unpacked"),
        ("cifar-100-python", "this is cifar-100"),
    ],
)
def test_cifar10_likely_causes(tmp_path: Path, cache: Path, found: str, words: str) -> None:
    (tmp_path / "data" / found).mkdir(parents=True)
    assert words in fails("cifar10", tmp_path / "data", cache)


def test_cifar_strict_wants_the_published_files(mini_cifar10: Callable[..., Path], cache: Path) -> None:
    assert "5ff9c542aee3614f3951f8cda6e48888 is published" in fails("cifar10", mini_cifar10(), cache, {})


@pytest.mark.parametrize("size", [0, 50, -10])
def test_empty_and_truncated_batch(mini_cifar10: Callable[..., Path], cache: Path, size: int) -> None:
    root = mini_cifar10()
    path = root / "cifar-10-batches-py/data_batch_3"
    path.write_bytes(path.read_bytes()[:size])
    message = fails("cifar10", root, cache)
    assert (
        str(path) in message and "31,035,999 bytes" in message and f"{path.stat().st_size:,} bytes" in message
    )


def test_a_pickle_that_would_run_code_is_refused(
    mini_cifar10: Callable[..., Path], tmp_path: Path, cache: Path
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    root = mini_cifar10()
    (root / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps({"data": Evil(), "labels": []}))
    assert "cannot be read as a batch" in fails("cifar10", root, cache)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "batch",
    [
        {"data": np.zeros((20, 3072), np.uint8), "fine_labels": [0] * 20},
        {"data": np.zeros((20, 3000), np.uint8), "labels": [0] * 20},
        {"data": np.zeros((19, 3072), np.uint8), "labels": [0] * 20},
    ],
)
def test_a_batch_of_another_shape(
    mini_cifar10: Callable[..., Path], cache: Path, batch: dict[str, Any]
) -> None:
    root = mini_cifar10()
    dump(root / "cifar-10-batches-py/data_batch_1", batch, str)
    assert "uint8 (N, 3072) and N labels belong there" in fails("cifar10", root, cache)


def test_a_batch_without_images(mini_cifar10: Callable[..., Path], cache: Path) -> None:
    root = mini_cifar10()
    batch = {"data": np.zeros((0, 3072), np.uint8), "labels": np.zeros(0, np.int64)}
    (root / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(batch, protocol=4))
    message = fails("cifar10", root, cache)
    assert "test_batch holds uint8 (0, 3072) as `data`" in message and "N > 0" in message


def noisy_batch(seed: int, labels: str, classes: int) -> dict[str, Any]:
    """Twenty rows of noise with random labels."""
    generator = np.random.default_rng(seed)
    numbers = generator.integers(0, classes, 20).tolist()
    return {"data": generator.integers(0, 256, (20, 3072), dtype=np.uint8), labels: numbers}


class TestAgainstTorchvision:
    """The same miniature files through torchvision's own readers: same pixels, labels, order and class names."""

    @pytest.fixture(autouse=True)
    def unchecked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torchvision.datasets.cifar, "check_integrity", lambda *_: True)
        monkeypatch.setattr(torchvision.datasets.SVHN, "_check_integrity", lambda self: True)

    def _same(self, split: Split, theirs: Any) -> None:
        np.testing.assert_array_equal(split.labels, [theirs[k][1] for k in range(len(theirs))])
        pixels = np.stack([np.asarray(theirs[k][0]) for k in range(len(theirs))])
        np.testing.assert_array_equal(split.images, pixels.transpose(0, 3, 1, 2))

    def test_cifar10(self, mini_cifar10: Callable[..., Path], cache: Path) -> None:
        root = mini_cifar10()
        names = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
        for seed, name in enumerate(names):
            dump(root / "cifar-10-batches-py" / name, noisy_batch(seed, "labels", 10), str)
        labels = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
        dump(root / "cifar-10-batches-py/batches.meta", {"label_names": labels}, str)
        data = load("cifar10", LOOSE, root=root, cache=cache)
        for split, train in ((data.train, True), (data.test, False)):
            theirs = torchvision.datasets.CIFAR10(str(root), train=train)
            self._same(split, theirs)
            assert list(data.classes) == theirs.classes == labels

    def test_cifar100(self, mini_cifar100: Callable[..., Path], cache: Path) -> None:
        root = mini_cifar100()
        for seed, name in enumerate(("train", "test")):
            dump(root / "cifar-100-python" / name, noisy_batch(seed, "fine_labels", 100), str)
        data = load("cifar100", LOOSE, root=root, cache=cache)
        for split, train in ((data.train, True), (data.test, False)):
            theirs = torchvision.datasets.CIFAR100(str(root), train=train)
            self._same(split, theirs)
            assert list(data.classes) == theirs.classes

    def test_svhn(self, mini_svhn: Callable[..., Path], cache: Path) -> None:
        root = mini_svhn()
        generator = np.random.default_rng(5)
        for part, count in (("train", 30), ("test", 11)):
            images = generator.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
            labels = generator.integers(1, 11, (count, 1)).astype(np.uint8)
            savemat(root / f"{part}_32x32.mat", {"X": images, "y": labels})
        data = load("svhn", LOOSE, root=root, cache=cache)
        for split, part in ((data.train, "train"), (data.test, "test")):
            self._same(split, torchvision.datasets.SVHN(str(root), split=part))
        assert data.classes == tuple("0123456789")


@pytest.mark.parametrize("label", [-1, 10])
def test_cifar10_label_out_of_range(mini_cifar10: Callable[..., Path], cache: Path, label: int) -> None:
    root = mini_cifar10()
    batch = {"data": np.zeros((20, 3072), np.uint8), "labels": [label] * 20}
    dump(root / "cifar-10-batches-py/data_batch_1", batch, str)
    assert "labels from 0 to 9 belong there" in fails("cifar10", root, cache)


def test_files_of_cifar100_under_the_names_of_cifar10(
    mini_cifar10: Callable[..., Path], mini_cifar100: Callable[..., Path], cache: Path
) -> None:
    root = mini_cifar10()
    mini_cifar100()
    folder = root / "cifar-10-batches-py"
    (root / "cifar-100-python/train").rename(folder / "data_batch_2")
    assert "100 `labels`" not in (message := fails("cifar10", root, cache)) and "0 `labels`" in message
    (root / "cifar-100-python/meta").rename(folder / "batches.meta")
    assert "batches.meta names 0 classes, CIFAR-10 has 10" in fails("cifar10", root, cache)


@pytest.mark.parametrize(
    ("name", "place", "counts"),
    [
        ("cifar10", "cifar-10-batches-py/data_batch_1", "7 files expected, 1 found"),
        ("cifar100", "cifar-100-python/meta", "3 files expected, 1 found"),
        ("svhn", "test_32x32.mat", "2 files expected, 1 found"),
        ("svhn", "extra_32x32.mat", "2 files expected, 0 found"),
    ],
)
def test_how_many_files_there_are(tmp_path: Path, cache: Path, name: str, place: str, counts: str) -> None:
    path = tmp_path / "data" / place
    path.parent.mkdir(parents=True)
    path.touch()
    message = fails(name, tmp_path / "data", cache)
    assert f"counts:    {counts}" in message and path.name in message.split("found:")[1]


# SVHN ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [".", "SVHN", "svhn", "SVHN/SVHN"])
def test_svhn(mini_svhn: Callable[..., Path], cache: Path, folder: str) -> None:
    data = load("svhn", LOOSE, root=mini_svhn(folder), cache=cache)
    assert data.train.images.shape == (20, 3, 32, 32) and len(data.test) == 10
    # label 10 is the digit 0; image n has red n, green 100, blue 200
    np.testing.assert_array_equal(data.test.labels, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0])
    np.testing.assert_array_equal(data.train.images[13, :, 5, 6], [13, 100, 200])


@pytest.mark.parametrize("size", [0, 40, 500])
def test_empty_and_truncated_mat(mini_svhn: Callable[..., Path], cache: Path, size: int) -> None:
    root = mini_svhn()
    path = root / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:size])
    message = fails("svhn", root, cache)
    assert str(path) in message and "182,040,794 bytes" in message and f"{size} bytes" in message
    assert "those of 73,257 images expected" in message


def test_svhn_of_another_kind(mini_svhn: Callable[..., Path], cache: Path) -> None:
    root = mini_svhn()
    images = np.zeros((32, 32, 3, 4), np.uint8)
    savemat(root / "train_32x32.mat", {"X": images, "y": np.array([[0], [1], [2], [3]])})
    assert "some of them [0]" in fails("svhn", root, cache)
    savemat(root / "train_32x32.mat", {"X": images, "y": np.array([[1], [2]])})
    assert "2 labels for 4 images" in fails("svhn", root, cache)
    savemat(root / "train_32x32.mat", {"X": np.zeros((28, 28, 3, 2), np.uint8), "y": np.array([[1], [2]])})
    assert "lacks `X` (uint8, 32 x 32 x 3 x N)" in fails("svhn", root, cache)
    savemat(root / "train_32x32.mat", {"images": images})
    assert "lacks `X`" in fails("svhn", root, cache)


def test_svhn_format_1(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.tar.gz").touch()
    assert "format 1" in fails("svhn", tmp_path / "data", cache)


# Download -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the owner's server answered; torchvision's classes are replaced by each test."""
    monkeypatch.delenv("FEDTABLES_OFFLINE")
    monkeypatch.setattr(raw, "_unreachable", lambda addresses: None)


@pytest.mark.usefixtures("online")
def test_download_comes_through_torchvision(
    mini_mnist: Callable[..., Path],
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    calls = []

    class FakeMNIST(torchvision.datasets.MNIST):
        def __init__(self, root: str, train: bool, download: bool) -> None:
            calls.append((train, download))
            print("progress on stdout")
            mini_mnist(root=Path(root))

    FakeMNIST.__name__ = "MNIST"
    monkeypatch.setattr(torchvision.datasets, "MNIST", FakeMNIST)
    root = tmp_path / "fresh"
    data = load("mnist", LOOSE, root=root, cache=cache)
    assert calls == [(True, True)] and len(data.train) == 40
    names = [path.name for path in (root / "MNIST/raw").iterdir()]
    assert sorted(names) == [
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
    ]
    assert "progress" not in capfd.readouterr().out
    load("mnist", LOOSE, root=root, cache=tmp_path / "other cache")
    assert len(calls) == 1  # the files are there now


@pytest.mark.usefixtures("online")
def test_download_adds_only_what_is_missing(
    mini_mnist: Callable[..., Path], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = mini_mnist()
    (root / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    kept = root / "MNIST/raw/train-images-idx3-ubyte"
    before = kept.stat().st_mtime_ns
    monkeypatch.setattr(
        torchvision.datasets, "MNIST", lambda place, **_: mini_mnist("MNIST/raw", root=Path(place))
    )
    monkeypatch.setattr(raw, "_addresses", lambda source: [])
    load("mnist", LOOSE, root=root, cache=cache)
    assert kept.stat().st_mtime_ns == before


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("error", [RuntimeError("File not found or corrupted."), TimeoutError("timed out")])
def test_a_download_that_fails_says_what_to_do(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(place: str, **_: object) -> None:
        (Path(place) / "half").touch()
        raise error

    monkeypatch.setattr(torchvision.datasets, "SVHN", broken)
    monkeypatch.setattr(raw, "_addresses", lambda source: [])
    message = fails("svhn", tmp_path / "data", cache)
    assert f"the download failed ({error})" in message and "ufldl.stanford.edu" in message
    assert not any((tmp_path / "data").iterdir())


@pytest.mark.usefixtures("online")
def test_a_data_root_that_cannot_be_written(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    message = fails("mnist", tmp_path / "file" / "data", cache)
    assert (
        f"are missing, and the data root {tmp_path}/file/data cannot be written (Not a directory)" in message
    )
    assert "cause:     set FEDTABLES_DATA to a folder that can be written" in message
    assert str(tmp_path / "file" / "data") in message and "4 files expected, 0 found" in message
    assert "MNIST/raw/train-images-idx3-ubyte" in message


def test_a_file_that_may_not_be_read(
    mini_mnist: Callable[..., Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = mini_mnist(zipped=True)
    locked, read = root / "MNIST/raw/train-labels-idx1-ubyte.gz", Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    message = fails("mnist", root, cache)
    assert "train-labels-idx1-ubyte.gz cannot be read (Permission denied)." in message
    assert f"looked at: {locked}" in message and "change its rights" in message
    assert "expected:  MNIST/raw/train-labels-idx1-ubyte[.gz], which this user can read" in message


@pytest.mark.parametrize("name", ["mnist", "cifar10", "svhn"])
def test_no_network(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The tests' own guard answers every look-up as a machine without a network would."""
    monkeypatch.delenv("FEDTABLES_OFFLINE")
    message = fails(name, tmp_path / "data", cache)
    assert "cannot be reached" in message and "get it:" in message
    assert not (tmp_path / "data").exists()


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every address is tried with a timeout of a few seconds."""
    tried = []

    def silent(address: str, timeout: float) -> None:
        tried.append((address, timeout))
        raise TimeoutError("timed out")

    monkeypatch.setattr(raw.urllib.request, "urlopen", silent)
    reason = raw._unreachable(["http://a", "http://b"])
    assert reason is not None and "http://b cannot be reached (timed out)" in reason
    assert [address for address, _ in tried] == ["http://a", "http://b"]
    assert all(0 < timeout <= 5 for _, timeout in tried)


# The real files -----------------------------------------------------------------------------------------------------


def have(folder: Path, name: str) -> Path:
    if not (folder / name).is_dir():
        pytest.skip(f"no real {name} under {folder}")
    return folder


def test_real_mnist(real_data: Path, cache: Path) -> None:
    data = load("mnist", root=have(real_data, "MNIST"), cache=cache)
    # counts per digit as published by the owner
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    np.testing.assert_array_equal(np.bincount(data.train.labels), train)
    np.testing.assert_array_equal(
        np.bincount(data.test.labels), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    )
    images = np.asarray(data.train.images) / 255.0
    assert round(images.mean(), 4) == 0.1307 and round(images.std(), 4) == 0.3081


def test_real_fashionmnist(real_data: Path, cache: Path) -> None:
    data = load("fashionmnist", root=have(real_data, "FashionMNIST"), cache=cache)
    np.testing.assert_array_equal(np.bincount(data.train.labels), np.full(10, 6000))
    np.testing.assert_array_equal(np.bincount(data.test.labels), np.full(10, 1000))


def test_real_cmnist_cells(real_data: Path, cache: Path) -> None:
    """The test cells that the authors' code makes: notes on the data sets, section 14."""
    test = load("cmnist", root=have(real_data, "MNIST"), cache=cache).test
    cells = np.bincount(test.labels * 2 + np.asarray(test.attributes)).reshape(2, 2)
    np.testing.assert_array_equal(cells, [[2571, 2568], [2505, 2356]])
