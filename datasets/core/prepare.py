"""Preparation of a data set into memory-mapped arrays, once, safe against kills, races and damage.

A prepared set is a folder `<cache>/<name>-<hash>/` with `train_images.npy`, `train_labels.npy`, ... and `done.json`.
The folder appears by one rename when all is written, so an interrupted preparation is never read. The hash covers the
name, the builder's version and its options: other options are another set, beside the first.
"""

import contextlib
import errno
import hashlib
import json
import mmap
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
    UInt8Array,
    validate,
)
from datasets.core.download import downloads
from datasets.core.images import ListedDataset
from datasets.core.registry import Entry, get, parse

FORMAT = 1
"""Of the folder on disk; with another number in done.json the set is prepared anew."""
MARKER = "done.json"
NAMES = ("classes", "attributes", "sources", "mean", "std")
"""What the fingerprint covers beside the arrays."""
ROWS = 256
"""Images at a time where a large array is read."""


class DamagedError(DataError):
    """Files of a prepared set are not what was written."""


@dataclass(frozen=True)
class Location:
    """A data set with its validated options, and where its raw files and its prepared arrays lie."""

    entry: Entry
    options: Options
    root: Path
    folder: Path


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
    raw = Path(root or os.environ.get("FEDTABLES_DATA") or "data").expanduser().absolute()
    prepared = Path(cache or os.environ.get("FEDTABLES_CACHE") or ".cache/datasets").expanduser().absolute()
    shown = parsed.model_dump(mode="json")
    identity: dict[str, Any] = {"name": name, "version": entry.version, "options": shown}
    if not getattr(parsed, "strict", True):
        # Without known counts and checksums two roots may hold different data under the same name.
        identity["root"] = str(raw.resolve())
    text = json.dumps(identity, sort_keys=True)
    return Location(entry, parsed, raw, prepared / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def load(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> Dataset:
    """The data set `name`, prepared first if that has not been done; its images are memory-mapped.

    Arguments as `locate`.

    Raises:
        DataError: As `locate`; raw data missing or wrong, folders not writable, prepared arrays damaged.
    """
    place = locate(name, options, root, cache)
    return _verified(place) or _prepare(place)


_KNOWN: dict[Path, list[tuple[str, int, int, int]]] = {}
"""Name, inode, size and time of the files of each prepared set that this process has verified."""


def _verified(place: Location) -> Dataset | None:
    """As `check`, but a set whose files are those that this process has verified is not read again."""
    files = (
        sorted((entry.name, entry.stat()) for entry in os.scandir(place.folder))
        if place.folder.is_dir()
        else []
    )
    state = [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files]
    if _KNOWN.get(place.folder) == state:
        return _open(place)
    data = check(place)
    _KNOWN[place.folder] = state
    return data


def prepare(place: Location, force: bool = False) -> Dataset:
    """Prepare a data set; one that is there and undamaged is kept unless `force`. Errors as `load`."""
    try:
        data = None if force else check(place)
    except DamagedError:
        data, force = None, True
    return data or _prepare(place, force)


def check(place: Location) -> Dataset | None:
    """A prepared set, read in full and compared with its fingerprint; None if it is not prepared. Writes nothing.

    Raises:
        DamagedError: Its files are not what was written.
    """
    data = _open(place)
    if data is not None and (found := fingerprint(data)) != data.fingerprint:
        damage = f"fingerprint: got {found[:16]}...; expected {data.fingerprint[:16]}..."
        raise _damaged(place, damage)
    return data


def is_prepared(place: Location) -> bool:
    """Whether `load` would find the set prepared and its files complete; content is not read."""
    try:
        return _open(place) is not None
    except DamagedError:
        return False


def find(place: Location) -> None:
    """Check that the raw files of a data set are there and complete: nothing is downloaded, decoded or written.

    Raises:
        DataError: Raw data missing or wrong.
    """
    before = downloads.set(False)
    try:
        place.entry.builder(place.options, place.root)
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
        if force or _read_marker(place.folder) is None:
            built = place.entry.builder(place.options, place.root)
            validate(place.entry.name, built)
            with _writing(place):
                _replace(place, built)
    data = _open(place)
    if data is None:
        raise DataError(f"{place.folder} vanished while it was prepared; does another program delete it?")
    return data


def _replace(place: Location, built: RawDataset | ListedDataset) -> None:
    """Decode and write a set beside its folder, then rename it into place."""
    partial, old = (place.folder.with_name(f".{place.folder.name}.{state}") for state in ("partial", "old"))
    if isinstance(built, ListedDataset):
        # Only raw images need it, and with it rich and multiprocessing.
        from datasets.core.decode import decode_into

        # What is decoded stays in the folder if this stops, to continue from.
        built = decode_into(built, partial, place.entry.name)
    else:
        _remove(partial)
        partial.mkdir()
    try:
        _write(partial, place, built)
        # A folder cannot replace a filled one in one step. A process that reads the old one keeps its mapped files;
        # one that comes between the two steps finds nothing, waits for the lock and finds the new one.
        _remove(old)
        if place.folder.exists():
            os.replace(place.folder, old)
        os.replace(partial, place.folder)
    finally:
        _remove(partial)
        _remove(old)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _writing(place: Location) -> Iterator[None]:
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


def _write(folder: Path, place: Location, raw: RawDataset) -> None:
    mean, std = (raw.mean, raw.std) if raw.mean and raw.std else channel_moments(raw.train.images)
    said = {**vars(raw), "mean": mean, "std": std}
    data = Dataset(**said, name=place.entry.name, fingerprint="")
    sizes = {}
    for name, array in data.arrays().items():
        path = folder / f"{name}.npy"
        if not path.exists():  # images that were decoded are there
            np.save(path, array, allow_pickle=False)
        sizes[name] = {"bytes": path.stat().st_size}
    marker = {
        "format": FORMAT,
        "version": place.entry.version,
        "options": place.options.model_dump(mode="json"),
        "fingerprint": fingerprint(data),
        "arrays": sizes,
        **{key: getattr(data, key) for key in ("name", *NAMES, "note", "expected")},
    }
    (folder / MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")
    for path in folder.iterdir():
        with open(path, "rb+") as handle:
            os.fsync(handle.fileno())


def channel_moments(images: UInt8Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of uint8 [N, C, H, W], on the 0..1 scale."""
    # From a histogram of the 256 values: exact, and without a float copy of the images.
    values = np.arange(256) / 255.0
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    for rows in _rows(images):
        for channel in range(images.shape[1]):
            counts[channel] += np.bincount(rows[:, channel].ravel(), minlength=256)
    means, deviations = [], []
    for count in counts:
        share = count / count.sum()
        mean = float(share @ values)
        means.append(mean)
        # A constant channel would divide by zero when the images are normalised.
        deviations.append(float(np.sqrt(share @ (values - mean) ** 2)) or 1.0)
    return tuple(means), tuple(deviations)


def fingerprint(data: Dataset) -> str:
    """sha256 (hex) of arrays, names and normalisation: all of the data that a run can depend on."""
    digest = hashlib.sha256()
    names = {key: getattr(data, key) for key in NAMES}
    digest.update(json.dumps(names, sort_keys=True).encode())
    for name, array in data.arrays().items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        for rows in _rows(array):
            digest.update(rows.data)
    return digest.hexdigest()


def _rows(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """The array, `ROWS` rows at a time. Of a memory-mapped file only these rows stay in memory."""
    for start in range(0, len(array), ROWS):
        yield np.ascontiguousarray(array[start : start + ROWS])
        mapped = getattr(array, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


# Reading -------------------------------------------------------------------------------------------------------------


def _read_marker(folder: Path) -> dict[str, Any] | None:
    """The content of done.json; None if it is missing, unreadable or of another format, so that it is prepared anew."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: not JSON, or not text
        return None
    except OSError as error:
        raise DataError(f"cannot read {folder / MARKER} ({error.strerror}); set FEDTABLES_CACHE.") from error
    good = isinstance(marker, dict) and marker.get("format") == FORMAT and marker.get("arrays")
    return marker if good else None


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
    # Sets that were prepared before their published counts were known have none.
    said["expected"] = tuple(tuple(item) for item in marker.get("expected", ()))
    return Dataset(**said, **{key: marker[key] for key in ("name", "fingerprint", "note")})


def _damaged(place: Location, damage: str) -> DamagedError:
    return DamagedError(
        f"{place.entry.name}: the prepared arrays in {place.folder} are damaged: {damage}. "
        "Delete that folder: the set is then prepared anew."
    )
