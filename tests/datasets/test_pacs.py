"""PACS: the share of each class and domain that is drawn for testing, and the domain that is left out."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from raw_trees import DOMAINS, OBJECTS, listed

from datasets.core.images import Files
from datasets.pacs import PUBLISHED
from partitions.core.base import Population
from partitions.core.registry import make


def cells(part: Files, root: Path) -> list[tuple[str, str]]:
    """Domain and class of each image, from its path."""
    return [path.relative_to(root / "PACS").parts[:2] for path in part.paths]  # type: ignore[misc]


def test_published_numbers() -> None:
    """Li et al. (2017) print these sums; the classes are in the order of the alphabet."""
    assert {domain: sum(counts) for domain, counts in PUBLISHED.items()} == {
        "art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929,
    }  # fmt: skip
    assert sorted(OBJECTS) == list(OBJECTS) and {len(counts) for counts in PUBLISHED.values()} == {7}


def test_a_fifth_of_each_class_and_domain_is_tested(raw: Callable[..., Path]) -> None:
    root = raw("pacs")
    data = listed("pacs", root)
    for part, each in ((data.train, 4), (data.test, 1)):
        there = cells(part, root)
        assert part.sources is not None
        named = zip(part.sources, part.labels, strict=True)
        assert there == [(DOMAINS[source], OBJECTS[label]) for source, label in named]
        assert {there.count((domain, name)) for domain in DOMAINS for name in OBJECTS} == {each}
    assert listed("pacs", root).test.paths == data.test.paths
    assert listed("pacs", root, seed=1).test.paths != data.test.paths


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_domain_is_left_out(raw: Callable[..., Path], domain: str) -> None:
    """All images of the others are for training, with a client for each; all of its own are tested."""
    root = raw("pacs")
    data = listed("pacs", root, leave_out=domain)
    others = tuple(name for name in DOMAINS if name != domain)
    assert data.sources == others and data.test.sources is None
    assert {name for name, _ in cells(data.test, root)} == {domain}
    assert (len(data.train), len(data.test)) == (3 * 35, 35)
    people = Population(data.train.labels, 7, sources=data.train.sources, num_sources=3, source_names=others)
    for each in (1, 2):
        clients = make("natural", {"clients_per_source": each}).split(people, np.random.default_rng(0))
        held = [{cells(data.train, root)[k][0] for k in client} for client in clients]
        assert held == [{name} for name in others for _ in range(each)]
