"""Identity and statistics of a partition, and what is printed and drawn of it."""

import struct
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from benchmark.cli.partition import client_names, partition_text
from partitions import Partition, Population, make_partition

PCDD = {"clients": 4, "classes_per_client": 2}
TWO = {"clients": [{"matrix": [[4, 0], [0, 2]]}, {"matrix": [[1, 1], [1, 1]]}]}


def population(samples: int = 200) -> Population:
    return Population(
        np.arange(samples) % 4, 4, np.arange(samples) // 4 % 2, 2, class_names=("ant", "bee", "cat", "dog"),
        attribute_names=("red", "green"),
    )  # fmt: skip


def made(seed: Any = 0, name: str = "pcdd", **params: Any) -> Partition:
    return make_partition(population(), name, params or PCDD, seed)


# Identity ----------------------------------------------------------------------------------------


def test_id_follows_the_content() -> None:
    first = made()
    assert first.id.startswith("pcdd-") and made(**PCDD, variant="paper").id == first.id
    others = [made(name="iid", clients=4), made(**PCDD, variant="reference"), made(seed=1)]
    assert len({part.id for part in (first, *others)}) == 4


def test_digest_is_that_of_clients_and_their_ends() -> None:
    """Of 8-byte little-endian numbers, each list behind its length; committed results have such digests."""
    flat, ends = [0, 1, 2, 3], [0, 2, 4]
    part = replace(made(), clients=[np.array([0, 1]), np.array([2, 3])])
    assert part.digest == sha256(struct.pack("<9q", 4, *flat, 3, *ends)).hexdigest()


# Content -----------------------------------------------------------------------------------------


def interacting() -> tuple[Population, Partition]:
    """Six samples of each (class, attribute); two clients get six and four of the 24."""
    data = Population(
        np.repeat([0, 0, 1, 1], 6), 2, np.tile(np.repeat([0, 1], 6), 2), 2, class_names=("cat", "dog"),
        attribute_names=("red", "green"),
    )  # fmt: skip
    return data, make_partition(data, "interaction", TWO, 0)


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


def test_clients_that_are_sources_have_their_names() -> None:
    named = {"sources": np.arange(6) // 3, "num_sources": 2, "source_names": ("berlin", "oslo")}
    data = Population(np.arange(6) % 2, 2, **named)
    for scheme, parameters, names in (
        ("natural", {}, ["berlin", "oslo"]),
        ("iid", {"clients": 2}, ["0", "1"]),
    ):
        part = make_partition(data, scheme, parameters, 0)
        assert client_names(part, data) == names
        rows = [line.split() for line in partition_text(part, data).splitlines()]
        assert [row[0] for row in rows if row[1:2] == ["3"]] == names
    halves = make_partition(data, "natural", {"clients_per_source": 2}, 0)
    assert client_names(halves, data) == ["berlin 1", "berlin 2", "oslo 1", "oslo 2"]
