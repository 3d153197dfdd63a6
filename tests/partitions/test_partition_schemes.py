"""What every scheme has in common, and the schemes without a file of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import partitions.core.registry
from partitions import Partitioner, PartitionError, Population, describe, make, names, partition
from partitions.core.base import IntArray
from partitions.core.heterogeneity import class_counts
from partitions.white_blood_cells import WhiteBloodCells

CONF = Path(__file__).parents[2] / "conf" / "partition"


def fashion_like() -> Population:
    rng = np.random.default_rng(0)
    return Population(
        rng.integers(0, 2, 60_000), 2, rng.integers(0, 2, 60_000), 2, np.arange(60_000) % 100, 100
    )


SCHEMES: list[tuple[str, dict[str, Any], int]] = [
    ("iid", {"clients": 100}, 100),
    ("dirichlet", {"clients": 100, "alpha": 1.0}, 100),
    ("pcdd", {"clients": 100, "classes_per_client": 1}, 100),
    ("pcdd", {"clients": 100, "classes_per_client": 1, "variant": "reference"}, 100),
    ("pcdd", {"clients": 100, "classes_per_client": 2, "variant": "reference"}, 100),
    ("interaction", {"distribution": "spawrious_gci100"}, 100),
    ("natural", {}, 100),
    ("white_blood_cells", {"classes_per_client": [1, 2]}, 500),
]


@pytest.mark.parametrize(("name", "params", "clients"), SCHEMES)
def test_split_is_disjoint_sorted_and_repeatable(name: str, params: dict, clients: int) -> None:
    population, scheme = fashion_like(), make(name, params)
    split = scheme.split(population, np.random.default_rng(7))
    assert len(split) == scheme.num_clients(population) == clients
    assert all(client.dtype == np.int64 and len(client) for client in split)
    assert all((np.diff(client) >= 0).all() for client in split)
    times = np.bincount(np.concatenate(split), minlength=60_000)
    assert times.max() == (2 if scheme.repeats(population) else 1)
    again = scheme.split(population, np.random.default_rng(7))
    other = scheme.split(population, np.random.default_rng(8))
    assert all(map(np.array_equal, split, again))
    assert name == "natural" or not all(map(np.array_equal, split, other))


@pytest.mark.parametrize(("name", "params", "clients"), SCHEMES)
def test_global_random_state_is_left_alone(name: str, params: dict, clients: int) -> None:
    import random  # noqa: TID251

    def states() -> tuple[object, bytes]:
        return random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index,union-attr]  # noqa: NPY002

    before = states()
    make(name, params).split(fashion_like(), np.random.default_rng(0))
    assert states() == before


def test_iid_sizes_and_coverage() -> None:
    split = make("iid", {"clients": 7}).split(Population(np.zeros(100, int), 1), np.random.default_rng(0))
    assert sorted(len(client) for client in split) == [14] * 5 + [15] * 2
    np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(100))


def test_natural_is_one_client_per_source() -> None:
    population = Population(
        np.zeros(6, int), 1, sources=np.array([2, 0, 1, 0, 2, 2]), num_sources=3, source_names=("a", "b", "c")
    )
    split = make("natural").split(population, np.random.default_rng(0))
    assert [client.tolist() for client in split] == [[1, 3], [2], [0, 4, 5]]


def test_natural_refuses_an_emptied_source_and_data_without_sources() -> None:
    emptied = Population(
        np.zeros(3, int), 1, sources=np.array([0, 2, 2]), num_sources=3, source_names=("a", "b", "c")
    )
    with pytest.raises(PartitionError, match=r"source 1 \(b\) has no sample"):
        make("natural").split(emptied, np.random.default_rng(0))
    with pytest.raises(PartitionError, match=r"partition natural: needs the source .*dataset="):
        make("natural").split(Population(np.zeros(3, int), 1), np.random.default_rng(0))


def blood_cells(per_class: list[int]) -> Population:
    """Three sources with these numbers of images per class."""
    labels = np.tile(np.repeat(np.arange(len(per_class)), per_class), 3)
    sources = np.repeat([0, 1, 2], sum(per_class))
    return Population(labels, len(per_class), sources=sources, num_sources=3)


@pytest.mark.parametrize("seed", range(5))
def test_white_blood_cells_follow_the_rule(seed: int) -> None:
    # Class 3 has 19 images in each source, one too few for the rule: nobody may draw it.
    population = blood_cells([400, 500, 300, 19, 350, 320, 300, 310, 20])
    split = make("white_blood_cells").split(population, np.random.default_rng(seed))
    assert len(split) == 15
    assert population.sources is not None
    for number, client in enumerate(split):
        assert set(population.sources[client]) == {number // 5}
    counts = class_counts(split, population.labels, 9)
    assert set((counts > 0).sum(axis=1)) <= {5, 6}
    assert counts[counts > 0].min() >= 20 and counts.max() <= 60
    assert not counts[:, 3].any()
    assert len(np.unique(np.concatenate(split))) == counts.sum()


def test_white_blood_cells_use_the_whole_range() -> None:
    split = [
        client
        for seed in range(40)
        for client in make("white_blood_cells").split(blood_cells([400] * 10), np.random.default_rng(seed))
    ]
    counts = class_counts(split, blood_cells([400] * 10).labels, 10)
    assert (counts[counts > 0].min(), counts.max()) == (20, 60)
    assert set((counts > 0).sum(axis=1)) == {5, 6}
    # 15 clients x 5.5 classes x 40 images = 3,300 on average; the paper's draw gave 3,115.
    assert counts.sum() / 40 == pytest.approx(3300, rel=0.05)


def test_white_blood_cells_scale() -> None:
    scheme = make("white_blood_cells", {"scale": 0.1})
    assert isinstance(scheme, WhiteBloodCells)
    assert scheme.limits() == (2, 6)
    counts = class_counts(
        scheme.split(blood_cells([40] * 10), np.random.default_rng(0)), blood_cells([40] * 10).labels, 10
    )
    assert counts[counts > 0].min() >= 2 and counts.max() <= 6
    tiny = make("white_blood_cells", {"scale": 0.001})
    assert isinstance(tiny, WhiteBloodCells)
    assert tiny.limits() == (1, 1)


def test_white_blood_cells_bad_inputs() -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(
        PartitionError, match=r"source 0 has only 4 classes with 20 or more images left, a client"
    ):
        make("white_blood_cells").split(blood_cells([300, 300, 300, 300, 5]), generator)
    with pytest.raises(PartitionError, match="classes_per_client: got 5; expected at most 3"):
        make("white_blood_cells").split(blood_cells([300, 300, 300]), generator)
    with pytest.raises(PartitionError, match=r"samples_per_class: got \[60, 20\]; expected \[least, most\]"):
        make("white_blood_cells", {"samples_per_class": [60, 20]})


@pytest.mark.parametrize("name", ["iid", "pcdd", "dirichlet"])
def test_more_clients_than_samples(name: str) -> None:
    more = {"iid": {}, "pcdd": {"classes_per_client": 2}, "dirichlet": {"alpha": 1.0}}[name]
    with pytest.raises(PartitionError, match=rf"partition {name}: 11 clients for 10 samples"):
        make(name, {"clients": 11, **more}).split(Population(np.arange(10) % 2, 2), np.random.default_rng(0))


# The registry ------------------------------------------------------------------------------------


def test_names_and_descriptions() -> None:
    assert names() == [
        "dirichlet",
        "iid",
        "interaction",
        "natural",
        "pcdd",
        "pooled_interaction",
        "white_blood_cells",
    ]
    assert describe("pcdd").endswith("[clients, classes_per_client, variant=paper]")
    assert all("\n" not in describe(name) and len(describe(name)) > 30 for name in names())


@pytest.mark.parametrize(
    "name", ["dirichlet", "iid", "interaction", "natural", "pcdd", "pooled_interaction", "white_blood_cells"]
)
def test_configuration_file_holds_exactly_the_parameters(name: str) -> None:
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert content.pop("name") == name
    assert content.pop("seed", "absent") is None
    scheme = make(name, content)
    # In the file it would be part of the identity of every run that was ever made without it.
    left_out = {"legacy_seed"} if name == "dirichlet" else set()
    assert set(content) == set(type(scheme).model_fields) - left_out


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("pcd", {}, "got 'pcd'; expected one of dirichlet, iid, interaction"),
        ("Dirichlet", {}, "Did you mean 'dirichlet'?"),
        ("iid", {"client": 3, "clients": 3}, "partition.client: unknown key"),
        ("pcdd", {"clients": 3}, "partition.classes_per_client: missing"),
        ("iid", {"clients": 0}, "partition.clients: got 0"),
        ("iid", {"clients": "many"}, "partition.clients: got 'many'"),
        ("natural", {"clients": 3}, "partition.clients: unknown key"),
        (
            "pcdd",
            {"clients": 3, "classes_per_client": 2, "variant": "papr"},
            "partition.variant: got 'papr'",
        ),
    ],
)  # fmt: skip
def test_one_message_names_key_and_nearest_match(name: str, params: dict, said: str) -> None:
    with pytest.raises(PartitionError) as caught:
        make(name, params)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    names()  # everything is imported before the copy is made
    monkeypatch.setattr(partitions.core.registry, "_SCHEMES", dict(partitions.core.registry._SCHEMES))


class Faulty(Partitioner):
    """A scheme of a contributor who made a mistake."""

    def num_clients(self, population: Population) -> int:
        return 2

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        return [np.array([0, 1]), np.array([1, len(population)])]


def test_a_new_scheme_is_registered_and_its_faults_are_caught(registry: None) -> None:
    partition("faulty")(Faulty)
    assert "faulty" in names()
    with pytest.raises(PartitionError, match="index 5 for 5 samples"):
        make("faulty").split(Population(np.zeros(5, int), 1), np.random.default_rng(0))


def test_a_name_cannot_be_taken_twice(registry: None) -> None:
    with pytest.raises(PartitionError, match=r"'iid' is defined twice: in partitions\.iid and"):
        partition("iid")(Faulty)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"labels": np.array([0, 3]), "num_classes": 3}, r"labels: got 0\.\.3"),
        ({"labels": np.array([0.5]), "num_classes": 3}, r"labels: got \(1,\) of float64"),
        (
            {"labels": np.array([0]), "num_classes": 1, "attributes": np.array([0, 1]), "num_attributes": 2},
            r"attributes: got \(2,\)",
        ),
        ({"labels": np.array([0]), "num_classes": 1, "class_names": ("a", "b")}, "labels: got 2 names"),
    ],
)  # fmt: skip
def test_population_is_checked(arguments: dict, said: str) -> None:
    with pytest.raises(PartitionError, match=said):
        Population(**arguments)
