"""From a configuration to a finished run: build the federation, go round by round, leave a complete folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import platform
import socket
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn

import datasets
from benchmark.config.schedules import learning_rate
from benchmark.config.schema import DatasetConfig, PathsConfig, RunConfig
from benchmark.engine import randomness
from benchmark.engine.evaluation import EvaluationSet, Images
from benchmark.engine.federation import (
    Diverged,
    FederatedRun,
    FederationState,
    Interrupted,
    Problem,
    Schedule,
)
from benchmark.engine.records import Record
from benchmark.engine.training import TrainSpec
from benchmark.errors import ConfigError, UserError
from benchmark.models.networks import FlatModel, build_net, flatten_head
from benchmark.models.weights import fetch_weights, read_weights
from benchmark.paths import ROOT
from benchmark.runs.lease import Busy, Lease, LeaseLost
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import Results, RunFolder
from benchmark.runs.threads import THREAD_VARIABLES
from benchmark.transforms.augmentation import Normalise, augmentation
from datasets.core.base import Dataset, Split
from methods.core.rules import ClientRule, Method, Selection
from methods.core.vectors import Layout
from partitions.core.base import Population
from partitions.core.store import Partition, make_partition

log = logging.getLogger("fedtables")

WRITE_SECONDS = 1.0
"""Time between two writes of records; checkpoints and the end write what is there."""

EVALUATED_VALUES = 2**24
"""Most numbers in a batch of evaluation, 64 MiB: 37 images of 384 x 384 in colour, 111 of 224 x 224.

ResNet-50's first layers hold three layers of 9 MB for one image of 384 x 384; of 512 images that would be 14 GB.
"""

Progress = Callable[[int, int], None]
Stop = Callable[[], bool]


# Data ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _dataset(name: str, options: str, data: str | None, cache: str | None) -> Dataset:
    return datasets.load(
        name, json.loads(options), Path(data) if data else None, Path(cache) if cache else None
    )


def load_dataset(config: DatasetConfig, paths: PathsConfig) -> Dataset:
    """The data set of a configuration, prepared if needed; kept for the next run of this process."""
    return _dataset(config.name, json.dumps(config.options, sort_keys=True), paths.data, paths.cache)


def get_data(config: RunConfig) -> None:
    """See that the data of a run are prepared; DataError where they cannot be."""
    load_dataset(config.dataset, config.paths)


def get_weights(config: RunConfig) -> None:
    """See that the trained weights of a run's model are there; ConfigError where they cannot be had."""
    fetch_weights(config.model, config.paths)


def _first_per_class(
    labels: np.ndarray, count: int | None, rng: np.random.Generator, what: str
) -> np.ndarray:
    """Indices of ``count`` random samples of each class, in their stored order; all samples if None."""
    if count is None:
        return np.arange(len(labels))
    picked = []
    for label in np.unique(labels):
        having = np.flatnonzero(labels == label)
        if len(having) < count:
            raise ConfigError(f"{what}: came {count}; class {label} has only {len(having)} samples.")
        picked.append(rng.permutation(having)[:count])
    return np.sort(np.concatenate(picked))


@dataclass(frozen=True)
class RunData:
    """A data set cut to the run's budget and split among clients.

    Of ``train``, the indices in ``validation`` are held out, and those in ``rest`` are test data beside ``test``.
    """

    dataset: Dataset
    train: Split
    test: Split
    partition: Partition
    clients: list[np.ndarray]
    validation: np.ndarray | None
    rest: np.ndarray


def population(dataset: Dataset, split: Split) -> Population:
    """What a partition may look at."""
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


def load_data(config: RunConfig, folder: Path | None = None) -> RunData:
    """Load, subsample and split. The subsample is the same for all seeds, the split belongs to the seed."""
    dataset = load_dataset(config.dataset, config.paths)
    rng = randomness.generator(0, "subsample")
    wanted = config.dataset
    chosen = _first_per_class(dataset.train.labels, wanted.train_per_class, rng, "dataset.train_per_class")
    train = _subset(dataset.train, chosen)
    seed = config.seed if config.partition.seed is None else config.partition.seed
    key = f"{dataset.name}:{dataset.fingerprint}:{wanted.train_per_class}"
    partition = make_partition(
        population(dataset, train), config.partition.name, config.partition.parameters, seed, key, folder
    )
    rest = partition.unassigned() if wanted.rest == "test" else np.arange(0)
    labels = np.concatenate([dataset.test.labels, train.labels[rest]])
    chosen = _first_per_class(labels, wanted.test_per_class, rng, "dataset.test_per_class")
    own = len(dataset.test)
    test, rest = _subset(dataset.test, chosen[chosen < own]), rest[chosen[chosen >= own] - own]
    clients = [np.asarray(c) for c in partition.clients]
    validation = None
    if config.evaluation.validation > 0:
        clients, validation = _hold_out(clients, config.evaluation.validation, seed)
    return RunData(dataset, train, test, partition, clients, validation, rest)


def _subset(split: Split, indices: np.ndarray) -> Split:
    return split if len(indices) == len(split) else split.subset(indices)


def _hold_out(clients: list[np.ndarray], share: float, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Take ``share`` of every client's samples (rounded down, at least one stays) into a pooled validation set.

    ConfigError if that leaves it empty.
    """
    kept, held = [], []
    for k, indices in enumerate(clients):
        shuffled = randomness.generator(seed, "validation", k).permutation(indices)
        count = min(int(share * len(indices)), len(indices) - 1)
        held.append(shuffled[:count])
        kept.append(np.sort(shuffled[count:]))
    validation = np.unique(np.concatenate(held))
    if not len(validation):
        largest = max(len(indices) for indices in clients)
        raise ConfigError(
            f"evaluation.validation: came {share:g}; of the {largest} samples of the largest client that is not one. "
            f"Set it to at least {1 / largest:.3g}."
        )
    return kept, validation


# Building --------------------------------------------------------------------------------------------------------


def choose_device(name: str) -> torch.device:
    """``auto`` is cuda where there is one; ConfigError for a device that is not there."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    if name.startswith("cuda") and not available:
        raise ConfigError(f"runtime.device: came {name!r}, but torch finds no GPU here. Allowed: auto, cpu.")
    return torch.device(name)


def _tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    # On the CPU a memory-mapped array is used in place; torch only ever reads it, so its warning about
    # read-only memory is beside the point.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(np.asarray(array)).to(device)


def _evaluation_set(
    data: RunData,
    split: Split | None,
    more: np.ndarray,
    images: torch.Tensor,
    transform: Normalise,
    size: int,
) -> EvaluationSet:
    """``split`` and behind it the samples ``more`` of the training split; ``images`` are that one's, on the device."""
    dataset, train, device = data.dataset, data.train, images.device
    own = images[:0] if split is None else _tensor(split.images, device)

    def joined(first: np.ndarray | None, second: np.ndarray) -> torch.Tensor:
        return _tensor(second[more] if first is None else np.concatenate([first, second[more]]), device)

    return EvaluationSet(
        images=Images(own, images, _tensor(more, device)) if len(more) else own,
        labels=joined(split.labels if split else None, train.labels),
        attributes=None
        if train.attributes is None or (split is not None and split.attributes is None)
        else joined(split.attributes if split else None, train.attributes),
        num_classes=len(dataset.classes),
        num_attributes=len(dataset.attributes),
        transform=transform,
        batch_size=size,
    )


def build_problem(config: RunConfig, data: RunData, device: torch.device) -> Problem:
    """Put the data on the device."""
    dataset, train = data.dataset, data.train
    plain = Normalise.of(dataset.mean, dataset.std, torch.float32, device, config.precision.channels_last)
    augment = augmentation(config.train.augment, train.images.shape[1])
    transform = plain if augment is None else replace(plain, first=augment.evaluation)
    images = _tensor(train.images, device)
    values = math.prod(transform(images[:1]).shape)
    size = max(1, min(config.evaluation.batch_size, EVALUATED_VALUES // values))
    sets = {"test": _evaluation_set(data, data.test, data.rest, images, transform, size)}
    if data.validation is not None:
        sets["validation"] = _evaluation_set(data, None, data.validation, images, transform, size)
    return Problem(
        images=images,
        labels=_tensor(train.labels, device),
        attributes=None if train.attributes is None else _tensor(train.attributes, device),
        clients=data.clients,
        num_classes=len(dataset.classes),
        num_attributes=len(dataset.attributes),
        transform=transform,
        evaluation_sets=sets,
        augmented_transform=plain,
    )


def _build_model(
    config: RunConfig, method: Method, problem: Problem, device: torch.device
) -> tuple[FlatModel, dict]:
    """(the model with the heads that rules asked for, their first values by key)."""
    shape = tuple(problem.transform(problem.images[:1]).shape[1:])  # as the network sees them
    seed = randomness.torch_seed(config.seed, "model")
    parameters = config.model.parameters
    net = build_net(
        config.model.name,
        problem.num_classes,
        shape,  # type: ignore[arg-type]
        parameters,
        seed,
        lambda source: read_weights(source, config.paths),
    )
    heads: dict[str, nn.Module] = {}
    asking: tuple[ClientRule | Selection, ...] = (*method.client, method.selection)
    for rule in asking:
        made = rule.heads(
            net.feature_dim,
            problem.num_classes,
            lambda purpose, *ids: randomness.generator(config.seed, f"heads/{purpose}", *ids),
        )
        heads |= made
    channels_last = config.precision.channels_last
    vectors = {key: flatten_head(head, channels_last).to(device) for key, head in heads.items()}
    model = FlatModel(net, heads, device=device, channels_last=channels_last)
    if config.precision.compile:
        model.compile()
    return model, vectors


def build_run(config: RunConfig, data: RunData, stop: Stop = lambda: False) -> FederatedRun:
    """The federation that a configuration describes."""
    method = config.build_method()
    device = choose_device(config.runtime.device)
    problem = build_problem(config, data, device)
    train = config.train
    wanted = train.clients_per_round or len(data.clients)
    if wanted > len(data.clients):
        raise ConfigError(
            f"train.clients_per_round: came {wanted}, the partition has {len(data.clients)} clients. "
            f"Allowed: 1 to {len(data.clients)}, or null for all."
        )
    method = method.for_clients(len(data.clients), len(data.clients) if train.first_round_full else wanted)
    model, heads = _build_model(config, method, problem, device)
    if train.batch_size == 1 and model.has_batch_norm and train.buffers != "frozen":
        raise ConfigError(
            f"train.batch_size: came 1, but {config.model.name} has BatchNorm, which needs at least 2 samples. "
            "Set it higher, or train.buffers to frozen."
        )
    augment = augmentation(train.augment)
    spec = TrainSpec(
        epochs=train.epochs,
        steps=train.steps,
        batch_size=train.batch_size,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        clip=train.clip,
        drop_last=train.drop_last,
        buffers=train.buffers,
        augment=None if augment is None else augment.train,
        amp=config.precision.amp,
    )
    schedule = Schedule(
        train.rounds, wanted, learning_rate(train.lr, train.rounds, train.schedule), train.first_round_full
    )
    return FederatedRun(
        problem, method, model, spec, schedule, config.seed, heads, None, config.evaluation.measures, stop
    )


# Meta ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _commit() -> tuple[str, bool]:

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except OSError:
        return "", False


def _meta(config: RunConfig, data: RunData, device: torch.device) -> dict[str, Any]:
    commit, dirty = _commit()
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.processor() or platform.machine()
    )
    return {
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "host": socket.gethostname(),
        "device": f"{device.type}: {name}",
        "threads": torch.get_num_threads(),
        "preset": config.preset,
        "dataset": data.dataset.name,
        "fingerprint": data.dataset.fingerprint,
        "partition": data.partition.id,
        "note": data.dataset.note,
        "label": config.method.get("label", config.method.get("name", "")),
    }


# Running ---------------------------------------------------------------------------------------------------------


def _model_digest(state: FederationState) -> str:
    """SHA-256 over the bits of the model and its buffers."""
    digest = hashlib.sha256(state.w.cpu().numpy().tobytes())
    digest.update(state.buffers.cpu().numpy().tobytes())
    return digest.hexdigest()


def _to_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _to_device(item, device) for key, item in value.items()}
    return value


@dataclass
class RunSession:
    """One process at work on one run."""

    config: RunConfig
    folder: RunFolder
    lease: Lease
    progress: Progress
    stop: Stop
    started: float
    federation: FederatedRun
    pending: list[Record] = field(default_factory=list)
    written_at: float = 0.0

    def _status(self, state: str, round: int, message: str = "", **more: Any) -> Status:
        seconds = time.perf_counter() - self.started
        return Status(
            RunState(state), round, self.config.train.rounds, message, seconds=round_seconds(seconds), **more
        )

    def run(self) -> Status:
        """All remaining rounds; returns the final status, already written."""
        run = self.federation
        state, size = self._resume()
        self.progress(state.round, self.config.train.rounds)
        last: list[Record] = []
        try:
            if state.round == 0 and size == 0:
                self._record(run.evaluate(state) + run.setup_cost.records(0))
            while state.round < self.config.train.rounds:
                state, report = run.step(state)
                records = report.records(run.num_clients)
                if state.round % self.config.evaluation.every == 0 or state.round == self.config.train.rounds:
                    last = run.evaluate(state)
                    records += last
                self._record(records)
                self.progress(state.round, self.config.train.rounds)
                if (
                    state.round % self.config.runtime.checkpoint_every == 0
                    and state.round < self.config.train.rounds
                ):
                    self._checkpoint(state)
                if self.stop() and state.round < self.config.train.rounds:
                    raise Interrupted
        except Interrupted:
            self._checkpoint(state)
            status = self._status("interrupted", state.round, "stopped; the same command goes on from here")
            self.folder.write_status(status, durable=True)
            return status
        except Diverged as error:
            return self._end("diverged", state, str(error), [])
        # A kept checkpoint can be that of the last round, if the process was killed just before the end.
        return self._end("done", state, "", last or run.evaluate(state))

    def _resume(self) -> tuple[FederationState, int]:
        run = self.federation
        saved = self.folder.load_checkpoint(self.config)
        if saved is not None and self.folder.records_size() < saved["records_bytes"]:
            # After a power cut: the checkpoint reached the disk, the records before it did not.
            log.warning("records.jsonl is shorter than the checkpoint says: the run starts again")
            saved = None
        if saved is None:
            self.folder.truncate_records(0)
            return run.initial_state(), 0
        # Another version of a library may build the same model with other tensors.
        run.layout.require_same(
            Layout.from_list(saved["layout"]), f"checkpoint {self.folder.checkpoint_path}"
        )
        self.folder.truncate_records(saved["records_bytes"])
        self.started -= saved.get("seconds", 0.0)  # what earlier processes took counts too
        log.info("resumed after round %d", saved["state"]["round"])
        return FederationState(**_to_device(saved["state"], run.problem.images.device)), saved[
            "records_bytes"
        ]

    def _record(self, records: Sequence[Record]) -> None:
        """Take values in; they are written once a second, since a file server feels every opening of a file."""
        self.pending += [record for record in records if math.isfinite(record.value)]
        if time.monotonic() - self.written_at >= WRITE_SECONDS:
            self._write_records()

    def _write_records(self) -> int:
        """Write what has been taken in; the size of the file in bytes."""
        self.lease.check()
        size = self.folder.append_records(self.pending) if self.pending else self.folder.records_size()
        self.pending, self.written_at = [], time.monotonic()
        return size

    def _checkpoint(self, state: FederationState) -> None:
        size = self._write_records()
        content = {
            "hash": self.config.hash,
            "seed": self.config.seed,
            "records_bytes": size,
            "layout": self.federation.layout.to_list(),
            "state": state.to_dict(),
            "seconds": time.perf_counter() - self.started,
        }
        self.folder.save_checkpoint(content)
        self.folder.write_status(self._status("running", state.round))

    def _end(self, outcome: str, state: FederationState, message: str, last: list[Record]) -> Status:
        final: dict[str, dict[str, float]] = {}
        for record in last:
            if record.group == "all":
                final.setdefault(record.split, {})[record.metric] = record.value
        self._write_records()
        size, digest = self.folder.records_digest()
        if self.config.runtime.keep_checkpoint:
            self._checkpoint(state)
        status = self._status(
            outcome,
            state.round,
            message,
            records_bytes=size,
            records_sha256=digest,
            model_sha256=_model_digest(state),
            final=final,
        )
        self.folder.write_status(status, durable=True)
        self.folder.clean(self.config.runtime.keep_checkpoint)
        return status


def round_seconds(seconds: float) -> float:
    """Seconds to a hundredth: more digits say nothing."""
    return float(f"{seconds:.2f}")


class _Log(logging.FileHandler):
    """A log that a full disk silences: what ended the run is told by its status and on the command line."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Print no traceback of the logging itself."""

    def close(self) -> None:
        """Close, whether or not the last lines can be written."""
        with contextlib.suppress(OSError):
            super().close()


def _log_to(folder: RunFolder) -> logging.Handler:
    handler = _Log(folder.path / "log.txt", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    log.setLevel(logging.INFO)
    return handler


def execute(
    config: RunConfig, progress: Progress = lambda r, n: None, stop: Stop = lambda: False
) -> tuple[RunState, str]:
    """Carry out one run, or finish it, or see that it has ended: (state, message).

    The state is running if another process works on the run. Everything is in the run's folder; a failure leaves its
    message in status.json and its traceback in log.txt.
    """
    results = Results(Path(config.paths.results)).open()
    folder = results.run(config.key)
    known = folder.status()
    if known is not None and known.ended and folder.complete(known):
        return known.state, known.message
    try:
        with folder.lease() as lease:
            return _execute(config, results, folder, lease, progress, stop)
    except Busy as error:
        return RunState.RUNNING, str(error)
    except LeaseLost as error:
        return RunState.INTERRUPTED, str(error)


def _execute(
    config: RunConfig, results: Results, folder: RunFolder, lease: Lease, progress: Progress, stop: Stop
) -> tuple[RunState, str]:
    started = time.perf_counter()
    torch.set_num_threads(config.runtime.threads)
    # NumPy's too: more threads may give other last bits. Workers have it from their environment, which costs nothing.
    if any(os.environ.get(name) != str(config.runtime.threads) for name in THREAD_VARIABLES):
        threadpool_limits(config.runtime.threads)
    # cuDNN otherwise picks its algorithm by timing, and the same run gives other bits.
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    handler = _log_to(folder)
    try:
        # The other process may have ended the run between our look and our lease.
        known = folder.status()
        if known is not None and known.ended and folder.complete(known):
            return known.state, known.message
        folder.write_config(config)
        folder.write_status(Status(RunState.RUNNING, known.round if known else 0, config.train.rounds))
        data = load_data(config, results.root / "partitions")
        run = build_run(config, data, stop)
        folder.write_meta(_meta(config, data, run.problem.images.device))
        log.info("start: %s", config.key)
        status = RunSession(config, folder, lease, progress, stop, started, run).run()
        log.info("%s after round %d: %s", status.state, status.round, status.message)
        return status.state, status.message
    except LeaseLost as error:
        log.warning("stopped: %s", error)
        raise
    except Exception as error:
        mistake = isinstance(error, UserError)
        message = str(error) if mistake else f"{type(error).__name__}: {error}"
        log.error("failed: %s\n%s", message, traceback.format_exc())
        _try_to_say_failed(folder, config, message)
        if mistake:
            raise
        return RunState.FAILED, f"{message} (traceback in {folder.path / 'log.txt'})"
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


def _try_to_say_failed(folder: RunFolder, config: RunConfig, message: str) -> None:
    """Write the status of a failure; on a full disk even that may not work, and the message still reaches the user."""
    known = None
    try:
        known = folder.status()
        folder.write_status(
            Status(RunState.FAILED, known.round if known else 0, config.train.rounds, message)
        )
    except (ValueError, OSError) as error:
        log.error("the failure could not be written to %s: %s", folder.path, error)


def work(payload: dict[str, Any], progress: Progress, stop: Stop) -> tuple[RunState, str]:
    """:func:`execute` for the launcher: ``payload`` is a plain configuration."""
    try:
        return execute(RunConfig.model_validate(payload), progress, stop)
    except ValueError as error:
        if not isinstance(error, UserError):
            raise
        return RunState.FAILED, str(error)
