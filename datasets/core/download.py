"""Data sets of a few raw files that can be downloaded without an account."""

import gzip
import hashlib
import io
import logging
import os
import sys
import tarfile
import urllib.request
import zlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path

from rich.console import Console
from rich.progress import wrap_file

from benchmark.system import replacing
from datasets.core.base import DataError
from datasets.core.folders import BAD_FILE, STRICT, Place, Tree, find

SILENCE_SECONDS = 10.0
"""Longest time without an answer, at the beginning and in the middle of a download."""

downloads = ContextVar("downloads", default=True)
"""Whether missing files are downloaded; otherwise it is only said that they would be."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RawFile:
    """A published file: md5 and size in bytes of its (unpacked) content."""

    md5: str
    size: int


@dataclass(frozen=True, kw_only=True)
class DownloadTree(Tree):
    """A few files.

    Attributes:
        files: Names that must be there.
        mirrors: Addresses of the folders that have them, or a ``.tar.gz`` with all of them.
        gzipped: Whether a file is published as `<name>.gz`; it may be there in both forms.
    """

    files: Mapping[str, RawFile]
    mirrors: tuple[str, ...]
    gzipped: bool = False


@dataclass(frozen=True)
class RawFolder(Place):
    """The folder that holds all raw files of a tree."""

    tree: DownloadTree

    def path(self, name: str) -> Path:
        """Where a file is: under its name or, packed, with the suffix ``.gz``. The former if it is not there."""
        packed = self.folder / f"{name}.gz"
        is_packed = self.tree.gzipped and packed.is_file() and not (self.folder / name).is_file()
        return packed if is_packed else self.folder / name

    def read(self, name: str, verify: bool = False) -> bytes:
        """Content of a file, unpacked; with the published checksum if ``verify``."""
        path, size = self.path(name), self.tree.files[name].size
        content = path.read_bytes()
        self.files.append(path)
        if not content:
            raise self.bad(name, "is empty (0 bytes)")
        if path.suffix == ".gz":
            try:
                content = _unpack(content, size)
            except (OSError, EOFError, zlib.error) as error:
                raise self.bad(name, f"cannot be unpacked ({error})") from error
            if len(content) > size:
                raise self.bad(name, f"unpacks to more than {size:,} bytes")
        if verify:
            self.verify(name, content)
        return content

    def verify(self, name: str, content: bytes) -> None:
        """Compare the (unpacked) content of a file with the owner's checksum."""
        md5, published = _md5(content), self.tree.files[name].md5
        if md5 != published:
            cause = f"a damaged download, or not the owner's file; {STRICT}"
            raise self.bad(name, f"has md5 {md5}; {published} is published", cause)

    def bad(self, name: str, problem: str, cause: str = "") -> DataError:
        """The error about a file whose content cannot be right."""
        path = self.path(name)
        cause = cause or BAD_FILE * (path.suffix == ".gz")  # else the first bytes of the file tell
        return self.bad_file(path, problem, f"{self.tree.files[name].size:,} bytes unpacked", cause)


def fetch(tree: DownloadTree, root: Path) -> RawFolder:
    """The folder with all raw files of `tree`: as found under `root`, else after a download into `root`."""
    place = RawFolder(tree, root, find(tree, root, [f"{name}*" for name in tree.files]).folder)
    missing = [name for name in tree.files if not place.path(name).is_file()]
    failure = _download(tree, place.folder, missing) if missing else ""
    if failure:
        names = ", ".join(f"{tree.folders[0]}/{name}{'[.gz]' * tree.gzipped}" for name in missing)
        raise place.error(
            f"{len(missing)} of {len(tree.files)} raw files are missing, and {failure}.",
            expected=f"{names} under the data root",
        )
    return place


def _download(tree: DownloadTree, folder: Path, missing: list[str]) -> str:
    """Download the missing files into `folder`; why that failed, or an empty string."""
    if os.environ.get("FEDTABLES_OFFLINE", "0") not in ("", "0"):
        return "FEDTABLES_OFFLINE forbids a download"
    if not downloads.get():
        raise DataError("not there; downloads by itself")
    failure = ""
    for mirror in tree.mirrors:
        try:
            contents = _contents(tree, mirror, missing)
            break
        except (OSError, HTTPException, EOFError, tarfile.TarError, zlib.error) as error:
            reason = getattr(error, "reason", "") or str(error) or type(error).__name__
            failure = f"the download from {mirror} failed ({' '.join(str(reason).split())})"
    else:
        return failure
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            with replacing(folder / name) as beside:
                beside.write_bytes(content)
    except OSError as error:
        advice = "set FEDTABLES_DATA to a folder that can be written"
        return f"the folder {folder} cannot be written ({error.strerror}) to download into it; {advice}"
    return ""


def _contents(tree: DownloadTree, mirror: str, names: list[str]) -> dict[str, bytes]:
    """The unpacked content of the files `names`, from one mirror."""
    if mirror.endswith(".tar.gz"):
        contents = {}
        with tarfile.open(fileobj=io.BytesIO(_get(tree, mirror))) as archive:
            for member in archive.getmembers():
                name, file = Path(member.name).name, archive.extractfile(member)
                if name in names and file is not None:
                    contents[name] = file.read(tree.files[name].size + 1)
    elif tree.gzipped:
        contents = {name: _unpack(_get(tree, f"{mirror}{name}.gz"), tree.files[name].size) for name in names}
    else:
        contents = {name: _get(tree, mirror + name) for name in names}
    for name in names:
        if _md5(contents.get(name, b"")) != tree.files[name].md5:
            raise OSError(f"{name} is not the published file")
    return contents


def _get(tree: DownloadTree, address: str) -> bytes:
    _log.warning("%s: downloading %s", tree.title, address)
    with urllib.request.urlopen(address, timeout=SILENCE_SECONDS) as answer:
        size = int(answer.headers["Content-Length"] or 0)
        live = sys.stderr.isatty()
        with wrap_file(answer, size, console=Console(file=sys.stderr), disable=not live) as file:
            content = b"".join(iter(partial(file.read, 1 << 20), b""))
    return content


def _unpack(content: bytes, size: int) -> bytes:
    """What a gz file holds, up to one byte more than ``size``: a small file may unpack to gigabytes."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        return stream.read(size + 1)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
