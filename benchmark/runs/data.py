"""The data of a run: loaded, cut to the configured size, and split among clients."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import datasets
from benchmark.config.schema import DatasetConfig, PathsConfig, RunConfig
from benchmark.engine import randomness
from benchmark.errors import ConfigError, wrong
from benchmark.models.networks import wanted_weights
from benchmark.models.pretrained import fetch_weights
from datasets.core.base import Dataset, Split
from partitions.core.base import Population
from partitions.core.partition import Partition, make_partition


@dataclass(frozen=True)
class RunData:
    """A data set cut to the run's size and split among clients.

    Attributes:
        dataset: The complete data set.
        train: Training samples, of which the indices below count.
        test: Test samples.
        partition: The split among clients.
        clients: Indices of the training samples of each client that takes part.
        ids: The numbers of these clients in the partition.
        held_out: Indices of the samples of ``train`` that are held out of each of these clients; empty: none are.
        unseen: Indices of all samples of each client that never takes part, by its number in the partition.
        rest: Indices of samples of ``train`` that are test data beside ``test``.
    """

    dataset: Dataset
    train: Split
    test: Split
    partition: Partition
    clients: list[np.ndarray]
    ids: list[int]
    held_out: list[np.ndarray]
    unseen: dict[int, np.ndarray]
    rest: np.ndarray

    @property
    def validation(self) -> np.ndarray | None:
        """Indices of the held-out samples of all clients, each once; None if there is no validation."""
        return np.unique(np.concatenate(self.held_out)) if self.held_out else None


def load_dataset(config: DatasetConfig, paths: PathsConfig) -> Dataset:
    """The data set of a configuration, prepared if needed."""
    folders = (Path(folder) if folder else None for folder in (paths.data, paths.cache))
    return datasets.load(config.name, config.options, *folders)


def prepare_data(runs: Iterable[RunConfig]) -> None:
    """Prepare the data and download the pre-trained weights of runs if needed, each once.

    Raises `ConfigError` with the messages of all data and weights that are missing.
    """
    needed: dict[str, Callable[[], object]] = {}
    for run in runs:
        key = json.dumps([run.dataset.name, run.dataset.options], sort_keys=True)
        needed.setdefault(key, partial(load_dataset, run.dataset, run.paths))
        weights = wanted_weights(run.model)
        if weights is not None:
            needed.setdefault(weights.file, partial(fetch_weights, weights, run.paths))
    problems: dict[str, None] = {}
    for get in needed.values():
        try:
            get()
        except ValueError as error:
            problems[str(error)] = None
    if problems:
        raise ConfigError("\n\n".join(problems))


def load_data(config: RunConfig) -> RunData:
    """Load the data of a run. The subsample is the same for all seeds; the split among clients depends on the seed."""
    dataset = load_dataset(config.dataset, config.paths)
    rng = randomness.generator(0, "subsample")
    wanted = config.dataset
    kept = _per_class(dataset.train.labels, wanted.train_per_class, rng, "dataset.train_per_class")
    train = _subset(dataset.train, kept)
    seed = config.seed if config.partition.seed is None else config.partition.seed
    people = population(dataset, train)
    partition = make_partition(people, config.partition.name, config.partition.parameters, seed)
    rest = partition.unassigned() if wanted.rest == "test" else np.arange(0)
    labels = np.concatenate([dataset.test.labels, train.labels[rest]])
    kept = _per_class(labels, wanted.test_per_class, rng, "dataset.test_per_class")
    size = len(dataset.test)
    test, rest = _subset(dataset.test, kept[kept < size]), rest[kept[kept >= size] - size]
    whole = [np.asarray(c) for c in partition.clients]
    unseen = {k: whole[k] for k in _unseen(len(whole), config.evaluation.unseen, seed)}
    ids = [k for k in range(len(whole)) if k not in unseen]
    clients, held_out = [whole[k] for k in ids], list[np.ndarray]()
    if config.evaluation.validation > 0:
        clients, held_out = _hold_out(clients, config.evaluation.validation, seed)
    return RunData(dataset, train, test, partition, clients, ids, held_out, unseen, rest)


def population(dataset: Dataset, split: Split) -> Population:
    """What a partition may read of a data set."""
    return Population(
        labels=np.asarray(split.labels),
        num_classes=len(dataset.classes),
        attributes=None if split.attributes is None else np.asarray(split.attributes),
        num_attributes=len(dataset.attributes),
        sources=None if split.sources is None else np.asarray(split.sources),
        num_sources=len(dataset.sources),
        class_names=dataset.classes,
        attribute_names=dataset.attributes,
        source_names=dataset.sources,
    )


def _per_class(labels: np.ndarray, count: int | None, rng: np.random.Generator, key: str) -> np.ndarray:
    """Indices of ``count`` random samples of each class, in their stored order; all samples if None."""
    if count is None:
        return np.arange(len(labels))
    picked = []
    for label in np.unique(labels):
        available = np.flatnonzero(labels == label)
        if len(available) < count:
            expected = f"at most {len(available)}: class {label} has only {len(available)} samples"
            raise ConfigError(wrong(key, count, expected))
        picked.append(rng.permutation(available)[:count])
    return np.sort(np.concatenate(picked))


def _subset(split: Split, indices: np.ndarray) -> Split:
    return split if len(indices) == len(split) else split.subset(indices)


def _unseen(clients: int, share: float, seed: int) -> list[int]:
    """The numbers of ``share`` of the clients, rounded down, drawn at random. `ConfigError` if it is none of them."""
    if share and share * clients < 1:
        expected = f"0, or at least {1 / clients:.3g}: the partition has {clients} clients"
        raise ConfigError(wrong("evaluation.unseen", share, expected))
    return sorted(randomness.generator(seed, "unseen").permutation(clients)[: int(share * clients)].tolist())


def _hold_out(
    clients: list[np.ndarray], share: float, seed: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Hold ``share`` of every client's samples out for validation: rounded down, and at least one sample stays.

    Raises:
        ConfigError: Nothing is held out.
    """
    kept, held_out = [], []
    for k, indices in enumerate(clients):
        shuffled = randomness.generator(seed, "validation", k).permutation(indices)
        count = min(int(share * len(indices)), len(indices) - 1)
        held_out.append(shuffled[:count])
        kept.append(np.sort(shuffled[count:]))
    if not any(map(len, held_out)):
        largest = max(len(indices) for indices in clients)
        expected = f"at least {1 / largest:.3g}: the largest client has {largest} samples"
        raise ConfigError(wrong("evaluation.validation", share, expected))
    return kept, held_out
