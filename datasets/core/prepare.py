"""Preparation of a data set into memory-mapped arrays, once.

A prepared set is a folder `<cache>/<name>-<hash>/` with `train_images.npy`, `train_labels.npy`, ... and `done.json`. It
is made beside its place and appears by one rename. The hash covers the name and the options. done.json notes the code
of the builder, size and time of the raw files, and the fingerprint of the arrays. If builder or raw files are others
now, or an array cannot be read, the set is prepared anew.
"""

import contextlib
import json
import logging
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from benchmark import code
from benchmark.system import replacing
from datasets.core.arrays import NAMES, channel_moments, decode_into, fingerprint
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
from datasets.core.download import DownloadTree, located
from datasets.core.folders import files_in
from datasets.core.images import SUFFIXES, ListedDataset
from datasets.core.registry import RegisteredDataset, get, parse

MARKER = "done.json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Location:
    """A data set with its validated options, and where its raw files and its prepared arrays lie."""

    entry: RegisteredDataset
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
    top = Path(root or os.environ.get("FEDTABLES_DATA") or "data").expanduser().absolute()
    prepared = Path(cache or os.environ.get("FEDTABLES_CACHE") or ".cache/datasets").expanduser().absolute()
    identity: dict[str, Any] = {"name": name, "options": parsed.model_dump(mode="json")}
    if isinstance(parsed, UserFileOptions):
        top = Path(parsed.path or "").expanduser().absolute()
        top = top.parent if top.suffix == ".npz" else top
    if isinstance(parsed, UserFileOptions) or not getattr(parsed, "strict", True):
        # Without known counts and checksums two roots may hold different data under the same name.
        identity["root"] = str(top.resolve())
    return Location(entry, parsed, top, prepared / f"{name}-{code.digest(identity)[:16]}")


def load(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> Dataset:
    """The data set `name`, prepared first if that has not been done; its images are memory-mapped.

    Arguments as `locate`.

    Raises:
        DataError: As `locate`; raw data missing or wrong, folders not writable.
    """
    place = locate(name, options, root, cache)
    return opened(place.folder) or _prepare(place)


def prepare(place: Location) -> Dataset:
    """As `load`, but the content of arrays that are there is compared, too."""
    data = opened(place.folder)
    return data if data and fingerprint(data) == data.fingerprint else _prepare(place, force=True)


def is_prepared(place: Location) -> bool:
    """Whether `load` would find the set prepared; the content of arrays is not read."""
    return opened(place.folder) is not None


def current_fingerprint(folder: Path) -> str | None:
    """The fingerprint of the set in a folder; empty if it would be prepared anew, None if no set is there."""
    data = opened(folder)
    return data.fingerprint if data else "" if (folder / MARKER).exists() else None


def require_raw_files(place: Location) -> None:
    """Check that the raw files of a data set are there and complete: nothing is downloaded, decoded or written.

    Raises:
        DataError: Raw data missing or wrong.
    """
    tree = place.entry.tree
    if isinstance(tree, DownloadTree) and located(tree, place.root).missing():
        raise DataError("not there; downloads by itself")
    place.entry.build(place.options, place.root)


def opened(folder: Path) -> Dataset | None:
    """The prepared set in a folder, memory-mapped; None if there is none, or if it has to be prepared anew."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        there = stats(Path(marker["root"]), marker["files"])
        # Arrays can be used without the raw files.
        if marker["code"] != code.digest(code.builder_digests(marker["module"])) or there not in (
            {},
            marker["files"],
        ):
            return None
        paths = {name: folder / f"{name}.npy" for name in marker["arrays"]}
        arrays = {name: np.load(path, mmap_mode="r", allow_pickle=False) for name, path in paths.items()}
        said: dict[str, Any] = {key: tuple(marker[key]) for key in NAMES}
        said |= {part: Split(*(arrays.get(f"{part}_{field}") for field in FIELDS)) for part in PARTS}  # type: ignore[arg-type]
        said |= {key: marker[key] for key in ("name", "fingerprint", "note")}
        return Dataset(**said, expected=tuple(map(tuple, marker["expected"])), folder=folder)
    except (OSError, ValueError, EOFError, LookupError, TypeError):  # not JSON, or a file is cut off
        return None


def stats(root: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """Size in bytes and time in ns of those raw files that are there; of a folder, how many images it has."""
    found = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            about = os.stat(root / name)
            found[name] = [about.st_size, about.st_mtime_ns]
            if stat.S_ISDIR(about.st_mode):
                found[name] = [len(files_in(root / name, ("/", ".npy", *SUFFIXES)))]
    return found


# Writing -------------------------------------------------------------------------------------------------------------


def _prepare(place: Location, force: bool = False) -> Dataset:
    try:
        place.folder.parent.mkdir(parents=True, exist_ok=True)
        # The processes of a command start at once: one prepares. A kill releases the lock.
        with FileLock(place.folder.with_name(f".{place.folder.name}.lock")):
            if force or not is_prepared(place):
                if place.folder.exists():
                    _log.warning("%s: builder, raw files or arrays have changed; prepared anew", place.folder)
                built = place.entry.build(place.options, place.root)
                validate(place.entry.name, built)
                with replacing(place.folder) as beside:
                    beside.mkdir()
                    _write(beside, place, built)
                    # A process that reads the old arrays keeps them.
                    shutil.rmtree(place.folder, ignore_errors=True)
    except OSError as error:
        got = f"{place.folder.parent}: got an error while arrays were written ({error.strerror or error})"
        raise DataError(f"{got}; expected a folder with free space. Set FEDTABLES_CACHE to one.") from error
    if (data := opened(place.folder)) is None:
        raise DataError(f"{place.root}: got raw files that changed while they were read; expected the same.")
    return data


def _write(folder: Path, place: Location, built: RawDataset | ListedDataset) -> None:
    """Write arrays and marker of a data set into a folder."""
    paths = dict.fromkeys(built.files)
    if isinstance(built, ListedDataset):
        images = [*built.train.paths, *built.test.paths]
        # A folder is noted so that an image which is added to it is seen as well.
        paths |= dict.fromkeys([*images, *(path.parent for path in images)])
    root = place.root
    names = [(path.relative_to(root) if path.is_relative_to(root) else path).as_posix() for path in paths]
    files = stats(root, names)
    if isinstance(built, ListedDataset):
        built = decode_into(built, folder, place.entry.name)
    mean, std = (built.mean, built.std) if built.mean and built.std else channel_moments(built.train.images)
    data = Dataset(**vars(built) | {"mean": mean, "std": std}, name=place.entry.name, fingerprint="")
    for name, array in data.arrays().items():
        if not (folder / f"{name}.npy").exists():  # images that were decoded are there
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    module = place.entry.builder.__module__
    marker = {
        "options": place.options.model_dump(mode="json"),
        "module": module,
        "code": code.digest(code.builder_digests(module)),
        "root": str(root),
        "files": files,
        "arrays": [*data.arrays()],
        "fingerprint": fingerprint(data),
        **{key: getattr(data, key) for key in ("name", *NAMES, "note", "expected")},
    }
    (folder / MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")
