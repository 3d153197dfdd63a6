"""Names, options and facts."""

import dataclasses
from typing import Any

import pytest

from benchmark.registry import BrokenFile
from datasets.core.base import DataError, Options
from datasets.core.registry import ENTRIES, dataset, facts, get, parse


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("fashonmnist", {}, r"dataset\.name: got 'fashonmnist'; .* Did you mean 'fashionmnist'\?"),
        ("fake", {"chanels": 3}, r"chanels: unknown key.*Did you mean 'channels'\?"),
        ("fake", {"classes": 1}, "classes: got 1; .*greater than or equal to 2"),
        ("standin", {"classes": 2, "train_counts": 10, "test_counts": 10}, "stands_for: missing"),
    ],
)
def test_wrong_names_and_options_are_named(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        parse(get(name), options)


# Numbers of images that the papers and the owners print: train, test, classes, channels, size, sources.
FACTS = {
    "mnist": (60_000, 10_000, 10, 1, 28, 0),
    "fashionmnist": (60_000, 10_000, 10, 1, 28, 0),
    "cmnist": (60_000, 10_000, 2, 3, 28, 0),
    "cifar10": (50_000, 10_000, 10, 3, 32, 0),
    "cifar100": (50_000, 10_000, 100, 3, 32, 0),
    "svhn": (73_257, 26_032, 10, 3, 32, 0),
    "acevedo": (11_630, 2_913, 10, 3, 224, 0),
    "ham10000": (9_805, 210, 7, 3, 56, 4),
    "isic2019": (18_597, 4_650, 8, 3, 224, 6),
    "waterbirds": (4_795, 5_794, 2, 3, 256, 0),
    "spawrious": (4 * 5_702, 4 * 634, 2, 3, 224, 0),
    "retina": (8_999, 0, 2, 3, 256, 0),
    "pacs": (7_984, 2_007, 7, 3, 227, 4),
}
TOTALS = {"matek": 18_365, "bodzas": 16_027, "niid2": 48_917}


@pytest.mark.parametrize("name", FACTS)
def test_facts_are_the_published_numbers(name: str) -> None:
    about = facts(name)
    assert about is not None and get(name).tree.archive and get(name).tree.page.startswith("http")
    assert dataclasses.astuple(about) == FACTS[name]
    assert about.prepared_bytes == (about.train + about.test) * about.channels * about.size**2
    assert {name: facts(name).train + facts(name).test for name in TOTALS} == TOTALS  # type: ignore[union-attr]


def test_two_builders_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = get("digits").builder
    monkeypatch.setattr(ENTRIES, "found", dict(ENTRIES.found))
    dataset("digits", options=Options)(builder)
    with pytest.raises(BrokenFile, match=r"'digits' is defined twice: in datasets/standin/digits\.py and"):
        get("digits")
