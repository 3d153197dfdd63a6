"""Estimates for planned runs: time on this device, disk space, and the data and weights that are missing.

For each combination of image shape, model, method and batch size, one round of one client is timed on random images.
The time per sample is multiplied by the samples, rounds and evaluations of the runs.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import datasets
import partitions
from benchmark.config.merge import merge
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
"""Disk space of the six files of a finished run in bytes, without its records."""

ROUND_BYTES = 12 * 100
"""Disk space of the records of a round in bytes."""


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
        return self.runs * (RUN_BYTES + self.run.train.rounds * ROUND_BYTES)


class DataNeed(NamedTuple):
    """A data set of planned runs.

    ``state`` says whether it is prepared, or why it cannot be. ``prepared_bytes`` is the size of its images, or 0.
    """

    name: str
    state: str
    prepared_bytes: int


def _folders(run: RunConfig) -> tuple[Path | None, Path | None]:
    data, cache = run.paths.data, run.paths.cache
    return Path(data) if data else None, Path(cache) if cache else None


def _facts(run: RunConfig) -> Facts | None:
    """Sizes of a run's data, from the prepared data or else from the builder; None if unknown."""
    wanted = run.dataset
    if not datasets.is_prepared(datasets.locate(wanted.name, wanted.options, *_folders(run))):
        return datasets.facts(wanted.name, wanted.options)
    data = datasets.load(wanted.name, wanted.options, *_folders(run))
    _, channels, size, _ = data.train.images.shape
    return Facts(len(data.train), len(data.test), len(data.classes), channels, size, len(data.sources))


def blocks(table: str, runs: Sequence[RunConfig]) -> list[Block]:
    """The runs of a table by configuration, without those on data of unknown size."""
    counts = Counter(run.hash for run in runs)
    known = [(run, _facts(run)) for run in {run.hash: run for run in runs}.values()]
    return [_block(table, run, counts[run.hash], facts) for run, facts in known if facts is not None]


def _block(table: str, run: RunConfig, runs: int, facts: Facts) -> Block:
    train, wanted = run.train, run.dataset
    there = min(facts.train, (wanted.train_per_class or facts.train) * facts.classes)
    scheme = partitions.make(run.partition.name, run.partition.parameters)
    clients, samples = scheme.expected(there, facts.classes, facts.sources)
    test = facts.test + (max(0, there - samples) if wanted.rest == "test" else 0)
    test = min(test, (wanted.test_per_class or test) * facts.classes)
    held_out = int(run.evaluation.validation * samples)
    taking_part = train.clients_per_round or clients
    if train.steps is not None:
        per_round = taking_part * train.steps * train.batch_size
    else:
        per_round = int(taking_part * (samples - held_out) / clients * (train.epochs or 1))
    evaluations = 1 + math.ceil(train.rounds / run.evaluation.every)
    method = str(run.method.get("name", ""))
    shape = Shape(facts.channels, facts.size, facts.classes, run.model.name, method, train.batch_size)
    return Block(table, run, runs, per_round, evaluations * (test + held_out), shape)


def timed(run: RunConfig, shape: Shape, device: str = "auto") -> Pace:
    """Time a round of one client on random images.

    The number of images grows until a round takes `ENOUGH` seconds, so that fixed costs do not matter, or until the
    next round would take longer than `PATIENCE`.
    """
    import torch

    torch.set_num_threads(run.runtime.threads)
    samples = 2
    while True:
        pace, seconds = _round(_small(run, shape, samples, device))
        if seconds >= ENOUGH or 8 * seconds > PATIENCE or samples >= MOST:
            return pace
        samples *= 4


def _round(run: RunConfig) -> tuple[Pace, float]:
    """(the pace of a round and an evaluation, the seconds of both)."""
    import torch

    from benchmark.runs.build import build_run
    from benchmark.runs.data import load_data

    federation = build_run(run, load_data(run))
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
    images = max(samples, shape.classes)
    options = {"classes": shape.classes, "channels": shape.channels, "size": shape.size, "train_size": images,
               "test_size": images, "attributes": 2, "sources": 2}  # fmt: skip
    plain = run.model_dump(mode="json") | {
        "dataset": {"name": "fake", "options": options},
        "partition": {"name": "iid", "clients": 1},
        "selection": {"name": "uniform"},
    }
    plain["model"].pop("pretrained", None)
    budget = {"rounds": 3, "epochs": 1, "steps": None, "batch_size": min(shape.batch, samples)}
    changes = {
        "train": {**budget, "clients_per_round": None, "drop_last": False},
        "evaluation": {"validation": 0.0},
        "runtime": {"device": device},
    }
    return RunConfig.model_validate(merge(plain, changes))


def data_needs(runs: Sequence[RunConfig]) -> list[DataNeed]:
    """The data sets of the runs, each once. Nothing is prepared here."""
    first: dict[tuple[str, str], RunConfig] = {}
    for run in runs:
        first.setdefault((run.dataset.name, json.dumps(run.dataset.options, sort_keys=True)), run)
    known = [(run, _facts(run)) for run in first.values()]
    return [
        DataNeed(run.dataset.name, _state(run), facts.prepared_bytes if facts else 0) for run, facts in known
    ]


def _state(run: RunConfig) -> str:
    try:
        place = datasets.locate(run.dataset.name, run.dataset.options, *_folders(run))
        if datasets.is_prepared(place):
            return "prepared"
        datasets.find(place)
        return "raw files there"
    except DataError as error:
        return str(error)


def weights_needed(runs: Sequence[RunConfig]) -> list[tuple[Path, Weights]]:
    """Files of pre-trained weights that the runs start from: (path, description)."""
    from benchmark.models.networks import wanted_weights
    from benchmark.models.pretrained import weights_folder

    needed = [(run, wanted_weights(run.model)) for run in runs]
    found = {weights_folder(run.paths) / source.file: source for run, source in needed if source is not None}
    return list(found.items())


def paces(
    found: Sequence[Block], timer: Callable[[RunConfig, Shape], Pace], say: Callable[[str], None]
) -> dict[Shape, Pace | str]:
    """The pace of every shape, or the reason why it cannot be timed."""
    known: dict[Shape, Pace | str] = {}
    for shape, run in {block.shape: block.run for block in found}.items():
        say(f"timing {shape.method}, {shape.model}, {shape.channels}x{shape.size}x{shape.size}")
        try:
            known[shape] = timer(run, shape)
        except ConfigError as error:
            known[shape] = str(error)
    return known
