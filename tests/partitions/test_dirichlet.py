"""The Dirichlet rule by hand, by its properties, and against the sizes of FedLD's Retina splits."""

import numpy as np
import pytest

from benchmark.heterogeneity import class_counts
from partitions import Population, make
from partitions.dirichlet import dirichlet_split


class Scripted:
    """A generator that shuffles nothing and hands out given Dirichlet weights."""

    def __init__(self, *weights: list[float]) -> None:
        self.weights = list(weights)
        self.sizes: list[int] = []

    def permutation(self, values: np.ndarray) -> np.ndarray:
        return values

    def dirichlet(self, alpha: np.ndarray) -> np.ndarray:
        self.sizes.append(len(alpha))
        return np.array(self.weights.pop(0))


def lists(split: list[np.ndarray]) -> list[list[int]]:
    return [client.tolist() for client in split]


def run(
    generator: Scripted | np.random.Generator, classes: list[int], clients: int, min_size: int
) -> list[list[int]]:
    """Split classes of these sizes, samples numbered in order."""
    ends = np.cumsum(classes)
    samples = [np.arange(end - size, end) for size, end in zip(classes, ends, strict=True)]
    return lists(dirichlet_split(samples, clients, 0.5, min_size, generator))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("weights", "classes", "min_size", "expected"),
    [
        # Class 0: cumulated .5, .75 of 4 -> 2 | 3; class 1: .3, .9 of 8 -> 2.4 | 7.2.
        ([[0.5, 0.25, 0.25], [0.3, 0.6, 0.1]], [4, 8], 1, [[0, 1, 4, 5], [2, 6, 7, 8, 9, 10], [3, 11]]),
        # N/K = 4. Client 0 takes all 4 of class 0 and is closed: .8 | .1 | .1 becomes 0 | .5 | .5 of 8.
        ([[1, 0, 0], [0.8, 0.1, 0.1]], [4, 8], 1, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]),
        # .3 / .4 is .75 - 1e-16, which cuts 8 at 5; both shares add up to 1 - 1e-16: none of 8 for closed client 2.
        ([[0, 0, 1], [0.3, 0.1, 0.6]], [4, 8], 1, [[4, 5, 6, 7, 8], [9, 10, 11], [0, 1, 2, 3]]),
        # A draw below the minimum is repeated.
        ([[1, 0], [0.5, 0.5]], [6], 2, [[0, 1, 2], [3, 4, 5]]),
        # All mass on closed clients: drawn anew for the two open ones.
        ([[1, 0, 0], [1, 0, 0], [0.25, 0.75]], [4, 8], 1, [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9, 10, 11]]),
    ],
)
def test_cuts_by_hand(
    weights: list[list[float]], classes: list[int], min_size: int, expected: list[list[int]]
) -> None:
    generator = Scripted(*weights)
    assert run(generator, classes, len(expected), min_size) == expected
    assert generator.sizes == [len(shares) for shares in weights]


# Retina: 4,500 normal and 4,499 diseased samples, the authors' generator started at 2022 for each beta. The sizes
# were read off the bars of the published figure to 3 samples.
RETINA = {
    100: [(833, 881), (1044, 929), (875, 1018), (906, 836), (842, 835)],
    1: [(657, 1017), (312, 782), (356, 819), (925, 1881), (2250, 0)],
    0.5: [(2734, 0), (1098, 290), (540, 2014), (100, 525), (28, 1670)],
}


def rule_in_words(labels: np.ndarray, clients: int, beta: float) -> list[set[int]]:
    """The authors' rule, sample by sample, with sets and no vectors."""
    stream = np.random.RandomState(2022)
    held: list[list[int]] = [[]]
    while min(map(len, held)) < 10:
        held = [[] for _ in range(clients)]
        for label in sorted(set(labels.tolist())):
            samples = [n for n, other in enumerate(labels.tolist()) if other == label]
            stream.shuffle(samples)
            drawn = stream.dirichlet([beta] * clients)
            has_room = [len(samples_of) < len(labels) / clients for samples_of in held]
            kept = drawn * has_room
            start, total = 0, np.cumsum(kept / kept.sum())
            for client in range(clients):
                end = len(samples) if client == clients - 1 else int(total[client] * len(samples))
                held[client] += samples[start:end]
                start = end
    return [set(samples) for samples in held]


@pytest.mark.parametrize(("clients", "beta"), [(5, 100), (5, 1), (5, 0.5), (50, 0.5)])
def test_the_authors_splits_of_retina(clients: int, beta: float) -> None:
    """Each sample at its client, wherever its class stands in the list; no list of the 50 clients is public."""
    labels = np.random.default_rng(7).permutation(np.repeat([0, 1], [4500, 4499]))
    scheme = make("dirichlet", {"clients": clients, "alpha": beta, "legacy_seed": 2022})
    split = scheme.split(Population(labels, 2), np.random.default_rng(0))
    assert [set(client.tolist()) for client in split] == rule_in_words(labels, clients, beta)
    assert min(map(len, split)) >= 10 and sum(map(len, split)) == 8999
    if clients == 5:
        np.testing.assert_allclose(class_counts(split, labels, 2), RETINA[beta], rtol=0, atol=3)


def test_the_legacy_seed_is_a_parameter_like_any_other() -> None:
    population = Population(np.arange(400) % 2, 2)

    def drawn(seed: int, **legacy: int) -> list[list[int]]:
        scheme = make("dirichlet", {"clients": 4, "alpha": 1.0, **legacy})
        return lists(scheme.split(population, np.random.default_rng(seed)))

    assert drawn(0) != drawn(1)
    assert drawn(0, legacy_seed=3) == drawn(1, legacy_seed=3) != drawn(0, legacy_seed=4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("clients", "alpha", "classes"),
    # Two classes: the alphas of FedLD's figure 2.
    [(10, 0.5, 7), (15, 5.0, 7), *((5, alpha, 2) for alpha in (100, 10, 1, 0.1, 0.01))],
)
def test_properties(seed: int, clients: int, alpha: float, classes: int) -> None:
    rng = np.random.default_rng(seed)
    population = Population(rng.integers(0, classes, 2000), classes)
    scheme = make("dirichlet", {"clients": clients, "alpha": alpha})
    with np.errstate(all="raise", under="ignore"):
        split = scheme.split(population, rng)
    assert len(split) == clients
    np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(2000))
    assert min(len(client) for client in split) >= 10
    counts = class_counts(split, population.labels, classes)
    before = np.cumsum(counts, axis=1) - counts  # what a client held when a class came
    assert (before[counts > 0] < 2000 / clients).all()


def test_fedsdc_niid1() -> None:
    """HAM10000 less 30 test images of each class: 9,805 images, 15 clients, beta 5.

    A share of Dirichlet(5) over 15 clients has mean 1/15 and variance 5 * 70 / (75^2 * 76). Classes 0 to 4 hold 3,018
    images, and 653 close a client: none is full yet, so that the shares are plain Dirichlet.
    """
    sizes = np.array([327, 514, 1099, 115, 1113, 6705, 142]) - 30
    population = Population(np.repeat(np.arange(7), sizes), 7)
    scheme = make("dirichlet", {"clients": 15, "alpha": 5.0, "min_size": 10})
    splits = [scheme.split(population, np.random.default_rng(seed)) for seed in range(40)]
    assert all(np.array_equal(np.sort(np.concatenate(split)), np.arange(9_805)) for split in splits)
    counts = np.stack([class_counts(split, population.labels, 7) for split in splits])
    assert counts.sum(axis=2).min() >= 10 and (counts[:, :, :5].sum(axis=2) < 9_805 / 15).all()
    spread = (counts[:, :, :5] / sizes[:5]).std(axis=(0, 1))
    np.testing.assert_allclose(spread, (5 * 70 / (75**2 * 76)) ** 0.5, rtol=0.1)
