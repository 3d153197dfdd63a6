"""What every scheme has in common, and the schemes without a file of their own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmark.heterogeneity import class_counts
from benchmark.registry import BrokenFile
from partitions import Partitioner, PartitionError, Population, make, names, partition
from partitions.core.base import IntArray
from partitions.core.registry import SCHEMES as REGISTERED

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
    ("natural", {"clients_per_source": 2}, 200),
    ("white_blood_cells", {"classes_per_client": [1, 2]}, 500),
]


@pytest.mark.parametrize(("name", "params", "clients"), SCHEMES)
def test_split_is_disjoint_sorted_repeatable_and_leaves_global_generators_alone(
    name: str, params: dict, clients: int
) -> None:
    import random  # noqa: TID251

    population, scheme = fashion_like(), make(name, params)
    before = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index,union-attr]  # noqa: NPY002
    split = scheme.split(population, np.random.default_rng(7))
    assert before == (random.getstate(), np.random.get_state()[1].tobytes())  # type: ignore[index,union-attr]  # noqa: NPY002
    assert len(split) == clients
    assert all(client.dtype == np.int64 and len(client) for client in split)
    assert all((np.diff(client) >= 0).all() for client in split)
    times = np.bincount(np.concatenate(split), minlength=60_000)
    assert times.max() == (2 if scheme.repeats(population) else 1)
    again = scheme.split(population, np.random.default_rng(7))
    other = scheme.split(population, np.random.default_rng(8))
    assert all(map(np.array_equal, split, again))
    assert (name, params) == ("natural", {}) or not all(map(np.array_equal, split, other))


def test_iid_sizes_and_coverage() -> None:
    split = make("iid", {"clients": 7}).split(Population(np.zeros(100, int), 1), np.random.default_rng(0))
    assert sorted(len(client) for client in split) == [14] * 5 + [15] * 2
    with pytest.raises(PartitionError, match="partition iid: 7 clients for 5 samples"):
        make("iid", {"clients": 7}).split(Population(np.zeros(5, int), 1), np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(100))


def test_natural_is_one_client_per_source() -> None:
    def split(*sources: int, each: int = 1) -> list[list[int]]:
        labels = np.zeros(len(sources), int)
        data = Population(labels, 1, sources=np.array(sources), num_sources=3, source_names=("a", "b", "c"))
        scheme = make("natural", {"clients_per_source": each})
        return [client.tolist() for client in scheme.split(data, np.random.default_rng(0))]

    assert split(2, 0, 1, 0, 2, 2) == [[1, 3], [2], [0, 4, 5]]
    # Five samples of source 0 are cut into three and two, two of each other source into one and one.
    first, second, *others = split(*[0] * 5, 1, 2, 1, 2, each=2)
    assert sorted(first + second) == [0, 1, 2, 3, 4] and (len(first), len(second)) == (3, 2)
    assert sorted(others[:2]) == [[5], [7]] and sorted(others[2:]) == [[6], [8]]
    with pytest.raises(PartitionError, match="client 1 of 3 would have no sample"):
        split(0, 2, 2)
    with pytest.raises(PartitionError, match="client 3 of 6 would have no sample"):
        split(0, 0, 1, 2, 2, 2, each=2)
    with pytest.raises(PartitionError, match=r"partition natural: needs the source .*dataset="):
        make("natural").split(Population(np.zeros(3, int), 1), np.random.default_rng(0))


def blood_cells(per_class: list[int]) -> Population:
    """Three sources with these numbers of images per class."""
    labels = np.tile(np.repeat(np.arange(len(per_class)), per_class), 3)
    sources = np.repeat([0, 1, 2], sum(per_class))
    return Population(labels, len(per_class), sources=sources, num_sources=3)


def test_white_blood_cells_follow_the_rule() -> None:
    """15 clients x 5.5 classes x 40 images = 3,300 on average; the paper's draw gave 3,115.

    Class 3 has 19 images in each source, one too few for the rule: nobody may draw it.
    """
    data, scheme = blood_cells([400, 500, 400, 19, 400, 420, 400, 410, 400]), make("white_blood_cells")
    splits = [scheme.split(data, np.random.default_rng(seed)) for seed in range(40)]
    assert data.sources is not None
    for split in splits:
        assert [set(data.sources[client]) for client in split] == [{number // 5} for number in range(15)]
        assert np.bincount(np.concatenate(split)).max() == 1
    counts = np.concatenate([class_counts(split, data.labels, 9) for split in splits])
    assert (counts[counts > 0].min(), counts.max()) == (20, 60) and not counts[:, 3].any()
    assert set((counts > 0).sum(axis=1)) == {5, 6}
    assert counts.sum() / 40 == pytest.approx(3300, rel=0.05)
    assert scheme.expected(len(data), 9, 3) == (15, 3300)


# The registry ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_configuration_file_holds_exactly_the_parameters(name: str) -> None:
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert content.pop("name") == name
    # In the file it would be part of the identity of every run that was ever made without it.
    left_out = {"dirichlet": {"legacy_seed"}, "natural": {"clients_per_source"}}.get(name, set())
    assert set(content) == set(type(make(name, content)).model_fields) - left_out


BAD_ALPHAS = (0, -0.5, float("nan"), float("inf"), "much")


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("pcd", {}, "got 'pcd'; expected one of dirichlet, iid, interaction"),
        ("Dirichlet", {}, "Did you mean 'dirichlet'?"),
        ("iid", {"client": 3, "clients": 3}, "partition.client: unknown key"),
        ("pcdd", {"clients": 3}, "partition.classes_per_client: missing"),
        *(("dirichlet", {"clients": 5, "alpha": alpha}, "partition.alpha: got ") for alpha in BAD_ALPHAS),
        ("dirichlet", {"clients": 4, "alpha": 1.0, "legacy_seed": -1}, "partition.legacy_seed: got -1"),
        ("white_blood_cells", {"samples_per_class": [60, 20]}, "got [60, 20]; expected [least, most]"),
        ("iid", {"clients": 0}, "partition.clients: got 0"),
    ],
)  # fmt: skip
def test_one_message_names_key_and_nearest_match(name: str, params: dict, said: str) -> None:
    with pytest.raises(PartitionError) as caught:
        make(name, params)
    message = str(caught.value)
    assert said in message and "\n" not in message and "pydantic" not in message


class Faulty(Partitioner):
    """A scheme of a contributor who made a mistake."""

    clients: int = 2
    index: int = 5
    wrong: int = 0

    def draw(self, population: Population, generator: np.random.Generator) -> list[IntArray]:
        return [np.array([0, 1]), np.array([1, self.index])][self.wrong :]


def test_a_new_scheme_is_registered_and_its_faults_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTERED, "found", dict(REGISTERED.found))
    partition("iid")(Faulty)
    with pytest.raises(BrokenFile, match=r"'iid' is defined twice: in partitions/iid\.py and"):
        make("iid")
    partition("faulty")(Faulty)
    data = Population(np.zeros(5, int), 1)
    for index, said in ((5, "index 5 for 5 samples"), (2, "sample 1 more than once")):
        with pytest.raises(PartitionError, match=said):
            make("faulty", {"index": index}).split(data, np.random.default_rng(0))
    with pytest.raises(PartitionError, match=r"draw\(\) gave 1 clients; expected 2"):
        make("faulty", {"index": 2, "wrong": 1}).split(data, np.random.default_rng(0))
