"""Interaction matrices against FedDiverse's tables 5 and 6 (results/published) and by hand."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmark.heterogeneity import group_counts
from partitions import PartitionError, Population, make
from partitions.interaction import DISTRIBUTIONS, Interaction

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
TABLE5 = pd.read_csv(PUBLISHED / "feddiverse_table5.csv")
TABLE6 = pd.read_csv(PUBLISHED / "feddiverse_table6.csv")
CLIENTS = {
    "spawrious_gsc": 24,
    "spawrious_gci": 24,
    "spawrious_gai": 25,
    "waterbirds_dist": 30,
    "spawrious4": 25,
    "cmnist_gsc": 24,
    "spawrious_gci100": 100,
}


def parse(matrix: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(cell) for cell in row.split()) for row in matrix.split(";"))


def interaction(**params: object) -> Interaction:
    scheme = make("interaction", params)
    assert isinstance(scheme, Interaction)
    return scheme


def population(cells: object) -> Population:
    """Samples of a [Y, A] matrix, in random order."""
    counts = np.asarray(cells)
    groups = np.random.default_rng(3).permutation(np.repeat(np.arange(counts.size), counts.ravel()))
    return Population(groups // counts.shape[1], counts.shape[0], groups % counts.shape[1], counts.shape[1])


@pytest.mark.parametrize("name", CLIENTS)
def test_client_types_and_pooled_matrices_are_those_of_tables_6_and_5(name: str) -> None:
    """Table 5 does not have the hundred clients: four blocks of 25, whose cells add up to these."""
    assert set(DISTRIBUTIONS) == set(CLIENTS) == set(TABLE6["setting"])
    rows = TABLE6[TABLE6["setting"] == name]
    printed = Counter()
    for row in rows.itertuples():
        printed[parse(str(row.matrix))] += int(row.n_clients)
    matrices = interaction(distribution=name).matrices()
    assert Counter(tuple(map(tuple, matrix)) for matrix in matrices.tolist()) == printed
    pooled = ((5640, 5640), (2160, 2160))
    if name != "spawrious_gci100":
        row = TABLE5[(TABLE5["setting"] == name) & (TABLE5["metric"] == "interaction_matrix")]
        pooled = parse(row["matrix"].item())
    np.testing.assert_array_equal(matrices.sum(axis=0), pooled)


@pytest.mark.parametrize("name", CLIENTS)
def test_clients_get_exactly_their_matrices(name: str) -> None:
    scheme = interaction(distribution=name)
    data = population(scheme.matrices().sum(axis=0))  # nothing to spare
    split = scheme.split(data, np.random.default_rng(0))
    assert len(split) == CLIENTS[name]
    assert data.attributes is not None
    counts = group_counts(split, data.labels, data.attributes, data.num_classes, data.num_attributes)
    np.testing.assert_array_equal(counts, scheme.matrices())
    np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(len(data)))


class InOrder:
    """A generator whose permutations change nothing; remembers what it was asked to permute."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def permutation(self, values: np.ndarray) -> np.ndarray:
        self.asked.append(values.tolist())
        return values


def test_cells_are_cut_in_client_order_classes_outside() -> None:
    # Positions of the cells (y, a): (0,0) 0 4 8; (0,1) 1 5; (1,0) 2 6; (1,1) 3 7.
    data = Population(np.array([0, 0, 1, 1, 0, 0, 1, 1, 0]), 2, np.array([0, 1, 0, 1, 0, 1, 0, 1, 0]), 2)
    generator = InOrder()
    split = interaction(
        clients=[{"count": 2, "matrix": [[1, 0], [0, 1]]}, {"matrix": [[0, 2], [1, 0]]}]
    ).split(data, generator)  # type: ignore[arg-type]
    assert generator.asked == [[0, 4, 8], [1, 5], [2, 6], [3, 7]]
    assert [client.tolist() for client in split] == [[0, 3], [4, 7], [1, 2, 5]]


def test_scale_rounds_half_up_and_keeps_small_cells() -> None:
    clients = [{"matrix": [[90, 90], [10, 1]]}, {"matrix": [[5, 0], [15, 4]]}]
    scaled = interaction(clients=clients, scale=0.1).matrices()
    np.testing.assert_array_equal(scaled, [[[9, 9], [1, 1]], [[1, 0], [2, 1]]])
    scaled = interaction(clients=clients, scale=0.1, scale_floor=0).matrices()
    np.testing.assert_array_equal(scaled, [[[9, 9], [1, 0]], [[1, 0], [2, 0]]])
    assert interaction(clients=[{"matrix": [[90, 90], [0, 1]]}], scale=0.35).matrices()[0, 0, 0] == 32  # 31.5


def test_a_cell_that_is_short_is_named() -> None:
    labels, attributes = (np.repeat(cell, [900, 600, 640, 1760]) for cell in ([0, 0, 1, 1], [0, 1, 0, 1]))
    data = Population(
        labels, 2, attributes, 2, class_names=("small", "large"), attribute_names=("red", "green")
    )
    words = r"class 0 \(small\) with attribute 0 \(red\): 1760 samples asked, 900 available"
    with pytest.raises(PartitionError, match=words):
        interaction(distribution="cmnist_gsc").split(data, np.random.default_rng(0))
    # Cell (0, 0) of 19 clients with 90 and 5 with 10 asks for 19 x 45 + 5 x 5 = 880 at half the scale.
    interaction(distribution="cmnist_gsc", scale=0.5).split(data, np.random.default_rng(0))


def test_other_bad_inputs() -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(PartitionError, match="needs an attribute"):
        interaction(distribution="cmnist_gsc").split(Population(np.zeros(9000, dtype=int), 2), generator)
    with pytest.raises(PartitionError, match="for 4 classes x 2 attributes, the data have 2 x 2"):
        interaction(distribution="spawrious4").split(population([[9000, 9000], [9000, 9000]]), generator)
    with pytest.raises(PartitionError, match="client 1 of 2 would have no sample"):
        clients = [{"matrix": [[9, 9], [9, 9]]}, {"matrix": [[1, 1], [1, 1]]}]
        scheme = interaction(clients=clients, scale=0.1, scale_floor=0)
        scheme.split(population([[90, 90], [90, 90]]), generator)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"distribution": "spawrious_gcs"}, "got 'spawrious_gcs'; expected one of"),
        ({}, "either distribution"),
        ({"distribution": "cmnist_gsc", "clients": [{"matrix": [[1, 1], [1, 1]]}]}, "either distribution"),
        ({"clients": [{"matrix": [[1, 2], [3]]}]}, "partition.clients.0.matrix: expected rows"),
        ({"clients": [{"matrix": [[0, 0], [0, 0]]}]}, "at least one sample"),
        ({"clients": [{"matrix": [[1, -2], [3, 1]]}]}, "partition.clients.0.matrix.0.1: got -2"),
        ({"clients": [{"matrix": [[1, 1]]}, {"matrix": [[1], [1]]}]}, "the same shape"),
    ],
)  # fmt: skip
def test_parameters_are_checked(params: dict, said: str) -> None:
    with pytest.raises(PartitionError) as caught:
        make("interaction", params)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pooled_interaction_is_one_client_with_the_same_samples() -> None:
    """Clients of 2 and 3 samples; the pooled scheme draws the same groups, 5 samples in one client."""
    kinds = [{"matrix": [[1, 0], [0, 1]]}, {"matrix": [[2, 1], [0, 0]]}]
    scheme = make("pooled_interaction", {"clients": kinds})
    data = population([[3, 1], [2, 1]])
    (client,) = scheme.split(data, np.random.default_rng(0))
    cells = 2 * data.labels[client] + data.attributes[client]
    assert np.bincount(cells, minlength=4).tolist() == [3, 1, 0, 1]
