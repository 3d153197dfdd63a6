"""Identity of a partition, its folder on disk, what is printed and drawn of it."""

import json
import multiprocessing
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

import partitions.core.store
from benchmark.cli.partition import client_names, partition_text
from benchmark.reports.pictures import client_picture, draw_bubbles, fit
from partitions import Partition, Partitioner, PartitionError, Population, make_partition
from partitions.core.store import save

KEY = "fake:f00d:None"
PCDD = {"clients": 4, "classes_per_client": 2}
TWO = {"clients": [{"matrix": [[4, 0], [0, 2]]}, {"matrix": [[1, 1], [1, 1]]}]}


def population(samples: int = 200) -> Population:
    return Population(
        np.arange(samples) % 4, 4, np.arange(samples) // 4 % 2, 2, class_names=("ant", "bee", "cat", "dog"),
        attribute_names=("red", "green"),
    )  # fmt: skip


def made(
    folder: Path | None = None, seed: Any = 0, key: str = KEY, name: str = "pcdd", **params: Any
) -> Partition:
    params = params or PCDD
    return make_partition(population(), name, params, seed, key, folder)


def same(one: Partition, other: Partition) -> bool:
    return one.id == other.id and all(map(np.array_equal, one.clients, other.clients))


# Identity ----------------------------------------------------------------------------------------


def test_id_follows_the_meaning_of_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    first = made()
    assert first.id.startswith("pcdd-") and same(made(**PCDD, variant="paper"), first)
    alpha = {"clients": 5, "alpha": 1}
    assert same(made(name="dirichlet", **alpha), made(name="dirichlet", min_size=10, **alpha))
    others = [
        made(key="fake:f00d:10"),
        made(name="iid", clients=4),
        made(**PCDD, variant="reference"),
        made(seed=1),
    ]
    assert not any(map(np.array_equal, first.clients, others[-1].clients))
    monkeypatch.setattr(partitions.core.store, "FORMAT", 99)
    assert len({part.id for part in (first, *others, made())}) == 6


def test_a_negative_seed() -> None:
    with pytest.raises(PartitionError, match=r"partition\.seed: got -1"):
        made(seed=-1)


# Content -----------------------------------------------------------------------------------------


def interacting() -> tuple[Population, Partition]:
    """Six samples of each (class, attribute); two clients get six and four of the 24."""
    data = Population(
        np.repeat([0, 0, 1, 1], 6), 2, np.tile(np.repeat([0, 1], 6), 2), 2, class_names=("cat", "dog"),
        attribute_names=("red", "green"),
    )  # fmt: skip
    return data, make_partition(data, "interaction", TWO, 0, KEY)


def test_counts_metrics_and_what_is_left() -> None:
    _, part = interacting()
    np.testing.assert_array_equal(part.counts, [[4, 2], [2, 2]])
    np.testing.assert_array_equal(part.counts_attr, [[[4, 0], [0, 2]], [[1, 1], [1, 1]]])
    assert part.metrics["CSC"] == pytest.approx(0.5)  # one client perfectly correlated, the other independent
    np.testing.assert_array_equal(part.sizes, [6, 4])
    left = part.unassigned()
    assert len(left) == 24 - 10
    np.testing.assert_array_equal(np.sort(np.concatenate([left, *part.clients])), np.arange(24))


# On disk -----------------------------------------------------------------------------------------


def test_saved_partition_comes_back_and_is_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = made(tmp_path)
    files = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / part.id).iterdir()}
    assert {path.name for path in files} == {"partition.npz", "statistics.json"}
    save(part, population(), tmp_path)
    monkeypatch.setattr(Partitioner, "split", None)  # drawing would call it
    again = made(tmp_path)
    assert same(part, again) and part.metrics == again.metrics and part.identity == again.identity
    np.testing.assert_array_equal(part.counts_attr, again.counts_attr)
    assert files == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    assert [path.name for path in tmp_path.iterdir()] == [part.id]


def test_statistics_are_readable_without_us(tmp_path: Path) -> None:
    part = made(tmp_path)
    statistics = json.loads((tmp_path / part.id / "statistics.json").read_text())
    assert statistics["scheme"] == "pcdd" and statistics["seed"] == 0 and statistics["dataset"] == KEY
    assert statistics["params"] == {**PCDD, "variant": "paper"}
    assert statistics["counts"] == part.counts.tolist()
    assert statistics["sizes"] == [len(client) for client in part.clients]
    assert statistics["metrics"]["GCI"] == 0.0  # four classes of 50
    stored = np.load(tmp_path / part.id / "partition.npz")
    second = stored["flat"][stored["offsets"][1] : stored["offsets"][2]]
    np.testing.assert_array_equal(second, part.clients[1])


def test_interrupted_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(PartitionError, match=r"cannot write partition .*: No space left on device"):
        made(tmp_path)
    assert not list(tmp_path.iterdir())


def _save_into(folder: str) -> str:
    return made(Path(folder)).id


def test_a_dollar_sign_is_no_formula(tmp_path: Path) -> None:
    client_picture(
        np.ones((2, 1)), tmp_path / "a.png", [r"$\nosuch$"], title="$(x)$ $", client_names=["$", "$^$"]
    )
    assert (tmp_path / "a.png").stat().st_size > 0


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    left = tmp_path / f".{made().id}.{process.pid}.ab12"
    left.mkdir()
    os.utime(left, (0, 0))
    assert [path.name for path in tmp_path.iterdir()] == [left.name]
    made(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [made().id]


def test_processes_that_save_at_once_agree(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        ids = pool.map(_save_into, [str(tmp_path)] * 16, chunksize=1)
        pool.close()
        pool.join()  # otherwise they are ended by a signal, which the suite handles
    assert len(set(ids)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [ids[0]]
    assert same(made(tmp_path), made())


@pytest.mark.parametrize("file", ["partition.npz", "statistics.json"])
@pytest.mark.parametrize("harm", ["truncated", "empty", "missing", "overwritten"])
def test_damaged_partition_is_named(tmp_path: Path, file: str, harm: str) -> None:
    path = tmp_path / made(tmp_path).id / file
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if harm == "truncated" else b"")
    if harm == "missing":
        path.unlink()
    if harm == "overwritten":  # in the middle of what is compressed
        path.write_bytes(content[:70] + b"\xff" * 40 + content[110:])
    with pytest.raises(PartitionError, match=r"is damaged; remove the folder and run again"):
        made(tmp_path)


def test_edited_files_and_other_data_are_found_out(tmp_path: Path) -> None:
    folder = tmp_path / made(tmp_path).id
    with pytest.raises(PartitionError, match=r"made for other data \(200 samples, now 240\)"):
        make_partition(population(240), "pcdd", PCDD, 0, KEY, tmp_path)
    statistics = json.loads((folder / "statistics.json").read_text())
    for edit in ({"seed": 5}, {"params": {"clients": 5}}):
        (folder / "statistics.json").write_text(json.dumps(statistics | edit))
        with pytest.raises(PartitionError, match="does not fit its id"):
            made(tmp_path)
    (folder / "statistics.json").write_text(json.dumps(statistics))
    np.savez(folder / "partition.npz", flat=np.arange(200), offsets=np.array([0, 50, 100, 150, 200]))
    with pytest.raises(PartitionError, match="does not fit its id"):
        made(tmp_path)


# Text --------------------------------------------------------------------------------------------


def test_text_shows_counts_sizes_and_metrics() -> None:
    data, part = interacting()
    text = partition_text(part, data)
    rows = [line.split() for line in text.splitlines()]
    assert f"partition {part.id}" in text
    assert "10 of 24 given out, 14 unused, 0 given out more than once" in text
    assert "2, sizes 4 to 6, median 5" in text
    assert ["client", "samples", "classes", "cat", "dog"] in rows
    assert ["0", "6", "2", "4", "2"] in rows
    assert ["all", "10", "6", "4"] in rows
    assert ["client", "cat/red", "cat/green", "dog/red", "dog/green"] in rows
    assert ["0", "4", ".", ".", "2"] in rows
    assert "CSC 0.500" in text and "GCI" in text


def test_text_without_attributes_and_with_repeats() -> None:
    data = Population(np.arange(40) % 4, 4)
    text = partition_text(make_partition(data, "pcdd", {**PCDD, "variant": "reference"}, 0, KEY), data)
    assert "40 of 40 given out, 0 unused, 40 given out more than once" in text
    assert "GAI -" in text and "(no attributes)" in text
    assert "class/attribute" not in text


def test_clients_that_are_sources_have_their_names() -> None:
    named = {"sources": np.arange(6) // 3, "num_sources": 2, "source_names": ("berlin", "oslo")}
    data = Population(np.arange(6) % 2, 2, **named)
    for scheme, parameters, names in (
        ("natural", {}, ["berlin", "oslo"]),
        ("iid", {"clients": 2}, ["0", "1"]),
    ):
        part = make_partition(data, scheme, parameters, 0, KEY)
        assert client_names(part, data) == names
        rows = [line.split() for line in partition_text(part, data).splitlines()]
        assert [row[0] for row in rows if row[1:2] == ["3"]] == names
    halves = make_partition(data, "natural", {"clients_per_source": 2}, 0, KEY)
    assert client_names(halves, data) == ["berlin 1", "berlin 2", "oslo 1", "oslo 2"]


def test_wide_tables_continue_in_blocks() -> None:
    data = Population(np.arange(1000) % 100, 100, class_names=tuple(f"class number {n}" for n in range(100)))
    text = partition_text(make_partition(data, "iid", {"clients": 3}, 0, KEY), data)
    assert max(map(len, text.splitlines())) <= 112
    assert all(text.count(f"class number {n} ") + text.count(f"class number {n}\n") == 1 for n in range(100))


# Pictures ----------------------------------------------------------------------------------------


def test_a_picture_is_written_as_png_and_pdf(tmp_path: Path) -> None:
    files = client_picture([[1, 2]], tmp_path / "deep" / "alpha0.5", title="Clients")
    assert [file.name for file in files] == ["alpha0.5.png", "alpha0.5.pdf"]


@pytest.mark.parametrize("width", [None, 3.0])
def test_area_of_a_bubble_is_proportional_to_its_count(width: float | None) -> None:
    """In the legend too, and in a figure that is shrunk to half of its width."""
    figure = Figure(figsize=(6.0, 4.0))
    axes = figure.add_subplot()
    draw_bubbles(axes, np.array([[100, 0, 25], [0, 50, 100]]), ["x", "y", "z"], 0.5)
    if width is not None:
        fit(figure, width)
        assert list(figure.get_size_inches()) == [3.0, 3.0]
        assert min(text.get_fontsize() for text in figure.findobj(Text)) >= 6  # type: ignore[attr-defined]
    bubbles = next(drawn for drawn in axes.collections if isinstance(drawn, PathCollection))
    areas = {
        (int(x), int(y)): area
        for (x, y), area in zip(bubbles.get_offsets(), bubbles.get_sizes(), strict=True)
    }
    assert set(areas) == {(0, 0), (0, 2), (1, 1), (1, 2)}  # (client, class); nothing drawn for zero
    assert areas[0, 0] == areas[1, 2] == pytest.approx(4 * areas[0, 2])
    assert areas[1, 1] == pytest.approx(2 * areas[0, 2])
    legend = axes.get_legend()
    assert legend is not None
    shown = {
        int(text.get_text()): handle
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }
    for count, handle in shown.items():
        assert handle.get_markersize() ** 2 == pytest.approx(count / 100 * areas[0, 0])  # type: ignore[union-attr]
