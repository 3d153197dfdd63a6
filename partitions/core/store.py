"""One partition made, identified, kept on disk and read back.

A partition is a pure function of (data set, scheme, parameters, seed), and its id is the hash of these. On
disk it is a folder of that name with `partition.npz` (the indices) and `statistics.json` (what it is, counts
and metrics). The folder is written aside and renamed, so it is there as a whole or not at all; what is there
is never written again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partitions.core.base import IntArray, PartitionError, Population
from partitions.core.heterogeneity import class_counts, group_counts, six_metrics
from partitions.core.registry import make

FORMAT = 1  # part of every id: raise it when a scheme draws differently for the same parameters
INDICES, STATISTICS = "partition.npz", "statistics.json"
_PURPOSE = int.from_bytes(b"partition", "big")  # keeps this stream apart from others with the same seed

DatasetKey = str | Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Partition:
    """The clients of a federation and what is counted about them.

    Attributes:
        id: name of the partition, `<scheme>-<hash>`.
        clients: K ascending arrays of sample indices, int64 [n_k].
        counts: samples per client and class, int64 [K, Y] (a sample given twice counts twice).
        counts_attr: samples per client, class and attribute, int64 [K, Y, A]; None without attributes.
        metrics: GCI, GAI, GSC, CCI, CAI, CSC; None where undefined.
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

    def unassigned(self) -> IntArray:
        """Return the samples that no client has, ascending (the test data of FedSDC's NIID-2)."""
        free = np.ones(self.num_samples, dtype=bool)
        free[np.concatenate(self.clients)] = False
        return np.flatnonzero(free)


def identity(
    dataset_key: DatasetKey, name: str, params: Mapping[str, Any] | None, seed: int
) -> dict[str, Any]:
    """Return what identifies a partition, all parameters filled in; arguments as `make_partition`."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise PartitionError(
            f"partition {name}: partition.seed must be an integer >= 0 (or null), got {seed!r}."
        )
    return {
        "format": FORMAT,
        "dataset": dataset_key if isinstance(dataset_key, str) else dict(dataset_key),
        "scheme": name,
        "params": make(name, params).model_dump(mode="json"),
        "seed": seed,
    }


def partition_id(dataset_key: DatasetKey, name: str, params: Mapping[str, Any] | None, seed: int) -> str:
    """Return `<scheme>-<12 hex digits>`; see `make_partition` for arguments and errors."""
    return _id(identity(dataset_key, name, params, seed))


def _id(known: dict[str, Any]) -> str:
    text = json.dumps(known, sort_keys=True, separators=(",", ":"))
    return f"{known['scheme']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def make_partition(
    population: Population,
    name: str,
    params: Mapping[str, Any] | None,
    seed: int,
    dataset_key: DatasetKey,
    folder: Path | str | None = None,
) -> Partition:
    """Return a partition, from `folder` if it is there, otherwise drawn (and put there).

    Args:
        population: the samples to cut.
        name: scheme, one of `partitions.names()`.
        params: its parameters (the YAML without `name` and `seed`).
        seed: integer >= 0.
        dataset_key: name, fingerprint and sub-sampling of the data set: JSON values that change with the
            population.
        folder: where partitions are kept, or None.

    Raises:
        PartitionError: unknown scheme or parameter, an impossible partition, a damaged or foreign file in
            `folder`.
    """
    known = identity(dataset_key, name, params, seed)
    if folder is not None and (Path(folder) / _id(known)).exists():
        return load(folder, _id(known), population)
    generator = np.random.default_rng([seed, _PURPOSE])
    clients = make(name, params).split(population, generator)
    made = _with_statistics(clients, population, known)
    if folder is not None:
        save(made, population, folder)
    return made


def _with_statistics(clients: list[IntArray], population: Population, known: dict[str, Any]) -> Partition:
    counts = class_counts(clients, population.labels, population.num_classes)
    groups = None
    if population.attributes is not None:
        groups = group_counts(
            clients,
            population.labels,
            population.attributes,
            population.num_classes,
            population.num_attributes,
        )
    metrics = six_metrics(counts if groups is None else groups)
    return Partition(_id(known), clients, counts, groups, metrics, known, len(population))


def save(partition: Partition, population: Population, folder: Path | str) -> Path:
    """Write a partition under its id and return the path; one that is there already stays as it is.

    Raises:
        PartitionError: if the folder cannot be written (no rights, disk full).
    """
    final = Path(folder) / partition.id
    aside = final.with_name(f".{partition.id}.{os.getpid()}.{secrets.token_hex(4)}")
    flat, offsets = np.concatenate(partition.clients), np.cumsum([0, *partition.sizes])
    try:
        aside.mkdir(parents=True)
        np.savez_compressed(aside / INDICES, flat=flat, offsets=offsets)
        statistics = _statistics(partition, population, flat, offsets)
        (aside / STATISTICS).write_text(json.dumps(statistics, indent=1) + "\n", encoding="utf-8")
        if not final.exists():
            _rename_unless_taken(aside, final)
    except OSError as error:
        raise PartitionError(f"cannot write partition {final}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return final


def _rename_unless_taken(aside: Path, final: Path) -> None:
    try:
        aside.rename(final)  # refused by the system where a folder with files stands: nothing is overwritten
    except OSError:
        if not final.exists():  # otherwise another process was first, with the same content
            raise


def _statistics(
    partition: Partition, population: Population, flat: IntArray, offsets: IntArray
) -> dict[str, Any]:
    return {
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
        "indices_sha256": _digest(flat, offsets),
    }


def _digest(*arrays: IntArray | None) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray([] if array is None else array, dtype="<i8")
        digest.update(np.int64(len(values)).astype("<i8").tobytes() + values.tobytes())
    return digest.hexdigest()


def load(folder: Path | str, partition_name: str, population: Population) -> Partition:
    """Read the partition with this id back.

    Args:
        folder: where partitions are kept.
        partition_name: its id.
        population: the samples it was made for; counts and metrics are computed anew from it.

    Raises:
        PartitionError: nothing there (nearest id named), unreadable or changed files, or made for other data.
    """
    path = Path(folder) / partition_name
    if not path.is_dir():
        there = sorted(entry.name for entry in Path(folder).glob("[!.]*")) if Path(folder).is_dir() else []
        raise PartitionError(
            f"no partition {partition_name!r} in {Path(folder).absolute()} ({len(there)} there)."
            f"{nearest_id(partition_name, there)}"
        )
    try:
        statistics = json.loads((path / STATISTICS).read_text(encoding="utf-8"))
        with np.load(path / INDICES, allow_pickle=False) as stored:
            flat, offsets = stored["flat"], stored["offsets"]
        known = {key: statistics[key] for key in ("format", "dataset", "scheme", "params", "seed")}
        intact = statistics["indices_sha256"] == _digest(flat, offsets) and _id(known) == partition_name
        same_data = statistics["population_sha256"] == _digest(
            population.labels, population.attributes, population.sources
        )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise PartitionError(f"{_damaged(path)} ({error})") from error
    if not intact:
        raise PartitionError(f"{_damaged(path)} (its content does not fit its id)")
    if not same_data:
        raise PartitionError(
            f"partition {path} was made for other data ({statistics['num_samples']} samples, now "
            f"{len(population)}), though under the same key {known['dataset']!r}. Remove it, or prepare "
            "the data set again."
        )
    return _with_statistics(np.split(flat, offsets[1:-1]), population, known)


def nearest_id(wanted: str, there: list[str]) -> str:
    """Return a hint at the stored ids that begin like `wanted`."""
    alike = [one for one in there if one.startswith(wanted.split("-")[0])][:5]
    return f" Of this scheme: {', '.join(alike)}." if alike else ""


def _damaged(path: Path) -> str:
    return f"partition {path} is damaged; remove the folder and run again: it will be made anew, the same"
