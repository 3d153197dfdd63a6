"""Raw files under the data root: finding them, downloading them, and saying what is wrong with them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from datasets.core.base import DataError, Options

IGNORED = frozenset({"__MACOSX", "Thumbs.db", "ATTRIBUTION.txt", "LICENSE.txt"})
NOT_THERE = (
    "not downloaded yet, the data root is another folder, or the files lie deeper or were not unpacked"
)
CONNECT_SECONDS = 5.0  # until a server has to answer at all
STALL_SECONDS = 20.0  # of silence in the middle of a download

_log = logging.getLogger(__name__)


class RawOptions(Options):
    """Options of a data set made of raw files.

    Attributes:
        strict: Require the published counts and checksums. Off for cut-down copies: then only the files'
            own consistency is verified.
    """

    strict: bool = True


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Where the raw data of a data set are expected, and where a person gets them.

    Attributes:
        title: Name of the data set for people.
        folders: Accepted folders relative to the root; the first is the one to recommend.
        page, archive: Owner's page, and the archive's name and size.
        hints: Likely cause by pattern of a name (any case; a folder's may end in a slash) that is found instead.
    """

    title: str
    folders: tuple[str, ...]
    page: str
    archive: str
    hints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RawTree(Tree):
    """A few files, which torchvision can download.

    Attributes:
        files: Names that must be there.
        sizes: Known size in bytes per name; used where a file is empty or cut off.
        images: Published number of images (or of their labels) per name.
        torchvision: Class in `torchvision.datasets` that downloads the files.
        arguments: Keyword arguments of that class, one call each.
        gzipped: Whether a file may also be there as `<name>.gz`.
    """

    files: tuple[str, ...]
    torchvision: str
    arguments: tuple[Mapping[str, Any], ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    images: Mapping[str, int] = field(default_factory=dict)
    gzipped: bool = False


def folder_of(tree: RawTree, root: Path) -> Path:
    """Folder with all raw files of `tree`: as found under `root`, else after a download into `root`.

    Raises:
        DataError: Files are missing and cannot be downloaded, or `root` cannot be written.
    """
    with readable(tree, root):
        folder = _best_folder(tree, root)
        missing = [name for name in tree.files if existing(tree, folder, name) is None]
    if not missing:
        return folder
    failure = _download(tree, root, folder, missing)
    if failure is not None:
        raise _missing(tree, root, folder, missing, failure)
    return folder


def existing(tree: RawTree, folder: Path, name: str) -> Path | None:
    """`folder/name`, else `folder/name.gz` for sets that allow it, else None."""
    for path in (folder / name, *([folder / f"{name}.gz"] if tree.gzipped else [])):
        if path.is_file():
            return path
    return None


@contextlib.contextmanager
def readable(tree: Tree, root: Path) -> Iterator[None]:
    """Say it to the user where a file or folder of `tree` below `root` cannot be read.

    Raises:
        DataError: For every OSError: missing rights, a link to nothing, a disk that is gone.
    """
    try:
        yield
    except OSError as error:
        path = Path(error.filename or root)
        raise unreadable(tree, path, below(path, root), error) from error


def unreadable(tree: Tree, path: Path, expected: str, error: OSError) -> DataError:
    """The error for a file or folder that is there, or was a moment ago, and cannot be read.

    Args:
        tree: The data set.
        path: What cannot be read.
        expected: Where it belongs, relative to the data root.
        error: What the system says.
    """
    reason = error.strerror or str(error)
    found, cause = f"nothing that can be read ({reason})", "its disk or network folder is gone, or damaged"
    if path.is_symlink() and not os.path.exists(path):
        found = f"a link to {os.readlink(path)}, which is not there"
        cause = "what the link points to was moved, or its disk is not mounted"
    elif isinstance(error, PermissionError):
        cause = "it belongs to somebody else; change its rights (chmod -R u+rX) or copy it"
    return wrong(
        tree,
        f"{path.name} cannot be read ({reason}).",
        looked_at=path,
        expected=f"{expected}, which this user can read",
        found=found,
        cause=cause,
        get=f"{tree.page}, {tree.archive}",
        counts="1 file or folder expected to be readable here, 0 found",
    )


def below(path: Path, root: Path) -> str:
    """`path` relative to the data root, for messages."""
    absolute, top = path.absolute(), root.absolute()
    return absolute.relative_to(top).as_posix() if absolute.is_relative_to(top) else str(absolute)


def listing(folder: Path) -> list[str]:
    """Sorted names in a folder, folders with a slash, without what archivers and desktops leave behind."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [entry.name + "/" * entry.is_dir() for entry in entries]
    return sorted(name for name in names if not name.startswith(".") and name.rstrip("/") not in IGNORED)


def some(names: Collection[object], many: int = 5) -> str:
    """The first five names, and how many more there are."""
    first = ", ".join(str(name) for name in list(names)[:many])
    return f"{first} and {len(names) - many:,} more" if len(names) > many else first


def found_in(place: Path, root: Path) -> str:
    """What lies in `place`, or in the nearest folder above it, up to `root`: that shows best what went wrong."""
    while not place.is_dir() and place not in (root, place.parent):
        place = place.parent
    if place.exists() and not place.is_dir():
        return f"a file and no folder: {place.absolute()}"
    if not place.is_dir():
        return f"nothing: {place.absolute()} does not exist"
    return f"{some(listing(place)) or 'nothing'} in {place.absolute()}"


def known_cause(tree: Tree, place: Path, root: Path) -> str | None:
    """What the tree's hints say of the first name that fits one, in `place` or the folders above it up to `root`."""
    above = [folder for folder in place.parents if folder == root or root in folder.parents]
    for folder in dict.fromkeys((place, *above, root)):
        for name in listing(folder):
            for pattern, cause in tree.hints.items():
                shapes = (name.lower(), name.lower().rstrip("/"))
                if any(fnmatch(shape, pattern.lower()) for shape in shapes):
                    return f"{name} in {folder.absolute()}: {cause}"
    return None


def wrong(
    tree: Tree, problem: str, *, looked_at: Path, expected: str, found: str, cause: str, get: str, counts: str
) -> DataError:
    """The error for raw data that are missing or wrong: one sentence, and the six parts of every such message.

    Args:
        tree: The data set.
        problem: What is wrong.
        looked_at: File or folder.
        expected: Relative path that belongs there, and what of it.
        found: What is there instead.
        cause: What probably happened, and what to do.
        get: Where to get it.
        counts: Numbers expected and found.
    """
    return DataError(
        f"{tree.title}: {problem}\n"
        f"  looked at: {looked_at.absolute()}\n"
        f"  expected:  {expected}\n"
        f"  found:     {found}\n"
        f"  cause:     {cause}\n"
        f"  get it:    {get}\n"
        f"  counts:    {counts}"
    )


def put_it(root: Path) -> str:
    """Where what was fetched belongs."""
    return f"put it under {root.absolute()}, or set FEDTABLES_DATA to the folder that has it"


def read_bytes(tree: RawTree, path: Path) -> bytes:
    """Content of a raw file.

    Raises:
        DataError: It cannot be read, or is empty.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(tree, path, _path_text(tree, path.name.removesuffix(".gz")), error) from error
    if not content:
        cause = "a download that broke off, or a full disk"
        raise bad_file(tree, path, f"{path.name} is empty (0 bytes).", cause)
    return content


def bad_file(tree: RawTree, path: Path, problem: str, cause: str) -> DataError:
    """The error for a raw file whose content cannot be right."""
    name = path.name.removesuffix(".gz")
    size = tree.sizes.get(name)
    expected = f"{size:,} bytes unpacked" if size else f"the file {name} as its owner publishes it"
    whole = f"those of {tree.images[name]:,} images" if name in tree.images else "1 whole file"
    return wrong(
        tree,
        problem,
        looked_at=path,
        expected=f"{_path_text(tree, name)}, {expected}",
        found=f"{path.stat().st_size:,} bytes",
        cause=cause,
        get=f"{tree.page}, {tree.archive}; delete the bad file first",
        counts=f"{whole} expected, none used",
    )


def verify(tree: RawTree, path: Path, content: bytes, md5: str) -> None:
    """Compare a raw file's (unpacked) content with the owner's checksum.

    Raises:
        DataError: It differs.
    """
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise bad_file(
            tree,
            path,
            f"the content has md5 {found}, {md5} is published.",
            "a damaged download or another version; a cut-down copy needs `options: {strict: false}` in "
            "conf/dataset/*.yaml",
        )


def _best_folder(tree: RawTree, root: Path) -> Path:
    """The accepted folder that holds most of the files; the recommended one where none holds any."""
    found = {
        folder: sum(existing(tree, root / folder, name) is not None for name in tree.files)
        for folder in tree.folders
    }
    return root / max(tree.folders, key=lambda folder: found[folder])


def _missing(
    tree: RawTree, root: Path, folder: Path, missing: list[str], failure: str, unknown: str = NOT_THERE
) -> DataError:
    return wrong(
        tree,
        f"{len(missing)} of {len(tree.files)} raw files are missing, and {failure}.",
        looked_at=folder,
        expected=f"{', '.join(_path_text(tree, name) for name in missing)} under the data root",
        found=found_in(folder, root),
        cause=known_cause(tree, folder, root) or unknown,
        get=f"{tree.page}, {tree.archive}; {put_it(root)}",
        counts=f"{len(tree.files)} files expected, {len(tree.files) - len(missing)} found",
    )


def _path_text(tree: RawTree, name: str) -> str:
    folder = "" if tree.folders[0] == "." else f"{tree.folders[0]}/"
    return f"{folder}{name}{'[.gz]' if tree.gzipped else ''}"


def _download(tree: RawTree, root: Path, folder: Path, missing: list[str]) -> str | None:
    """Fetch the missing files into `folder` by torchvision; the reason as text where that fails."""
    if os.environ.get("FEDTABLES_OFFLINE", "0") not in ("", "0"):
        return "FEDTABLES_OFFLINE forbids a download"
    import torchvision.datasets  # seconds to import, and needed for downloads only

    source = getattr(torchvision.datasets, tree.torchvision)
    failure = _unreachable(_addresses(source))
    if failure:
        return failure
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".download-", dir=folder))
    except OSError as error:
        reason = f"the data root {root} cannot be written ({error.strerror}), so a download has no place"
        raise _missing(
            tree, root, folder, missing, reason, "set FEDTABLES_DATA to a folder that can be written"
        ) from error
    try:
        _log.warning("%s: downloading into %s", tree.title, folder)
        with _patient_and_quiet():
            for arguments in tree.arguments:
                source(str(temporary), download=True, **arguments)
        # File by file, each in one step: what is already there stays, and two processes do not harm each other.
        for name in missing:
            for fetched in (path for path in sorted(temporary.rglob(name)) if path.is_file()):
                os.replace(fetched, folder / name)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"the download failed ({reason})"
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    absent = [name for name in missing if existing(tree, folder, name) is None]
    return f"the download did not hold {', '.join(absent)}" if absent else None


def _addresses(source: Any) -> list[str]:
    if hasattr(source, "mirrors"):
        return [f"{mirror}{source.resources[0][0]}" for mirror in source.mirrors]
    if hasattr(source, "split_list"):
        return [source.split_list["train"][0]]
    return [source.url]


def _unreachable(addresses: list[str]) -> str | None:
    """Why none of the addresses answers, quickly; None where one does."""
    reason = "no address is known"
    for address in addresses:
        try:
            with urllib.request.urlopen(address, timeout=CONNECT_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            reason = f"{address} answers {error.code}"
        except OSError as error:
            reason = f"{address} cannot be reached ({getattr(error, 'reason', error)})"
    return f"a download is not possible: {reason}"


@contextlib.contextmanager
def _patient_and_quiet() -> Iterator[None]:
    # torchvision offers neither a timeout nor a switch for its progress bar, which belongs to a terminal's stderr.
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
