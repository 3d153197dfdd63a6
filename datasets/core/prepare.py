"""Preparation of a data set into memory-mapped arrays, once, safe against kills, races and damage.

A prepared set is a folder `<cache>/<name>-<hash>/` with `train_images.npy`, `train_labels.npy`, ... and `done.json`.
The folder appears by one rename when all is written, so an interrupted preparation is never read. The hash covers the
name, the builder's version and its options: other options are another set, beside the first.
"""

from __future__ import annotations

import contextlib
import errno
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
from filelock import FileLock

from datasets.core.base import (
    FIELDS,
    PARTS,
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
from datasets.core.images import ListedDataset
from datasets.core.registry import Entry, get, parse

FORMAT = 1
"""Of the folder on disk; with another number in done.json the set is prepared anew."""
MARKER = "done.json"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Place:
    """A data set with its validated options, and where its raw files and its prepared arrays lie."""

    entry: Entry
    options: Options
    root: Path
    folder: Path


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


def load(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> Dataset:
    """The data set `name`, prepared first if that has not been done; its images are memory-mapped.

    Args:
        name: Name in the registry.
        options: Options of its builder; None means all defaults.
        root: Folder of the raw data; default FEDTABLES_DATA, else `data/` in the current folder.
        cache: Folder of the prepared sets; default FEDTABLES_CACHE, else `.cache/datasets` in the current folder.

    Raises:
        DataError: Unknown name or option, raw data missing or wrong, folders not writable, prepared arrays damaged.
    """
    place = locate(name, options, root, cache)
    marker = read_marker(place.folder)
    if marker is None:
        _prepare(place)
        marker = read_marker(place.folder)
    if marker is None:
        raise DataError(f"{place.folder} vanished while it was prepared; does another program delete it?")
    damage = damaged_files(place.folder, marker)
    if damage:
        raise DataError(damage_message(place, damage))
    return open_arrays(place, marker)


def prepare(
    name: str,
    options: Mapping[str, Any] | None = None,
    root: Path | None = None,
    cache: Path | None = None,
    force: bool = False,
) -> Path:
    """Prepare a data set and return its folder; a set that is there and undamaged is kept unless `force`.

    Arguments and errors as `load`.
    """
    place = locate(name, options, root, cache)
    marker = None if force else read_marker(place.folder)
    if marker is None:
        _prepare(place, force)
    elif damaged_files(place.folder, marker) or damaged_content(place.folder, marker):
        _prepare(place, force=True)
    return place.folder


def is_prepared(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> bool:
    """Whether `load` would find the set prepared and its files complete; content is not read. Errors as `load`."""
    place = locate(name, options, root, cache)
    marker = read_marker(place.folder)
    return marker is not None and not damaged_files(place.folder, marker)


def find(name: str, options: Mapping[str, Any] | None = None, root: Path | None = None) -> None:
    """Check that the raw files of a data set are there and complete: nothing is downloaded, decoded or written.

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


# Writing -------------------------------------------------------------------------------------------------------------


def _prepare(place: Place, force: bool = False) -> None:
    name, beside = place.entry.name, f".{place.folder.name}"
    with contextlib.ExitStack() as stack:
        with _writing(place):
            place.folder.parent.mkdir(parents=True, exist_ok=True)
            # A kill releases the lock.
            stack.enter_context(FileLock(place.folder.with_name(f"{beside}.lock")))
        if not force and read_marker(place.folder) is not None:
            return  # another process was faster
        # Leftovers are of a killed process: a running one would hold the lock.
        for leftover in place.folder.parent.glob(f"{beside}.tmp-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        built = place.entry.builder(place.options, place.root)
        temporary = place.folder.with_name(f"{beside}.tmp-{os.getpid()}")
        if isinstance(built, ListedDataset):
            from datasets.core.decode import decode_into  # with rich and multiprocessing, for raw images only

            temporary = place.folder.with_name(f"{beside}.partial")  # kept if this stops, to continue from
            check_labels(name, built)
            with _writing(place):
                built = decode_into(built, temporary, name)
        validate(name, built)
        try:
            with _writing(place):
                temporary.mkdir(exist_ok=True)
                _write(temporary, place, built)
                _swap(temporary, place.folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _writing(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "make it writable, or set FEDTABLES_CACHE to another folder"
        if error.errno == errno.ENOSPC:
            advice = "free some space"
        raise DataError(
            f"{place.entry.name}: cannot write the prepared arrays under {place.folder.parent} "
            f"({error.strerror or error}); {advice}."
        ) from error


def _write(folder: Path, place: Place, raw: RawDataset) -> None:
    arrays = {
        f"{part}_{field}": array
        for part, split in zip(PARTS, (raw.train, raw.test), strict=True)
        for field, array in split.arrays().items()
    }
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
        size = path.stat().st_size
        marker["arrays"][name] = {"bytes": size, "dtype": str(array.dtype), "shape": list(array.shape)}
    with open(folder / MARKER, "w", encoding="utf-8") as handle:
        json.dump(marker, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())


def _swap(temporary: Path, folder: Path) -> None:
    # A folder cannot replace a filled one in one step: the old one is moved aside first. A process that reads it
    # keeps its mapped files; one that comes between the two steps finds nothing, waits for the lock and finds the new.
    if folder.exists():
        aside = folder.with_name(f".{folder.name}.tmp-old")
        os.replace(folder, aside)
        os.replace(temporary, folder)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        os.replace(temporary, folder)


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


# Reading -------------------------------------------------------------------------------------------------------------


def read_marker(folder: Path) -> dict[str, Any] | None:
    """The content of done.json; None if it is missing, unreadable or of another format, so that it is prepared anew."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: not JSON, or not text
        return None
    except OSError as error:
        raise DataError(f"cannot read {folder / MARKER} ({error.strerror}); set FEDTABLES_CACHE.") from error
    good = isinstance(marker, dict) and marker.get("format") == FORMAT and marker.get("arrays")
    return marker if good else None


def damaged_files(folder: Path, marker: Mapping[str, Any]) -> list[str]:
    """Files whose size is not what was written. This is cheap, so every load does it."""
    damage = []
    for name, written in marker["arrays"].items():
        path = folder / f"{name}.npy"
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            damage.append(f"{path.name} is missing")
        elif size != written["bytes"]:
            damage.append(f"{path.name}: got {size:,} bytes; expected {written['bytes']:,}")
    return damage


def damaged_content(folder: Path, marker: Mapping[str, Any]) -> list[str]:
    """Whether the arrays still hash to the fingerprint. This reads everything."""
    try:
        arrays = {name: _open_array(folder, name, written) for name, written in marker["arrays"].items()}
    except DataError as error:
        return [str(error)]
    found, written = _fingerprint(marker, arrays), marker["fingerprint"]
    return [] if found == written else [f"fingerprint: got {found[:16]}...; expected {written[:16]}..."]


def damage_message(place: Place, damage: list[str]) -> str:
    """The message about a damaged set."""
    return (
        f"{place.entry.name}: the prepared arrays in {place.folder} are damaged: {'; '.join(damage)}. "
        "Run `python -m benchmark data prepare` for it, or delete that folder: the set is then prepared anew."
    )


def open_arrays(place: Place, marker: Mapping[str, Any]) -> Dataset:
    """The prepared set with its arrays memory-mapped."""
    arrays = {name: _open_array(place.folder, name, written) for name, written in marker["arrays"].items()}
    train, test = (Split(*(arrays.get(f"{part}_{field}") for field in FIELDS)) for part in PARTS)  # type: ignore[arg-type]
    names = {key: tuple(marker[key]) for key in ("classes", "attributes", "sources", "mean", "std")}
    return Dataset(place.entry.name, marker["fingerprint"], train, test, **names, note=marker["note"])


def _open_array(folder: Path, name: str, written: Mapping[str, Any]) -> Array:
    path = folder / f"{name}.npy"
    advice = f"Delete the folder {folder}: the set is then prepared anew."
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable array ({error}). {advice}") from error
    if str(array.dtype) != written["dtype"] or list(array.shape) != written["shape"]:
        expected = f"{written['dtype']} {tuple(written['shape'])}"
        raise DataError(f"{path}: got {array.dtype} {array.shape}; expected {expected}. {advice}")
    return array
