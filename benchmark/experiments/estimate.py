"""Estimates for planned runs: time, disk space, and the data and weights that are missing.

The time per sample is that of finished runs of the same kind, or of ``rates.csv`` in proportion to the network's FLOPs.
It is multiplied by the samples of all rounds. Evaluation has no backward pass: a third of the time.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import datasets
import partitions
from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError
from benchmark.runs.files import write_with_folder
from datasets.core.base import DataError, Facts
from datasets.core.prepare import Location

if TYPE_CHECKING:
    from benchmark.models.pretrained import WeightsFile
    from benchmark.runs.status import Result

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

    @property
    def network(self) -> Hashable:
        """The network and its images."""
        model = json.dumps(self.run.model.model_dump(mode="json"), sort_keys=True)
        return (self.facts.channels, self.facts.size, self.facts.classes, model)

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
    return RunBlock(table, run, runs, facts, per_round, evaluations * evaluated)


def test_samples(run: RunConfig, facts: Facts, left: int) -> int:
    """Number of test samples of a run, if ``left`` training samples have no client."""
    test = facts.test + (max(0, left) if run.dataset.rest == "test" else 0)
    return min(test, (run.dataset.test_per_class or test) * facts.classes)


class Rate(NamedTuple):
    """How fast a network was trained on a device.

    Attributes:
        seconds: Time for a sample, forward and backward.
        device: ``cpu`` (for one run, on its threads) or ``cuda``.
        network: Name of the network.
        flops: Of one image, forward only.
        is_measured: Whether it is the rate of the very network, images and method, and not a scaled one.
        work: Hours of the run it was measured in, if a sample took a second.
    """

    seconds: float
    device: str = "cpu"
    network: str = ""
    flops: float = 0.0
    is_measured: bool = True
    work: float = 0.0

    def scaled(self, flops: float) -> Rate:
        """The rate for another network: time in proportion to FLOPs."""
        return self._replace(seconds=self.seconds * flops / self.flops, is_measured=False)


def rates(blocks: Sequence[RunBlock], store: Path) -> dict[tuple[Hashable, str], Rate]:
    """(shape, ``cpu`` or ``cuda``) -> rate: as measured, or else that of the network that is nearest in FLOPs.

    ``store`` is the file with the rates of earlier runs.
    """
    stored, found, counted = _stored(store), dict[tuple[Hashable, str], Rate](), dict[Hashable, float]()
    known = [*stored.values(), *_committed()]
    for block in {block.shape: block for block in blocks}.values():
        if block.network not in counted:
            counted[block.network] = _flops(block)
        flops = counted[block.network]
        for kind in ("cpu", "cuda"):
            same = stored.get(_key(block, kind))
            near = [rate for rate in known if rate.device == kind and rate.flops and flops]
            if same or near:
                found[block.shape, kind] = same or _nearest(block, flops, near)
    return found


def remember(runs: Sequence[tuple[RunConfig, Result]], store: Path) -> None:
    """Add the rates of finished runs to ``store``, if it can be written.

    The longest run counts, and of equal ones the last: starting up is a part of a short run's time.
    """
    stored = _stored(store)
    for run, result in runs:
        facts = _facts(run)
        if facts is not None and result.round == run.train.rounds:
            block = _block("", run, 1, facts)
            kind, work = result.origin["device"].partition(" ")[0], block.hours(1.0)
            key, seconds = _key(block, kind), result.seconds / 3600 / work
            if key not in stored or work >= stored[key].work:
                stored[key] = Rate(seconds, kind, run.model.name, known_flops(block), work=work)
    with suppress(StorageError):  # a folder that may only be read
        write_with_folder(store, json.dumps(stored, indent=1).encode(), durable=False)


def _key(block: RunBlock, kind: str) -> str:
    return f"{block.shape} {kind} {block.run.runtime.threads}"


def _stored(store: Path) -> dict[str, Rate]:
    with suppress(OSError, ValueError, TypeError, AttributeError):  # one that is damaged is written anew
        return {key: Rate(*rate) for key, rate in json.loads(store.read_bytes()).items()}
    return {}


def _lines(name: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(name).open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _committed() -> list[Rate]:
    """The rates of ``rates.csv``, measured with FedAvg."""
    return [
        Rate(1 / float(line["samples_per_second"]), line["device"], line["network"], float(line["flops"]))
        for line in _lines("rates.csv")
    ]


def _nearest(block: RunBlock, flops: float, near: Sequence[Rate]) -> Rate:
    """The rate of a network of the same name, or else of another, that is nearest in FLOPs."""
    name = block.run.model.name
    best = min(near, key=lambda rate: (rate.network != name, abs(math.log(rate.flops / flops))))
    is_same = best.network == name and math.isclose(best.flops, flops, rel_tol=0.01)
    return best if is_same and block.run.method.get("name") == "fedavg" else best.scaled(flops)


@cache
def _counted() -> dict[tuple[str, int, int], float]:
    """FLOPs by (model, channels, size) of ``flops.csv``, so that a plan of the project's tables needs no torch."""
    return {
        (line["model"], int(line["channels"]), int(line["size"])): float(line["flops"])
        for line in _lines("flops.csv")
    }


def _model_of(block: RunBlock) -> tuple[str, dict[str, Any]]:
    """The network and its parameters without those that say where weights come from."""
    model = block.run.model
    left_out = ("pretrained", "start")
    return model.name, {key: value for key, value in sorted(model.parameters.items()) if key not in left_out}


def model_words(block: RunBlock) -> str:
    """The network with its parameters, as ``flops.csv`` names it."""
    name, parameters = _model_of(block)
    return " ".join([name, *(f"{key}={value}" for key, value in parameters.items())])


def known_flops(block: RunBlock) -> float:
    """FLOPs of the network for one image as ``flops.csv`` has them; 0 if it has not."""
    return _counted().get((model_words(block), block.facts.channels, block.facts.size), 0.0)


def _flops(block: RunBlock) -> float:
    known = known_flops(block)
    if known:
        return known
    from benchmark.models.networks import count_flops

    facts = block.facts
    return count_flops(*_model_of(block), facts.classes, (facts.channels, facts.size, facts.size))


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
