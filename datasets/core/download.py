"""Data sets of a few raw files that torchvision can download."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.core.base import DataError
from datasets.core.folders import BROKEN_OFF, NOT_THERE, STRICT, Place, Tree, readable

CONNECT_SECONDS = 5.0
"""Time a server has to answer at all."""
STALL_SECONDS = 20.0
"""Longest silence in the middle of a download."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RawFile:
    """A published file: md5 and size in bytes of its (unpacked) content, and its number of images or labels."""

    md5: str
    size: int
    images: int = 0


@dataclass(frozen=True, kw_only=True)
class DownloadTree(Tree):
    """A few files.

    Attributes:
        files: Names that must be there.
        torchvision: Class in `torchvision.datasets` that downloads the files.
        arguments: Keyword arguments of that class, one call each.
        gzipped: Whether a file may also be there as `<name>.gz`.
    """

    files: Mapping[str, RawFile]
    torchvision: str
    arguments: tuple[Mapping[str, Any], ...]
    gzipped: bool = False

    def existing(self, folder: Path, name: str) -> Path | None:
        """`folder/name`, else `folder/name.gz` if that is allowed, else None."""
        names = (name, f"{name}.gz") if self.gzipped else (name,)
        return next((folder / one for one in names if (folder / one).is_file()), None)


@dataclass(frozen=True)
class RawFolder(Place):
    """The folder that holds all raw files of a tree."""

    tree: DownloadTree

    def read(self, name: str) -> bytes:
        """Content of a file, unpacked."""
        path = self._path(name)
        with readable(self.tree, self.root):
            content = path.read_bytes()
        if not content:
            raise self.bad(name, "is empty (0 bytes)")
        if path.suffix != ".gz":
            return content
        try:
            return gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise self.bad(name, f"cannot be unpacked ({error})") from error

    def verify(self, name: str, content: bytes) -> None:
        """Compare the (unpacked) content of a file with the owner's checksum."""
        found, published = hashlib.md5(content, usedforsecurity=False).hexdigest(), self.tree.files[name].md5
        if found != published:
            cause = f"a damaged download or another version; {STRICT}"
            raise self.bad(name, f"has md5 {found}; {published} is published", cause)

    def bad(self, name: str, problem: str, cause: str = "") -> DataError:
        """The error about a file whose content cannot be right."""
        published = self.tree.files[name]
        counts = f"{published.images or 1:,} {'images' if published.images else 'file'} expected, none used"
        path = self._path(name)
        cause = cause or BROKEN_OFF * (path.suffix == ".gz")  # else the first bytes of the file tell
        return self.bad_file(path, problem, f"{published.size:,} bytes unpacked", cause, counts)

    def _path(self, name: str) -> Path:
        return self.tree.existing(self.folder, name) or self.folder / name


def fetch(tree: DownloadTree, root: Path) -> RawFolder:
    """The folder with all raw files of `tree`: as found under `root`, else after a download into `root`."""
    with readable(tree, root):
        held = {
            folder: sum(tree.existing(root / folder, name) is not None for name in tree.files)
            for folder in tree.folders
        }
        folder = root / max(tree.folders, key=lambda folder: held[folder])
        missing = [name for name in tree.files if tree.existing(folder, name) is None]
    if missing:
        failure, cause = _download(tree, root, folder, missing)
        if failure:
            raise _missing(Place(tree, root, folder), tree, missing, failure, cause)
    return RawFolder(tree, root, folder)


def _missing(place: Place, tree: DownloadTree, missing: list[str], failure: str, cause: str) -> DataError:
    inside = "" if tree.folders[0] == "." else f"{tree.folders[0]}/"
    names = ", ".join(f"{inside}{name}{'[.gz]' if tree.gzipped else ''}" for name in missing)
    return place.error(
        f"{len(missing)} of {len(tree.files)} raw files are missing, and {failure}.",
        expected=f"{names} under the data root",
        otherwise=cause,
        counts=f"{len(tree.files)} files expected, {len(tree.files) - len(missing)} found",
    )


def _download(tree: DownloadTree, root: Path, folder: Path, missing: list[str]) -> tuple[str, str]:
    """Download the missing files into `folder`; why that failed (empty if it did not), and the likely cause."""
    if os.environ.get("FEDTABLES_OFFLINE", "0") not in ("", "0"):
        return "FEDTABLES_OFFLINE forbids a download", NOT_THERE
    import torchvision.datasets  # takes seconds to import, and only downloads need it

    source = getattr(torchvision.datasets, tree.torchvision)
    failure = _unreachable(_addresses(source))
    if failure:
        return failure, NOT_THERE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".download-", dir=folder))
    except OSError as error:
        failure = f"the data root {root} cannot be written ({error.strerror}) to download into it"
        return failure, "set FEDTABLES_DATA to a folder that can be written"
    try:
        _log.warning("%s: downloading into %s", tree.title, folder)
        with _stall_limit_and_no_output():
            for arguments in tree.arguments:
                source(str(temporary), download=True, **arguments)
        # Each file is moved in one step: existing files stay, and two processes do not harm each other.
        for name in missing:
            for fetched in (path for path in sorted(temporary.rglob(name)) if path.is_file()):
                os.replace(fetched, folder / name)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"the download failed ({reason})", NOT_THERE
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    absent = [name for name in missing if tree.existing(folder, name) is None]
    return (f"the download did not hold {', '.join(absent)}" if absent else ""), NOT_THERE


def _addresses(source: Any) -> list[str]:
    if hasattr(source, "mirrors"):
        return [f"{mirror}{source.resources[0][0]}" for mirror in source.mirrors]
    if hasattr(source, "split_list"):
        return [source.split_list["train"][0]]
    return [source.url]


def _unreachable(addresses: list[str]) -> str:
    """Why none of the addresses answers within a few seconds; empty if one does."""
    reason = "no address is known"
    for address in addresses:
        try:
            with urllib.request.urlopen(address, timeout=CONNECT_SECONDS):
                return ""
        except urllib.error.HTTPError as error:
            reason = f"{address} answers {error.code}"
        except OSError as error:
            reason = f"{address} cannot be reached ({getattr(error, 'reason', error)})"
    return f"a download is not possible: {reason}"


@contextlib.contextmanager
def _stall_limit_and_no_output() -> Iterator[None]:
    # torchvision has neither a timeout nor a switch for its progress bar, which belongs to a terminal's stderr.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)
    with contextlib.ExitStack() as stack:
        stack.callback(socket.setdefaulttimeout, before)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if not sys.stderr.isatty():
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        yield
