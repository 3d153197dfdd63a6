"""Estimates for planned runs: time on this device, disk space, and the data and weights that are missing.

For each combination of image shape, model, method and batch size, one round of one client is timed on random images.
The time per sample is multiplied by the samples, rounds and evaluations of the runs.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import datasets
import partitions
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from datasets.core.base import DataError, Facts

if TYPE_CHECKING:
    from benchmark.models.pretrained import Weights

PATIENCE = 10.0
"""Longest time for one timed round in seconds; slow models are timed on fewer samples."""

ENOUGH, MOST = 0.3, 1 << 15
"""A timed round ends after so many seconds, or with so many samples."""

RUN_BYTES = 6 * 4096
"""Disk space of the six files of a finished run in bytes, without its records (`RECORD_BYTES` each)."""

RECORD_BYTES = 100
RECORDS_PER_ROUND = 12


class Shape(NamedTuple):
    """Everything that the time per sample depends on."""

    channels: int
    size: int
    classes: int
    model: str
    method: str
    batch: int


class Pace(NamedTuple):
    """Seconds per sample in training (one epoch) and in evaluation."""

    train: float
    evaluate: float


@dataclass(frozen=True)
class Block:
    """Runs of one configuration, which take equally long; ``evaluated`` counts samples over all evaluations."""

    table: str
    run: RunConfig
    runs: int
    samples_per_round: int
    evaluated: int
    shape: Shape

    def hours(self, pace: Pace) -> float:
        """Time of all runs, one after another."""
        seconds = self.run.train.rounds * self.samples_per_round * pace.train + self.evaluated * pace.evaluate
        return self.runs * seconds / 3600

    @property
    def result_bytes(self) -> int:
        """Disk space of the finished runs."""
        return self.runs * (RUN_BYTES + self.run.train.rounds * RECORDS_PER_ROUND * RECORD_BYTES)


def _folders(run: RunConfig) -> tuple[Path | None, Path | None]:
    data, cache = run.paths.data, run.paths.cache
    return Path(data) if data else None, Path(cache) if cache else None


def facts_of(run: RunConfig) -> Facts | None:
    """Sizes of a run's data, from the prepared data or else from the builder; None if unknown."""
    wanted = run.dataset
    if not datasets.is_prepared(wanted.name, wanted.options, *_folders(run)):
        return datasets.facts(wanted.name, wanted.options)
    data = datasets.load(wanted.name, wanted.options, *_folders(run))
    _, channels, size, _ = data.train.images.shape
    return Facts(len(data.train), len(data.test), len(data.classes), channels, size, len(data.sources))


def blocks(table: str, runs: Sequence[RunConfig]) -> list[Block]:
    """The runs of a table by configuration, without those on data of unknown size."""
    first = {run.hash: run for run in reversed(runs)}
    counts = Counter(run.hash for run in runs)
    known = [(first[key], count, facts_of(first[key])) for key, count in counts.items()]
    return [_block(table, run, count, facts) for run, count, facts in known if facts is not None]


def _block(table: str, run: RunConfig, runs: int, facts: Facts) -> Block:
    train = run.train
    clients, samples, left = _population(run, facts)
    held_out = int(run.evaluation.validation * samples)
    samples -= held_out
    taking_part = train.clients_per_round or clients
    if train.steps is not None:
        per_round = taking_part * train.steps * train.batch_size
    else:
        per_round = int(taking_part * samples / clients * (train.epochs or 1))
    test = facts.test + (left if run.dataset.rest == "test" else 0)
    test = min(test, (run.dataset.test_per_class or test) * facts.classes)
    evaluations = 1 + math.ceil(train.rounds / run.evaluation.every)
    method = str(run.method.get("name", ""))
    shape = Shape(facts.channels, facts.size, facts.classes, run.model.name, method, train.batch_size)
    return Block(table, run, runs, per_round, evaluations * (test + held_out), shape)


def _population(run: RunConfig, facts: Facts) -> tuple[int, int, int]:
    """(number of clients, number of their samples, number of training samples that no client gets)."""
    train = min(facts.train, (run.dataset.train_per_class or facts.train) * facts.classes)
    scheme = partitions.make(run.partition.name, run.partition.parameters)
    clients, samples = scheme.expected(train, facts.classes, facts.sources)
    return clients, samples, max(0, train - samples)


def timed(run: RunConfig, shape: Shape, device: str = "auto") -> Pace:
    """Time a round of one client on random images.

    The number of images grows until a round takes `ENOUGH` seconds, so that fixed costs do not matter, or until the
    next round would take longer than `PATIENCE`.
    """
    import torch

    torch.set_num_threads(run.runtime.threads)
    samples = 2
    while True:
        pace, seconds = _round(run, shape, samples, device)
        if seconds >= ENOUGH or 8 * seconds > PATIENCE or samples >= MOST:
            return pace
        samples *= 4


def _round(run: RunConfig, shape: Shape, samples: int, device: str) -> tuple[Pace, float]:
    import torch

    from benchmark.runs.build import build_run
    from benchmark.runs.data import load_data

    small = _small(run, shape, samples, device)
    federation = build_run(small, load_data(small))
    state = federation.initial_state()

    def wait() -> float:
        if federation.problem.images.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    # The first round also chooses kernels and allocates memory, so it is not timed.
    state, _ = federation.step(state)
    began = wait()
    state, _ = federation.step(state)
    trained = wait()
    federation.evaluate(state)
    ended = wait()
    count = len(federation.problem.clients[0])
    tested = len(federation.problem.evaluation_sets["test"].images)
    return Pace((trained - began) / count, (ended - trained) / tested), ended - began


def _small(run: RunConfig, shape: Shape, samples: int, device: str) -> RunConfig:
    """The run with one client, random images and random weights."""
    plain: dict[str, Any] = run.model_dump(mode="json")
    options = {
        "classes": shape.classes,
        "channels": shape.channels,
        "size": shape.size,
        "train_size": max(samples, shape.classes),
        "test_size": max(samples, shape.classes),
        "attributes": 2,
        "sources": 2,
    }
    plain["dataset"] = {"name": "fake", "options": options}
    plain["partition"] = {"name": "iid", "clients": 1}
    plain["selection"] = {"name": "uniform"}
    plain["model"].pop("pretrained", None)
    plain["train"] |= {
        "rounds": 3,
        "epochs": 1,
        "steps": None,
        "batch_size": min(shape.batch, samples),
        "clients_per_round": None,
        "drop_last": False,
    }
    plain["evaluation"] |= {"validation": 0.0}
    plain["runtime"] |= {"device": device}
    return RunConfig.model_validate(plain)


@dataclass(frozen=True)
class DataNeed:
    """A data set of planned runs; ``state`` says whether it is prepared, or why it cannot be prepared."""

    name: str
    facts: Facts | None
    state: str

    @property
    def prepared_bytes(self) -> int:
        """Size of its arrays; 0 if unknown."""
        return 0 if self.facts is None else self.facts.prepared_bytes


def data_needs(runs: Sequence[RunConfig]) -> list[DataNeed]:
    """The data sets of the runs, each once. Nothing is prepared here."""
    found: dict[str, DataNeed] = {}
    for run in runs:
        wanted = run.dataset
        key = f"{wanted.name} {sorted(wanted.options.items())}"
        if key in found:
            continue
        try:
            if datasets.is_prepared(wanted.name, wanted.options, *_folders(run)):
                state = "prepared"
            else:
                datasets.find(wanted.name, wanted.options, _folders(run)[0])
                state = "raw files there"
        except DataError as error:
            state = str(error)
            if "forbids a download" in state and not os.environ.get("FEDTABLES_OFFLINE"):
                state = "not there; downloads by itself"
        found[key] = DataNeed(wanted.name, facts_of(run), state)
    return list(found.values())


def weights_needed(runs: Sequence[RunConfig]) -> list[tuple[Path, Weights]]:
    """Files of pre-trained weights that the runs start from: (path, description)."""
    from benchmark.models.networks import wanted_weights
    from benchmark.models.pretrained import weights_folder

    found: dict[Path, Weights] = {}
    for run in runs:
        source = wanted_weights(run.model)
        if source is not None:
            found[weights_folder(run.paths) / source.file] = source
    return list(found.items())


def paces(
    found: Sequence[Block], timer: Callable[[RunConfig, Shape], Pace], say: Callable[[str], None]
) -> dict[Shape, Pace | str]:
    """The pace of every shape, or the reason why it cannot be timed."""
    known: dict[Shape, Pace | str] = {}
    for block in found:
        shape = block.shape
        if shape in known:
            continue
        say(f"timing {shape.method}, {shape.model}, {shape.channels}x{shape.size}x{shape.size}")
        try:
            known[shape] = timer(block.run, shape)
        except ConfigError as error:
            known[shape] = str(error)
    return known
