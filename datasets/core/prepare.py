"""Preparation of a data set into memory-mapped arrays, once, safe against kills, races and damage.

A prepared set is a folder `<cache>/<name>-<hash>/` with `train_images.npy`, `train_labels.npy`, ... and `done.json`.
The folder appears by one rename when all is written, so an interrupted preparation is never read. The hash covers the
name and the options: other options are another set, beside the first. done.json notes these, the builder's code and the
raw files; if one of them is another now, the set is stale and prepared anew.
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

_ADVICE = {errno.ENOSPC: "free some space", errno.EDQUOT: "free some space",
           errno.EFBIG: "ask for fewer or smaller images", errno.ENOMEM: "ask for fewer or smaller images"}  # fmt: skip

_log = logging.getLogger(__name__)


class DamagedError(DataError):
    """Files of a prepared set are not what was written."""


class StaleError(DamagedError):
    """A prepared set is not what the builder would make of the raw files today."""


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
        data = _verified(place)
    except StaleError as error:
        _log.warning("%s", error)
        data = None
    return data or _prepare(place)


_VERIFIED: dict[Path, list[tuple[str, int, int, int, int]]] = {}
"""Name, inode, size and times of the files of each prepared set that this process has verified."""


def _verified(place: Location) -> Dataset | None:
    """As `check`, but a set whose files are those that this process has verified is not read again."""
    there = os.scandir(place.folder) if place.folder.is_dir() else ()
    stats = sorted((entry.name, entry.stat()) for entry in there)
    # The time of the last change of content can be set at will, that of the file's entry cannot.
    state = [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats]
    if _VERIFIED.get(place.folder) == state:
        return _open(place)
    data = check(place)
    _VERIFIED[place.folder] = state
    return data


def prepare(place: Location, force: bool = False) -> Dataset:
    """Prepare a data set; one that is there, undamaged and not stale is kept unless `force`. Errors as `load`."""
    try:
        data = None if force else check(place)
    except DamagedError:
        data, force = None, True
    return data or _prepare(place, force)


def check(place: Location) -> Dataset | None:
    """A prepared set, read in full and compared with its fingerprint; None if it is not prepared.

    Raises:
        StaleError: Its builder or its raw files have changed.
        DamagedError: Its files are not what was written.
    """
    if why := _why_stale(place):
        raise StaleError(f"{place.entry.name}: {why}. The arrays in {place.folder} are prepared anew.")
    data = _open(place)
    if data is not None and (now := fingerprint(data)) != data.fingerprint:
        raise _damaged(place, f"fingerprint: got {now[:16]}...; expected {data.fingerprint[:16]}...")
    return data


def _why_stale(place: Location) -> str:
    """Why a prepared set is not the one that belongs there; empty if it is, or if nothing is there."""
    marker = _read_marker(place.folder)
    if marker is None:
        return ""
    if other := [key for key, value in place.identity.items() if marker["identity"].get(key) != value]:
        return f"{place.folder / MARKER} is that of another set ({', '.join(other)})"
    return _changed(place.folder, marker, place.root)


def _changed(folder: Path, marker: dict[str, Any], root: Path) -> str:
    """What has changed since the set in the folder was prepared, of its builder's code and its raw files."""
    if files := code.changed(marker["code"]):
        return f"the code of its builder has changed ({', '.join(files)})"
    why, notes = raw.difference(root, marker["raw"])
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
    return "" if _changed(folder, marker, Path(marker["root"])) else str(marker["fingerprint"])


def is_prepared(place: Location) -> bool:
    """Whether `load` would find the set prepared and its files complete; the content of arrays is not read."""
    try:
        return not _why_stale(place) and _open(place) is not None
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
        # Otherwise another process was faster.
        if force or _read_marker(place.folder) is None or _why_stale(place):
            with raw.opened_files() as opened:
                built = place.entry.build(place.options, place.root)
            validate(place.entry.name, built)
            if isinstance(built, ListedDataset):
                opened |= {str(path) for part in (built.train, built.test) for path in part.paths}
            files = raw.listing(place.root, opened)
            with _writing(place):
                _replace(place, built, files)
    data = _open(place)
    if data is None:
        raise DataError(f"{place.folder} vanished while it was prepared; does another program delete it?")
    return data


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
        notes = {name: [*about, code.of_file(place.root / name)] for name, about in files.items()}
        _write(partial, place, built, notes)
        if raw.listing(place.root, files) != files:
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
        advice = _ADVICE.get(error.errno or 0, "make it writable, or set FEDTABLES_CACHE to another folder")
        raise DataError(
            f"{place.entry.name}: cannot write the prepared arrays under {place.folder.parent} "
            f"({error.strerror or error}); {advice}."
        ) from error


def _write(folder: Path, place: Location, built: RawDataset, notes: raw.Notes) -> None:
    mean, std = (built.mean, built.std) if built.mean and built.std else channel_moments(built.train.images)
    data = Dataset(**vars(built) | {"mean": mean, "std": std}, name=place.entry.name, fingerprint="")
    sizes = {}
    for name, array in data.arrays().items():
        path = folder / f"{name}.npy"
        if not path.exists():  # images that were decoded are there
            np.save(path, array, allow_pickle=False)
        sizes[name] = {"bytes": path.stat().st_size}
    marker = {
        "identity": place.identity,
        "code": code.builder(place.entry.builder.__module__),
        "root": str(place.root),
        "raw": notes,
        "fingerprint": fingerprint(data),
        "arrays": sizes,
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
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: not JSON, or not text
        return None
    except OSError as error:
        raise DataError(f"cannot read {folder / MARKER} ({error.strerror}); set FEDTABLES_CACHE.") from error
    complete = isinstance(marker, dict) and {"identity", "code", "raw", "arrays"} <= marker.keys()
    return marker if complete else None


def _open(place: Location) -> Dataset | None:
    """The prepared set with its arrays memory-mapped, None if it is not prepared; `DamagedError` as `check`.

    Sizes of files are compared with what was written. This is cheap; their content is not read.
    """
    marker = _read_marker(place.folder)
    if marker is None:
        return None
    arrays, damage = {}, []
    for name, written in marker["arrays"].items():
        path = place.folder / f"{name}.npy"
        try:
            size = path.stat().st_size
            if size != written["bytes"]:
                damage.append(f"{path.name}: got {size:,} bytes; expected {written['bytes']:,}")
            else:
                arrays[name] = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            damage.append(f"{path.name} is missing")
        except ValueError as error:
            damage.append(f"{path.name} is not a readable array ({error})")
    if damage:
        raise _damaged(place, "; ".join(damage))
    said: dict[str, Any] = {key: tuple(marker[key]) for key in NAMES}
    said |= {part: Split(*(arrays.get(f"{part}_{field}") for field in FIELDS)) for part in PARTS}  # type: ignore[arg-type]
    said |= {key: marker[key] for key in ("name", "fingerprint", "code", "note")}
    said["expected"] = tuple(tuple(item) for item in marker["expected"])
    if marker["raw"] and not any((place.root / name).exists() for name in marker["raw"]):
        gone = "The raw files are gone, so that it cannot be compared with them."
        said["note"] = f"{said['note']} {gone}".strip()
    return Dataset(**said, folder=place.folder)


def _damaged(place: Location, damage: str) -> DamagedError:
    return DamagedError(
        f"{place.entry.name}: the prepared arrays in {place.folder} are damaged: {damage}. "
        "Delete that folder: the set is then prepared anew."
    )
