"""Estimates for planned runs: time on this device, disk space, and the data and weights that are missing.

For each combination of image shape, model, method and batch size, one round of one client is timed on random images.
The time per sample is multiplied by the samples of all rounds. Evaluation has no backward pass: a third of the time.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import datasets
import partitions
from benchmark.config.merge import merge
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, StorageError
from benchmark.runs.files import write_with_folder
from benchmark.system import processor
from datasets.core.base import DataError, Facts
from datasets.core.prepare import Location

if TYPE_CHECKING:
    from benchmark.models.pretrained import WeightsFile

SECONDS = 1.0
"""How long a timed round should take."""

RUN_BYTES = 6 * 4096
"""Disk space of the six files of a finished run in bytes, without its records."""

ROUND_BYTES = 12 * 100
"""Disk space of the records of a round in bytes."""

YEAR = 24 * 365.25
"""Hours. For work that takes longer than a year there is advice."""


def in_words(hours: float) -> str:
    """Hours, or years if they are many."""
    return f"{hours / YEAR:,.1f} years" if hours >= YEAR else f"{hours:,.2f}"


@dataclass(frozen=True)
class RunBlock:
    """Runs of one configuration, which take equally long; ``evaluated`` counts samples over all evaluations."""

    table: str
    run: RunConfig
    runs: int
    facts: Facts
    samples_per_round: int
    evaluated: int
    clients: int = 1

    @property
    def network(self) -> Hashable:
        """The network and its images."""
        return (self.facts.channels, self.facts.size, self.facts.classes, self.run.model.name)

    @property
    def shape(self) -> Hashable:
        """Everything that the time per sample depends on."""
        return (self.network, self.run.method.get("name"), self.run.train.batch_size)

    def hours(self, pace: float) -> float:
        """Time of all runs, one after another, if training takes ``pace`` seconds for a sample."""
        samples = self.run.train.rounds * self.samples_per_round + self.evaluated / 3
        return self.runs * samples * pace / 3600

    @property
    def result_bytes(self) -> int:
        """Disk space of the finished runs."""
        return self.runs * (RUN_BYTES + self.run.train.rounds * ROUND_BYTES)


class DataNeed(NamedTuple):
    """A data set of planned runs.

    ``state`` says whether it is prepared, or why it cannot be. ``prepared_bytes`` is the size of its images, or 0.
    """

    name: str
    state: str
    prepared_bytes: int


def _location(run: RunConfig) -> Location:
    data, cache = (None if path is None else Path(path) for path in (run.paths.data, run.paths.cache))
    return datasets.locate(run.dataset.name, run.dataset.options, data, cache)


def _facts(run: RunConfig) -> Facts | None:
    """Sizes of a run's data, from the prepared data or else from the builder; None if unknown."""
    place = _location(run)
    if not datasets.is_prepared(place):
        return datasets.facts(run.dataset.name, run.dataset.options)
    data = datasets.load(run.dataset.name, run.dataset.options, place.root, place.folder.parent)
    _, channels, size, _ = data.train.images.shape
    return Facts(len(data.train), len(data.test), len(data.classes), channels, size, len(data.sources))


def blocks(table: str, runs: Sequence[RunConfig]) -> list[RunBlock]:
    """The runs of a table by configuration, without those on data of unknown size."""
    counts = Counter(run.hash for run in runs)
    with_facts = [(run, _facts(run)) for run in {run.hash: run for run in runs}.values()]
    return [_block(table, run, counts[run.hash], facts) for run, facts in with_facts if facts is not None]


def _block(table: str, run: RunConfig, runs: int, facts: Facts) -> RunBlock:
    train, wanted = run.train, run.dataset
    there = min(facts.train, (wanted.train_per_class or facts.train) * facts.classes)
    scheme = partitions.make(run.partition.name, run.partition.parameters)
    clients, samples = scheme.expected(there, facts.classes, facts.sources)
    test = test_samples(run, facts, there - samples)
    held_out = int(run.evaluation.validation * samples)
    taking_part = train.clients_per_round or clients - int(run.evaluation.unseen * clients)
    if train.steps is not None:
        per_round = taking_part * train.steps * train.batch_size
    else:
        per_round = int(taking_part * (samples - held_out) / clients * (train.epochs or 1))
    evaluations = 1 + math.ceil(train.rounds / run.evaluation.every)
    evaluated = test + held_out + int(run.evaluation.unseen * samples)
    return RunBlock(table, run, runs, facts, per_round, evaluations * evaluated, clients)


def test_samples(run: RunConfig, facts: Facts, left: int) -> int:
    """Number of test samples of a run, if ``left`` training samples have no client."""
    test = facts.test + (max(0, left) if run.dataset.rest == "test" else 0)
    return min(test, (run.dataset.test_per_class or test) * facts.classes)


class Rate(NamedTuple):
    """What a round of one client shows: seconds per sample, and bytes that a client keeps between rounds."""

    seconds: float
    client_bytes: int


def rates(blocks: Sequence[RunBlock], device: str, store: Path, again: bool = False) -> dict[Hashable, Rate]:
    """The rate of every shape that can be timed; standard error tells which one is at work.

    ``store`` is a file with the rates of earlier commands on this device. Those are not measured ``again``.
    """
    stored: dict[str, Rate] = {}
    # A file that is not there or damaged is written anew.
    with suppress(OSError, ValueError, TypeError, AttributeError):
        stored = {key: Rate(*rate) for key, rate in json.loads(store.read_bytes()).items()}
    before, measured = dict(stored), dict[Hashable, Rate]()
    for shape, block in {block.shape: block for block in blocks}.items():
        key = f"{shape} {device} {block.run.runtime.threads} {platform.node()} {processor()}"
        if key not in stored or again:
            method, model, size = block.run.method.get("name"), block.run.model.name, block.facts.size
            print(f"timing {method}, {model}, {size} x {size} pixels", file=sys.stderr, flush=True)
            with suppress(ConfigError):
                stored[key] = timed(block, device)
        if key in stored:
            measured[shape] = stored[key]
    if stored != before:
        with suppress(StorageError):  # a folder that may only be read: the next command measures again
            write_with_folder(store, json.dumps(stored, indent=1).encode(), durable=False)
    return measured


def timed(block: RunBlock, device: str) -> Rate:
    """The rate of a round of one client, on so many random images that it takes about `SECONDS`."""
    from benchmark.runs.cost import time_round

    seconds, client_bytes = time_round(_small(block, 2, device))
    for _ in range(2):
        seconds, client_bytes = time_round(_small(block, max(2, int(SECONDS / seconds)), device))
    return Rate(seconds, client_bytes)


def _small(block: RunBlock, samples: int, device: str) -> RunConfig:
    """The run with one client, random images and random weights."""
    run, facts = block.run, block.facts
    images = max(samples, facts.classes)
    options = {"classes": facts.classes, "channels": facts.channels, "size": facts.size, "train_size": images,
               "test_size": images, "attributes": 2, "sources": 2}  # fmt: skip
    plain = run.model_dump(mode="json") | {
        "dataset": {"name": "fake", "options": options},
        "partition": {"name": "iid", "clients": 1},
        "selection": {"name": "uniform"},
    }
    for key in ("pretrained", "start"):
        plain["model"].pop(key, None)
    budget = {"rounds": 3, "epochs": 1, "steps": None, "batch_size": min(run.train.batch_size, samples)}
    changes = {
        "train": {**budget, "clients_per_round": None, "drop_last": False},
        "evaluation": {"validation": 0.0},
        "runtime": {"device": device},
    }
    return RunConfig.model_validate(merge(plain, changes))


def data_needs(runs: Sequence[RunConfig]) -> list[DataNeed]:
    """The data sets of the runs, each once. Nothing is prepared here."""
    first = {run.dataset.name + json.dumps(run.dataset.options, sort_keys=True): run for run in runs}
    needs = []
    for run in first.values():
        facts, place = _facts(run), _location(run)
        try:
            state = "prepared" if datasets.is_prepared(place) else "raw files there"
            if state != "prepared":
                datasets.require_raw_files(place)
        except DataError as error:
            state = str(error)
        needs.append(DataNeed(run.dataset.name, state, facts.prepared_bytes if facts else 0))
    return needs


def weights_needed(runs: Sequence[RunConfig]) -> dict[Path, WeightsFile]:
    """Files of pre-trained weights that the runs start from."""
    wanting = [run for run in runs if {"pretrained", "start"} & run.model.parameters.keys()]
    if not wanting:
        return {}  # without importing torch
    from benchmark.models import networks, pretrained

    needed = [(run, networks.wanted_weights(run.model)) for run in wanting]
    return {
        pretrained.weights_path(source, run.paths): source for run, source in needed if source is not None
    }
