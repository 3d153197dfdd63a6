"""P clients with C classes each, against the lists of the authors' code (tests/golden/fedmr_partition.npz)."""

import random  # noqa: TID251 (the authors' stream)
from pathlib import Path

import numpy as np
import pytest

from benchmark.heterogeneity import class_counts
from partitions import PartitionError, Population, make
from partitions.core.base import indices_by_class
from partitions.pcdd import assign_classes, deal_samples

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "fedmr_partition.npz", allow_pickle=False)
LABELS = GOLDEN["labels"]


class SeedOnly:
    """A generator that can only be asked for one integer, and gives the authors' seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def integers(self, high: int) -> int:
        assert self.seed < high
        return self.seed


@pytest.mark.parametrize(
    ("variant", "passes", "which"), [("paper", 1, "firstpass"), ("reference", 2, "code")]
)
@pytest.mark.parametrize("seed", [0, 1, 2023])
@pytest.mark.parametrize(("clients", "classes"), [(5, 2), (10, 2), (10, 3), (10, 5)])
def test_the_authors_lists(
    clients: int, classes: int, seed: int, variant: str, passes: int, which: str
) -> None:
    """In their order from the core, and sorted from the scheme."""
    prefix = f"P{clients}C{classes}_s{seed}"
    golden = np.split(GOLDEN[f"{prefix}_idx_{which}_flat"], GOLDEN[f"{prefix}_idx_{which}_offsets"][1:-1])
    held = assign_classes(clients, classes, 10, random.Random(seed))
    np.testing.assert_array_equal(held, GOLDEN[f"{prefix}_classes_in_draw_order"])
    dealt = deal_samples(indices_by_class(LABELS, 10), held, passes, np.random.RandomState(seed))
    scheme = make("pcdd", {"clients": clients, "classes_per_client": classes, "variant": variant})
    split = scheme.split(Population(LABELS, 10), SeedOnly(seed))  # type: ignore[arg-type]
    for in_order, ours, theirs in zip(dealt, split, golden, strict=True):
        np.testing.assert_array_equal(in_order, theirs)
        np.testing.assert_array_equal(ours, np.sort(theirs))
    np.testing.assert_array_equal(class_counts(dealt, LABELS, 10), GOLDEN[f"{prefix}_counts_{which}"])


def test_iid_of_the_paper_gives_each_client_the_same_of_each_class() -> None:
    population = Population(np.repeat(np.arange(4), 30), 4)
    split = make("pcdd", {"clients": 6, "classes_per_client": 4}).split(population, np.random.default_rng(0))
    np.testing.assert_array_equal(class_counts(split, population.labels, 4), np.full((6, 4), 5))


def test_iid_of_the_authors_is_a_nearly_even_dirichlet_partition() -> None:
    population = Population(np.repeat(np.arange(10), 1000), 10)
    scheme = make("pcdd", {"clients": 10, "classes_per_client": 10, "variant": "reference"})
    split = scheme.split(population, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(10_000))  # not doubled
    counts = class_counts(split, population.labels, 10)
    # Share of a client ~ Beta(1e5, 9e5): standard deviation 0.0003, so 100 +- 0.3 samples before the cap at
    # N/K; only the last class may be uneven, where clients at the cap get nothing.
    assert np.abs(counts[:, :9] - 100).max() <= 3
    assert len(np.unique(counts)) > 1


@pytest.mark.parametrize(
    ("labels", "classes", "held", "said"),
    [
        (np.arange(100) % 10, 10, 2, "3 clients x 2 classes = 6 places for 10 classes: 4 would be on no"),
        (np.arange(100) % 10, 10, 11, "classes_per_client: got 11; expected at most 10"),
        # Class 2 has lost all its samples; the third place in sequence is client 2's.
        (np.array([0, 0, 1, 1]), 3, 1, "client 2 of 3 would have no sample"),
    ],
)
def test_what_three_clients_cannot_hold(labels: np.ndarray, classes: int, held: int, said: str) -> None:
    scheme = make("pcdd", {"clients": 3, "classes_per_client": held})
    with pytest.raises(PartitionError, match=said):
        scheme.split(Population(labels, classes), np.random.default_rng(0))
