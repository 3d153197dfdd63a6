"""Preparation of a data set into memory-mapped arrays, once, safe against kills, races and damage.

A prepared set is a folder `<cache>/<name>-<hash>/` with `train_images.npy`, `train_labels.npy`, ... and `done.json`.
The folder appears by one rename when all is written, so what a killed preparation leaves behind is never read. The
hash covers the name, the builder's version and its options: other options are another set, beside the first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from datasets.core.base import (
    DataError,
    Dataset,
    Options,
    RawDataset,
    Split,
    channel_moments,
    check_labels,
    rows_of,
    validate,
)
from datasets.core.images import ListedDataset, decode_into
from datasets.core.registry import Entry, get, parse

FORMAT = 1  # of the folder on disk; another number in done.json means: prepare anew
MARKER = "done.json"
PARTS = ("train", "test")
FIELDS = ("images", "labels", "attributes", "sources")

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Place:
    """A data set with its validated options, and where its raw files and its prepared arrays lie."""

    entry: Entry
    options: Options
    root: Path
    folder: Path

    @property
    def lock(self) -> Path:
        """File whose lock the preparing process holds; it is never deleted, as that would split the lock."""
        return self.folder.with_name(f".{self.folder.name}.lock")


@dataclass(frozen=True)
class Count:
    """Number of images of one class (and attribute, source) in a split; None where the data set has none."""

    split: str
    label: str
    attribute: str | None
    source: str | None
    images: int


@dataclass(frozen=True)
class Report:
    """What `check` found: counts per split, class, attribute and source, and problems (none: all is well).

    `expected` are the published counts, as in `RawDataset`. A difference is no problem by itself: the builder refuses
    what it must, and a cut-down copy differs on purpose.
    """

    name: str
    folder: Path
    fingerprint: str
    counts: tuple[Count, ...]
    note: str
    problems: tuple[str, ...]
    expected: tuple[tuple[str, str, str, int], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the set is prepared and its content is what was prepared."""
        return not self.problems


def load(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> Dataset:
    """The data set `name`, prepared first where that has not been done; its images are memory-mapped.

    Args:
        name: Name in the registry.
        options: Options of its builder; None means all defaults.
        root: Folder of the raw data; default FEDTABLES_DATA, else `data/` in the current folder.
        cache: Folder of the prepared sets; default FEDTABLES_CACHE, else `.cache/datasets` in the current folder.

    Raises:
        DataError: Unknown name or option, raw data missing or wrong, folders not writable, prepared arrays damaged.
    """
    place = locate(name, options, root, cache)
    marker = _read_marker(place.folder)
    if marker is None:
        _prepare(place)
        marker = _read_marker(place.folder)
        if marker is None:
            raise DataError(
                f"{place.folder} vanished while it was prepared; is another program cleaning it up?"
            )
    damage = _damaged_files(place.folder, marker)
    if damage:
        raise DataError(_damage_message(place, damage))
    return _open(place, marker)


def prepare(
    name: str,
    options: Mapping[str, Any] | None = None,
    root: Path | None = None,
    cache: Path | None = None,
    force: bool = False,
) -> Path:
    """Prepare a data set and return its folder; a set that is there and whole is kept.

    A set with a damaged array is built anew, and so is any set with `force`. Arguments and errors as `load`.
    """
    place = locate(name, options, root, cache)
    marker = None if force else _read_marker(place.folder)
    if marker is None:
        _prepare(place, force)
    elif _damaged_files(place.folder, marker) or _damaged_content(place.folder, marker):
        _prepare(place, force=True)
    return place.folder


def is_prepared(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> bool:
    """Whether `load` would find the set prepared and its files complete; content is not read. Errors as `load`."""
    place = locate(name, options, root, cache)
    marker = _read_marker(place.folder)
    return marker is not None and not _damaged_files(place.folder, marker)


def find(name: str, options: Mapping[str, Any] | None = None, root: Path | None = None) -> None:
    """See whether the raw files of a data set are there and complete: nothing is downloaded, decoded or written.

    Raises:
        DataError: Unknown name or option; raw data missing or wrong.
    """
    place = locate(name, options, root)
    before = os.environ.get("FEDTABLES_OFFLINE")
    os.environ["FEDTABLES_OFFLINE"] = "1"
    try:
        place.entry.builder(place.options, place.root)
    finally:
        if before is None:
            del os.environ["FEDTABLES_OFFLINE"]
        else:
            os.environ["FEDTABLES_OFFLINE"] = before


def check(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> Report:
    """Read a prepared set in full, verify its fingerprint and count its images; writes nothing.

    Raises:
        DataError: Unknown name or option. A set that is not prepared or damaged is a problem in the report.
    """
    place = locate(name, options, root, cache)
    marker = _read_marker(place.folder)
    if marker is None:
        problem = f"not prepared in {place.folder}: run `python -m benchmark data prepare` for it"
        return Report(name, place.folder, "", (), "", (problem,))
    damage = _damaged_files(place.folder, marker) or _damaged_content(place.folder, marker)
    if damage:
        problem = _damage_message(place, damage)
        return Report(name, place.folder, marker["fingerprint"], (), marker["note"], (problem,))
    counts = _count(_open(place, marker))
    # Sets that were prepared before their published counts were known have none.
    expected = tuple(
        (str(part), str(label), str(group), int(n)) for part, label, group, n in marker.get("expected", ())
    )
    return Report(name, place.folder, marker["fingerprint"], counts, marker["note"], (), expected)


def locate(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> Place:
    """Where the set `name` with these options lies or would lie. Arguments and errors as `load`."""
    entry = get(name)
    parsed = parse(entry, options)
    raw = Path(root or os.environ.get("FEDTABLES_DATA") or "data").expanduser().absolute()
    prepared = Path(cache or os.environ.get("FEDTABLES_CACHE") or ".cache/datasets").expanduser().absolute()
    identity: dict[str, Any] = {
        "name": name,
        "version": entry.version,
        "options": parsed.model_dump(mode="json"),
    }
    if not getattr(parsed, "strict", True):
        # Without known counts and checksums two roots may hold different data under the same name.
        identity["root"] = str(raw.resolve())
    text = json.dumps(identity, sort_keys=True)
    return Place(entry, parsed, raw, prepared / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def _prepare(place: Place, force: bool = False) -> None:
    with _locked(place):
        if not force and _read_marker(place.folder) is not None:
            return  # another process was faster
        # Whoever left these held the lock that we hold now, so it was killed.
        for leftover in place.folder.parent.glob(f".{place.folder.name}.tmp-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        built = place.entry.builder(place.options, place.root)
        if isinstance(built, ListedDataset):
            # Kept when this stops: the next one goes on from there.
            temporary = place.folder.with_name(f".{place.folder.name}.partial")
            check_labels(place.entry.name, built)
            with _writing(place):
                raw = decode_into(built, temporary, place.entry.name)
        else:
            temporary, raw = place.folder.with_name(f".{place.folder.name}.tmp-{os.getpid()}"), built
        validate(place.entry.name, raw)
        try:
            with _writing(place):
                temporary.mkdir(exist_ok=isinstance(built, ListedDataset))
                _write(temporary, place, raw)
                _swap(temporary, place.folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _locked(place: Place) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with _writing(place):
            place.lock.parent.mkdir(parents=True, exist_ok=True)
            handle = stack.enter_context(open(place.lock, "w"))
            fcntl.flock(handle, fcntl.LOCK_EX)  # given back when the file closes, also by a kill
        yield


@contextlib.contextmanager
def _writing(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        advice = (
            "free some space"
            if error.errno == errno.ENOSPC
            else "make it writable, or set FEDTABLES_CACHE to another"
        )
        raise DataError(
            f"{place.entry.name}: cannot write the prepared arrays under {place.folder.parent} ({why}); {advice}"
        ) from error


def _write(folder: Path, place: Place, raw: RawDataset) -> None:
    arrays = _arrays_of(raw.train, raw.test)
    mean, std = channel_moments(raw.train.images)
    marker: dict[str, Any] = {
        "format": FORMAT,
        "name": place.entry.name,
        "version": place.entry.version,
        "options": place.options.model_dump(mode="json"),
        "classes": list(raw.classes),
        "attributes": list(raw.attributes),
        "sources": list(raw.sources),
        "mean": list(raw.mean or mean),
        "std": list(raw.std or std),
        "note": raw.note,
        "expected": [list(item) for item in raw.expected],
    }
    marker["fingerprint"] = _fingerprint(marker, arrays)
    marker["arrays"] = {}
    for name, array in arrays.items():
        path = folder / f"{name}.npy"
        there = isinstance(array, np.memmap) and Path(str(array.filename)) == path
        with open(path, "rb+" if there else "wb") as handle:
            if not there:
                np.save(handle, array, allow_pickle=False)
                handle.flush()
            os.fsync(handle.fileno())
        marker["arrays"][name] = {
            "bytes": path.stat().st_size,
            "dtype": str(array.dtype),
            "shape": list(array.shape),
        }
    with open(folder / MARKER, "w", encoding="utf-8") as handle:
        json.dump(marker, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())


def _swap(temporary: Path, folder: Path) -> None:
    # A folder cannot replace a filled one in one step: the old one is moved aside first. A process that reads it
    # keeps its mapped files; one that comes in between finds nothing, waits for the lock, and finds the new one.
    if folder.exists():
        aside = folder.with_name(f".{folder.name}.tmp-old")
        os.replace(folder, aside)
        os.replace(temporary, folder)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        os.replace(temporary, folder)


def _read_marker(folder: Path) -> dict[str, Any] | None:
    """The content of done.json; None where it is missing, unreadable as such or of another format: prepare anew."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:  # not JSON, or not text
        return None
    except OSError as error:
        raise DataError(f"cannot read {folder / MARKER} ({error.strerror}); set FEDTABLES_CACHE") from error
    return (
        marker
        if isinstance(marker, dict) and marker.get("format") == FORMAT and marker.get("arrays")
        else None
    )


def _damaged_files(folder: Path, marker: Mapping[str, Any]) -> list[str]:
    """Files whose size is not what was written; cheap, so every load asks."""
    damage = []
    for name, written in marker["arrays"].items():
        path = folder / f"{name}.npy"
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            damage.append(f"{path.name} is missing")
        elif size != written["bytes"]:
            damage.append(f"{path.name} has {size:,} bytes, {written['bytes']:,} were written")
    return damage


def _damaged_content(folder: Path, marker: Mapping[str, Any]) -> list[str]:
    """Whether the arrays still hash to the fingerprint; reads everything."""
    try:
        arrays = {name: _open_array(folder, name, written) for name, written in marker["arrays"].items()}
    except DataError as error:
        return [str(error)]
    found = _fingerprint(marker, arrays)
    if found == marker["fingerprint"]:
        return []
    return [f"the content has the fingerprint {found[:16]}..., {marker['fingerprint'][:16]}... was written"]


def _damage_message(place: Place, damage: list[str]) -> str:
    return (
        f"{place.entry.name}: the prepared arrays in {place.folder} are damaged: {'; '.join(damage)}. "
        "Run `python -m benchmark data prepare` for it, or delete that folder: the set is then built anew"
    )


def _arrays_of(train: Split, test: Split) -> dict[str, Array]:
    return {
        f"{part}_{field}": array
        for part, split in zip(PARTS, (train, test), strict=True)
        for field, array in split.arrays().items()
    }


def _fingerprint(marker: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    names = {key: marker[key] for key in ("classes", "attributes", "sources", "mean", "std")}
    digest.update(json.dumps(names, sort_keys=True).encode())
    for name in (f"{part}_{field}" for part in PARTS for field in FIELDS):
        if name in arrays:
            array = arrays[name]
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            for rows in rows_of(array):
                digest.update(rows.data)
    return digest.hexdigest()


def _open(place: Place, marker: Mapping[str, Any]) -> Dataset:
    arrays = {name: _open_array(place.folder, name, written) for name, written in marker["arrays"].items()}
    train, test = (Split(*(arrays.get(f"{part}_{field}") for field in FIELDS)) for part in PARTS)  # type: ignore[arg-type]
    return Dataset(
        name=place.entry.name,
        fingerprint=marker["fingerprint"],
        train=train,
        test=test,
        classes=tuple(marker["classes"]),
        attributes=tuple(marker["attributes"]),
        sources=tuple(marker["sources"]),
        mean=tuple(marker["mean"]),
        std=tuple(marker["std"]),
        note=marker["note"],
    )


def _open_array(folder: Path, name: str, written: Mapping[str, Any]) -> Array:
    path = folder / f"{name}.npy"
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is not a readable array ({error}); delete the folder {folder}: the set is then built anew"
        ) from error
    if str(array.dtype) != written["dtype"] or list(array.shape) != written["shape"]:
        raise DataError(
            f"{path} holds {array.dtype} {array.shape}, but {written['dtype']} {tuple(written['shape'])} was written; "
            f"delete the folder {folder}: the set is then built anew"
        )
    return array


def _count(data: Dataset) -> tuple[Count, ...]:
    counts = []
    for part, split in zip(PARTS, (data.train, data.test), strict=True):
        attributes = data.attributes if split.attributes is not None else ()
        sources = data.sources if split.sources is not None else ()
        shape = (len(data.classes), len(attributes) or 1, len(sources) or 1)
        zeros = np.zeros(len(split), dtype=np.int64)
        index = (
            split.labels,
            zeros if split.attributes is None else split.attributes,
            zeros if split.sources is None else split.sources,
        )
        table = np.bincount(np.ravel_multi_index(index, shape), minlength=int(np.prod(shape))).reshape(shape)
        for (label, attribute, source), number in np.ndenumerate(table):
            counts.append(
                Count(
                    part,
                    data.classes[label],
                    attributes[attribute] if attributes else None,
                    sources[source] if sources else None,
                    int(number),
                )
            )
    return tuple(counts)
