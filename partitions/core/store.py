"""One partition made, identified, kept on disk and read back.

A partition is a function of (data set, scheme, parameters, seed); its id is their hash. On disk it is a folder of this
name with `partition.npz` (indices) and `statistics.json` (identity, counts, metrics). The folder is renamed into place
when it is complete, and never written again.
"""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.errors import wrong
from benchmark.heterogeneity import class_counts, group_counts, six_metrics
from benchmark.system import replacing
from partitions.core.base import IntArray, PartitionError, Population
from partitions.core.registry import make

FORMAT = 1
"""Part of every id: increase it if a scheme draws differently for the same parameters."""
INDICES, STATISTICS = "partition.npz", "statistics.json"
_PURPOSE = int.from_bytes(b"partition", "big")  # separates this random stream from others with the same seed


@dataclass(frozen=True, eq=False)
class Partition:
    """The clients of a federation and their statistics.

    Attributes:
        id: name of the partition, `<scheme>-<hash>`.
        clients: K ascending arrays of sample indices, int64 [n_k].
        counts: samples per client and class, int64 [K, Y] (a sample given twice counts twice).
        counts_attr: samples per client, class and attribute, int64 [K, Y, A]; None without attributes.
        metrics: GCI, GAI, GSC, CCI, CAI, CSC; None if undefined.
        identity: what the id is the hash of: format, dataset, scheme, params, seed.
        num_samples: N, size of the population.
    """

    id: str
    clients: list[IntArray]
    counts: IntArray
    counts_attr: IntArray | None
    metrics: dict[str, float | None]
    identity: dict[str, Any]
    num_samples: int

    @property
    def sizes(self) -> IntArray:
        """Number of samples of each client, int64 [K]."""
        return np.array([len(client) for client in self.clients], dtype=np.int64)

    @property
    def digest(self) -> str:
        """SHA-256 of the indices of all clients."""
        return _digest(np.concatenate(self.clients), np.cumsum([0, *self.sizes]))

    def unassigned(self) -> IntArray:
        """The samples that no client has, ascending (the test data of FedSDC's NIID-2)."""
        return np.setdiff1d(np.arange(self.num_samples), np.concatenate(self.clients))


def make_partition(
    population: Population,
    name: str,
    params: Mapping[str, Any] | None,
    seed: int,
    dataset_key: str,
    folder: Path | None = None,
) -> Partition:
    """A partition, from `folder` if it is there, otherwise drawn (and stored there).

    Args:
        population: the samples to cut.
        name: scheme, one of `partitions.names()`.
        params: its parameters (the YAML file without `name` and `seed`).
        seed: integer >= 0.
        dataset_key: name, fingerprint and sub-sampling of the data set: a text that changes with the population.
        folder: where partitions are kept, or None.

    Raises:
        PartitionError: Unknown scheme or parameter, an impossible partition, a damaged or foreign file in `folder`.
    """
    if seed < 0:
        raise PartitionError(wrong("partition.seed", seed, "an integer >= 0 (or null)"))
    scheme = make(name, params)
    identity = {
        "format": FORMAT,
        "dataset": dataset_key,
        "scheme": name,
        "params": scheme.model_dump(mode="json"),
        "seed": seed,
    }
    if folder is not None and (folder / _id(identity)).exists():
        return _load(folder / _id(identity), population)
    generator = np.random.default_rng([seed, _PURPOSE])
    made = _with_statistics(scheme.split(population, generator), population, identity)
    if folder is not None:
        save(made, population, folder)
    return made


def _id(identity: Mapping[str, Any]) -> str:
    """`<scheme>-<12 hex digits>`."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return f"{identity['scheme']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _with_statistics(clients: list[IntArray], population: Population, identity: dict[str, Any]) -> Partition:
    labels, attributes, classes = population.labels, population.attributes, population.num_classes
    counts, groups = class_counts(clients, labels, classes), None
    if attributes is not None:
        groups = group_counts(clients, labels, attributes, classes, population.num_attributes)
    metrics = six_metrics(counts if groups is None else groups)
    return Partition(_id(identity), clients, counts, groups, metrics, identity, len(population))


def save(partition: Partition, population: Population, folder: Path) -> None:
    """Write a partition under its id; an existing one stays as it is.

    Raises:
        PartitionError: The folder cannot be written (no rights, disk full).
    """
    final = folder / partition.id
    flat, offsets = np.concatenate(partition.clients), np.cumsum([0, *partition.sizes])
    statistics = {
        "id": partition.id,
        **partition.identity,
        "num_samples": partition.num_samples,
        "num_clients": len(partition.clients),
        "sizes": partition.sizes.tolist(),
        "class_names": list(population.class_names),
        "attribute_names": list(population.attribute_names),
        "counts": partition.counts.tolist(),
        "counts_attr": None if partition.counts_attr is None else partition.counts_attr.tolist(),
        "metrics": partition.metrics,
        "population_sha256": _digest(population.labels, population.attributes, population.sources),
        "indices_sha256": partition.digest,
    }
    try:
        # The system refuses to rename onto a folder with files: nothing is overwritten.
        with replacing(final) as aside:
            aside.mkdir(parents=True)
            np.savez_compressed(aside / INDICES, flat=flat, offsets=offsets)
            (aside / STATISTICS).write_text(json.dumps(statistics, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        if not (final / STATISTICS).exists():  # otherwise another process was first, with the same content
            raise PartitionError(f"cannot write partition {final}: {error.strerror or error}.") from error


def _digest(*arrays: IntArray | None) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray([] if array is None else array, dtype="<i8")
        digest.update(np.int64(len(values)).astype("<i8").tobytes() + values.tobytes())
    return digest.hexdigest()


def _load(path: Path, population: Population) -> Partition:
    """Read a partition back; counts and metrics are computed anew from the population.

    Raises:
        PartitionError: Unreadable or changed files, or made for other data.
    """
    damaged = f"partition {path} is damaged; remove the folder and run again: it will be made anew, the same"
    try:
        statistics = json.loads((path / STATISTICS).read_text(encoding="utf-8"))
        with np.load(path / INDICES, allow_pickle=False) as stored:
            flat, offsets = stored["flat"], stored["offsets"]
        identity = {key: statistics[key] for key in ("format", "dataset", "scheme", "params", "seed")}
        intact = statistics["indices_sha256"] == _digest(flat, offsets) and _id(identity) == path.name
        data = _digest(population.labels, population.attributes, population.sources)
        same_data = statistics["population_sha256"] == data
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise PartitionError(f"{damaged} ({error})") from error
    if not intact:
        raise PartitionError(f"{damaged} (its content does not fit its id)")
    if not same_data:
        raise PartitionError(
            f"partition {path} was made for other data ({statistics['num_samples']} samples, now {len(population)}) "
            f"under the same key {identity['dataset']!r}. Remove it, or prepare the data set again."
        )
    return _with_statistics(np.split(flat, offsets[1:-1]), population, identity)
