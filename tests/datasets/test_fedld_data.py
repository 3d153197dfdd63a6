"""Retina and COVID-FL: the order of the images, kinds of arrays and lists, and who the clients are."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from raw_trees import listed, write_lines

from datasets.core.images import as_rgb
from datasets.core.prepare import load
from partitions import Population, make


def test_retina_is_in_the_order_of_labels_csv(raw: Callable[..., Path]) -> None:
    root = raw("retina")
    path = root / "Retina/labels.csv"
    rows = path.read_text().split()
    path.write_text("\n".join(reversed(rows)))
    data = listed("retina", root)
    assert data.mean == (0.5007, 0.5010, 0.5019) and data.std == (0.0342, 0.0535, 0.0484)
    assert [path.name for path in data.train.paths] == [f"{n}_left.npy" for n in range(9, -1, -1)]
    assert data.train.labels.tolist() == [1, 0] * 5 and data.test.labels.tolist() == [1, 0] * 3


def test_retina_lists_become_the_clients(raw: Callable[..., Path], tmp_path: Path) -> None:
    """The text behind the comma is not looked at. The images were dealt to the clients in turn."""
    root, options = raw("retina"), {"strict": False, "size": 16, "split": 2}
    write_lines(root / "Retina/5_clients/split_2/client_1.csv", ["0_left.npy,9", "5_left.npy,9"])
    data = load("retina", options, root, tmp_path / "cache")
    assert data.sources == tuple(f"client_{n}" for n in range(1, 6)) and data.test.sources is None
    people = Population(data.train.labels, 2, sources=data.train.sources, num_sources=5)
    clients = make("natural").split(people, np.random.default_rng(0))
    assert [client.tolist() for client in clients] == [[k, k + 5] for k in range(5)]


def test_arrays_of_all_kinds() -> None:
    """0, 128 and 255 as each kind of array writes them; 257 x 128 = 32,896."""
    grey = np.array([[0, 128, 255]])
    expected = np.dstack([grey] * 3)
    arrays = [
        *(grey.astype(kind) for kind in (np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64)),
        *((grey * 257).astype(kind) for kind in (np.uint16, np.int32, np.uint32)),
        *((grey / 255).astype(kind) for kind in (np.float32, np.float64)),
        np.array([[-3.0, 127.6, 300.0]]),
        grey[..., None].astype(np.uint8),
        np.dstack([expected, grey]).astype(np.uint8),
    ]
    for values in arrays:
        np.testing.assert_array_equal(as_rgb(values), expected, err_msg=f"{values.dtype} {values.shape}")


def test_retina_arrays_are_resized_without_their_aspect_ratio(raw: Callable[..., Path]) -> None:
    data = listed("retina", raw("retina"), size=16)
    plain = np.load(data.train.paths[1])
    np.testing.assert_array_equal(data.decode(data.train.paths[1]), plain.transpose(2, 0, 1))
    wide = np.zeros((16, 32, 3), np.uint8)
    wide[:, 16:] = 200
    np.save(data.train.paths[0], wide)
    image = data.decode(data.train.paths[0])
    assert (image[:, :, :7] == 0).all() and (image[:, :, 9:] == 200).all()


def test_lists_as_other_systems_write_them(raw: Callable[..., Path]) -> None:
    """A mark of UTF-8, line ends of Windows, an empty row at the end, an image twice."""
    root = raw("retina")
    for name in ("labels.csv", "test.csv", "train.csv"):
        rows = (root / "Retina" / name).read_text().split()
        (root / "Retina" / name).write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*rows, rows[0], "", ""]).encode())
    data = listed("retina", root)
    assert len(data.train) == 10 and data.test.labels.tolist() == [0, 1] * 3


def test_covid_sites_are_the_sources(raw: Callable[..., Path]) -> None:
    """Of each of 12 sites the images 0 to 3 have the classes 0 1 2 0."""
    root = raw("covid_fl")
    (root / "COVID-FL/12_clients/split_real/._gz.csv").touch()
    for strict in (False, True):
        data = listed("covid_fl", root, strict=strict)
        assert data.train.labels.tolist() == [0, 1, 2, 0] * 12
        assert data.test.labels.tolist() == [0, 1, 2] * 2 and data.test.sources is None
        np.testing.assert_array_equal(data.train.sources, np.repeat(np.arange(12), 4))
