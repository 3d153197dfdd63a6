"""Preparation of a data set into memory-mapped arrays, once, safe against kills, races and damage.

A prepared set is a folder `<cache>/<name>-<hash>/` with `train_images.npy`, `train_labels.npy`, ... and `done.json`.
The folder appears by one rename when all is written, so an interrupted preparation is never read. The hash covers the
name and the options: other options are another set, beside the first. done.json notes these, the builder's code, the
raw files, and sizes and fingerprint of the arrays. If options, code or raw files are others now, the set is stale and
prepared anew. If the arrays are, it is damaged.
"""

import contextlib
import errno
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from benchmark import code
from benchmark.system import replacing
from datasets.core import raw
from datasets.core.arrays import NAMES, channel_moments, fingerprint
from datasets.core.base import (
    FIELDS,
    PARTS,
    DataError,
    Dataset,
    Options,
    RawDataset,
    Split,
    UserFileOptions,
    validate,
)
from datasets.core.decode import decode_into
from datasets.core.download import downloads
from datasets.core.folders import Place
from datasets.core.images import BadImage, ListedDataset
from datasets.core.registry import RegisteredDataset, get, parse

MARKER = "done.json"

_FULL = (errno.ENOSPC, errno.EDQUOT)

_log = logging.getLogger(__name__)


class DamagedError(DataError):
    """Files of a prepared set are not what was written."""


class StaleError(DamagedError):
    """A prepared set is not what the builder would make today."""


@dataclass(frozen=True)
class Location:
    """A data set with its validated options, and where its raw files and its prepared arrays lie.

    ``identity`` is what the name of the folder is the hash of.
    """

    entry: RegisteredDataset
    options: Options
    root: Path
    folder: Path
    identity: Mapping[str, Any]


def locate(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> Location:
    """Where the set `name` with these options lies or would lie.

    Args:
        name: Name in the registry.
        options: Options of its builder; None means all defaults.
        root: Folder of the raw data; default FEDTABLES_DATA, else `data/` in the current folder.
        cache: Folder of the prepared sets; default FEDTABLES_CACHE, else `.cache/datasets` in the current folder.

    Raises:
        DataError: Unknown name or option.
    """
    entry = get(name)
    parsed = parse(entry, options)
    top = Path(root or os.environ.get("FEDTABLES_DATA") or "data").expanduser().absolute()
    prepared = Path(cache or os.environ.get("FEDTABLES_CACHE") or ".cache/datasets").expanduser().absolute()
    shown = parsed.model_dump(mode="json")
    identity: dict[str, Any] = {"name": name, "options": shown}
    if isinstance(parsed, UserFileOptions):
        top = Path(parsed.path or "").expanduser().absolute()
        top = top.parent if top.suffix == ".npz" else top
    if isinstance(parsed, UserFileOptions) or not getattr(parsed, "strict", True):
        # Without known counts and checksums two roots may hold different data under the same name.
        identity["root"] = str(top.resolve())
    return Location(entry, parsed, top, prepared / f"{name}-{code.of(identity)[:16]}", identity)


def load(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> Dataset:
    """The data set `name`, prepared first if that has not been done; its images are memory-mapped.

    Arguments as `locate`.

    Raises:
        DataError: As `locate`; raw data missing or wrong, folders not writable, prepared arrays damaged.
    """
    place = locate(name, options, root, cache)
    try:
        data = check(place, whole=False)
    except StaleError as error:
        _log.warning("%s", error)
        data = None
    return data or _prepare(place)


def prepare(place: Location, force: bool = False) -> Dataset:
    """Prepare a data set; one that is there, undamaged and not stale is kept unless `force`. Errors as `load`."""
    try:
        data = None if force else check(place)
    except DamagedError:
        data, force = None, True
    return data or _prepare(place, force)


def check(place: Location, whole: bool = True) -> Dataset | None:
    """The prepared set, compared with what was written; None if it is not prepared.

    Compared are options, code of the builder, size and time of raw files, and size of arrays. ``whole``: also the
    content of all raw files and arrays.

    Raises:
        StaleError: It is not what the builder would make today.
        DamagedError: Its arrays are not what was written.
    """
    marker = _read_marker(place.folder)
    if marker is None:
        return None
    why = "" if marker["identity"] == place.identity else "the folder has the set of other options"
    if why := why or _why_stale(place.folder, marker, place.root, whole):
        raise StaleError(f"{place.entry.name}: {why}. The arrays in {place.folder} are prepared anew.")
    data = _open(place, marker)
    if whole and (now := fingerprint(data)) != data.fingerprint:
        raise _damaged(place, f"fingerprint: got {now[:16]}...; expected {data.fingerprint[:16]}...")
    return data


def _why_stale(folder: Path, marker: dict[str, Any], root: Path, whole: bool = False) -> str:
    """What has changed since the set in the folder was prepared, of its builder's code and its raw files."""
    if files := code.changed(marker["code"]):
        return f"the code of its builder has changed ({', '.join(files)})"
    why, notes = raw.difference(root, marker["raw"], whole)
    if notes != marker["raw"]:
        # The same content with other times, as of a copy: it is not read again next time.
        with contextlib.suppress(OSError), replacing(folder / MARKER) as beside:
            beside.write_text(json.dumps(marker | {"raw": notes}, indent=1), encoding="utf-8")
    return why


def current_fingerprint(folder: Path) -> str | None:
    """The fingerprint of the set in a folder; empty if it is stale, None if no set is there."""
    marker = _read_marker(folder)
    if marker is None:
        return None
    return "" if _why_stale(folder, marker, Path(marker["root"])) else str(marker["fingerprint"])


def is_prepared(place: Location) -> bool:
    """Whether `load` would find the set prepared and its files complete; the content of arrays is not read."""
    try:
        return check(place, whole=False) is not None
    except DamagedError:
        return False


def require_raw_files(place: Location) -> None:
    """Check that the raw files of a data set are there and complete: nothing is downloaded, decoded or written.

    Raises:
        DataError: Raw data missing or wrong.
    """
    before = downloads.set(False)
    try:
        place.entry.build(place.options, place.root)
    finally:
        downloads.reset(before)


# Writing -------------------------------------------------------------------------------------------------------------


def _prepare(place: Location, force: bool = False) -> Dataset:
    with _writing(place):
        place.folder.parent.mkdir(parents=True, exist_ok=True)
        # A kill releases the lock.
        held = FileLock(place.folder.with_name(f".{place.folder.name}.lock")).acquire()
    with held:
        if force or not is_prepared(place):  # otherwise another process was faster
            built = place.entry.build(place.options, place.root)
            validate(place.entry.name, built)
            files = raw.stats(place.root, raw.names_of(place.root, built))
            with _writing(place):
                _replace(place, built, files)
    marker = _read_marker(place.folder)
    if marker is None:
        raise DataError(f"{place.folder} vanished while it was prepared; does another program delete it?")
    return _open(place, marker)


def _replace(place: Location, built: RawDataset | ListedDataset, files: dict[str, list[int]]) -> None:
    """Decode and write a set beside its folder, then rename it into place. ``files`` are the raw ones as they were."""
    partial, old = (place.folder.with_name(f".{place.folder.name}.{state}") for state in ("partial", "old"))
    if isinstance(built, ListedDataset):
        # What is decoded stays in the folder if this stops, to continue from.
        try:
            built = decode_into(built, partial, place.entry.name)
        except BadImage as bad:
            raw_files = Place(place.entry.tree, place.root, place.root)
            raise raw_files.bad_file(bad.path, bad.problem, "an image") from bad
    else:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    try:
        _write(partial, place, built, raw.noted(place.root, files))
        if raw.stats(place.root, files) != files:
            raise DataError(
                f"{place.entry.name}: raw files below {place.root} changed while they were prepared. Give the same "
                "command again when they do not change any more."
            )
        # A folder cannot replace a filled one in one step. A process that reads the old one keeps its mapped files;
        # one that comes between the two steps finds nothing, waits for the lock and finds the new one.
        shutil.rmtree(old, ignore_errors=True)
        if place.folder.exists():
            os.replace(place.folder, old)
        os.replace(partial, place.folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _writing(place: Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        free = "free some space" if error.errno in _FULL else "make it writable"
        raise DataError(
            f"{place.entry.name}: cannot write the prepared arrays under {place.folder.parent} "
            f"({error.strerror or error}). Please {free}, or set FEDTABLES_CACHE to another folder."
        ) from error


def _write(folder: Path, place: Location, built: RawDataset, notes: raw.Notes) -> None:
    mean, std = (built.mean, built.std) if built.mean and built.std else channel_moments(built.train.images)
    data = Dataset(**vars(built) | {"mean": mean, "std": std}, name=place.entry.name, fingerprint="")
    sizes = {}
    for name, array in data.arrays().items():
        path = folder / f"{name}.npy"
        if not path.exists():  # images that were decoded are there
            np.save(path, array, allow_pickle=False)
        sizes[name] = path.stat().st_size
    marker = {
        "identity": place.identity,
        "code": code.builder(place.entry.builder.__module__),
        "root": str(place.root),
        "raw": notes,
        "fingerprint": fingerprint(data),
        "bytes": sizes,
        **{key: getattr(data, key) for key in ("name", *NAMES, "note", "expected")},
    }
    (folder / MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")
    for path in folder.iterdir():
        with open(path, "rb+") as handle:
            os.fsync(handle.fileno())


# Reading -------------------------------------------------------------------------------------------------------------


def _read_marker(folder: Path) -> dict[str, Any] | None:
    """The content of done.json; None if it is missing or unreadable, so that the set is prepared anew."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # ValueError: not JSON, or not text
        return None
    complete = isinstance(marker, dict) and {"identity", "code", "raw", "bytes"} <= marker.keys()
    return marker if complete else None


def _open(place: Location, marker: dict[str, Any]) -> Dataset:
    """The prepared set with its arrays memory-mapped. `DamagedError` if one is missing or of another size."""
    paths = {name: place.folder / f"{name}.npy" for name in marker["bytes"]}
    sizes = {name: path.stat().st_size if path.exists() else 0 for name, path in paths.items()}
    wrong = [name for name, size in marker["bytes"].items() if sizes[name] != size]
    if wrong:
        texts = (
            f"{name}.npy: got {sizes[name]:,} bytes; expected {marker['bytes'][name]:,}" for name in wrong
        )
        raise _damaged(place, "; ".join(texts))
    try:
        arrays = {name: np.load(path, mmap_mode="r", allow_pickle=False) for name, path in paths.items()}
    except ValueError as error:
        raise _damaged(place, f"not a readable array ({error})") from error
    said: dict[str, Any] = {key: tuple(marker[key]) for key in NAMES}
    said |= {part: Split(*(arrays.get(f"{part}_{field}") for field in FIELDS)) for part in PARTS}  # type: ignore[arg-type]
    said |= {key: marker[key] for key in ("name", "fingerprint", "code", "note")}
    said["expected"] = tuple(map(tuple, marker["expected"]))
    if marker["raw"] and not any((place.root / name).exists() for name in marker["raw"]):
        gone = "The raw files are gone, so that it cannot be compared with them."
        said["note"] = f"{said['note']} {gone}".strip()
    return Dataset(**said, folder=place.folder)


def _damaged(place: Location, damage: str) -> DamagedError:
    return DamagedError(
        f"{place.entry.name}: the prepared arrays in {place.folder} are damaged: {damage}. "
        "Delete that folder: the set is then prepared anew."
    )
