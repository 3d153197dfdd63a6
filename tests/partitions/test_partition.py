"""Identity and statistics of a partition, and what is printed and drawn of it."""

import struct
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from benchmark.cli.partition import client_names, partition_text
from benchmark.reports.pictures import client_picture, draw_bubbles, fit
from partitions import Partition, PartitionError, Population, make_partition

KEY = "fake:f00d:None"
PCDD = {"clients": 4, "classes_per_client": 2}
TWO = {"clients": [{"matrix": [[4, 0], [0, 2]]}, {"matrix": [[1, 1], [1, 1]]}]}


def population(samples: int = 200) -> Population:
    return Population(
        np.arange(samples) % 4, 4, np.arange(samples) // 4 % 2, 2, class_names=("ant", "bee", "cat", "dog"),
        attribute_names=("red", "green"),
    )  # fmt: skip


def made(seed: Any = 0, key: str = KEY, name: str = "pcdd", **params: Any) -> Partition:
    return make_partition(population(), name, params or PCDD, seed, key)


def same(one: Partition, other: Partition) -> bool:
    return one.id == other.id and all(map(np.array_equal, one.clients, other.clients))


# Identity ----------------------------------------------------------------------------------------


def test_id_follows_the_meaning_of_the_parameters() -> None:
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
    assert len({part.id for part in (first, *others)}) == 5


def test_digest_is_that_of_clients_and_their_ends() -> None:
    """Of 8-byte little-endian numbers, each list behind its length; committed results have such digests."""
    flat, ends = [0, 1, 2, 3], [0, 2, 4]
    part = replace(made(), clients=[np.array([0, 1]), np.array([2, 3])])
    assert part.digest == sha256(struct.pack("<9q", 4, *flat, 3, *ends)).hexdigest()


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


def test_a_dollar_sign_is_no_formula(tmp_path: Path) -> None:
    client_picture(
        np.ones((2, 1)), tmp_path / "a.png", [r"$\nosuch$"], title="$(x)$ $", client_names=["$", "$^$"]
    )
    assert (tmp_path / "a.png").stat().st_size > 0
