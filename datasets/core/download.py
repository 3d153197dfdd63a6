"""Data sets of a few raw files that can be downloaded without an account."""

import gzip
import hashlib
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from datasets.core.base import DataError
from datasets.core.folders import STRICT, Place, Tree, find

SILENCE_SECONDS = 10.0
"""Longest time without an answer, at the beginning and in the middle of a download."""


@dataclass(frozen=True, kw_only=True)
class DownloadTree(Tree):
    """A few files that are downloaded if one is missing.

    Attributes:
        files: Names that must be there, each as it is or packed as ``<name>.gz``, with the md5 of the unpacked content.
        published: Names of the files that the mirrors have, with their md5: the same, packed ones, or a ``.tar.gz``
            whose top folder is the recommended one.
        mirrors: Addresses of the folders that have these, each with a slash at its end.
    """

    files: Mapping[str, str]
    published: Mapping[str, str]
    mirrors: tuple[str, ...]


@dataclass(frozen=True)
class RawFolder(Place):
    """The folder that holds all raw files of a tree."""

    tree: DownloadTree

    def path(self, name: str) -> Path:
        """Where a file is: under its name or, packed, with the suffix ``.gz``. The former if it is not there."""
        path, packed = self.folder / name, self.folder / f"{name}.gz"
        return packed if packed.is_file() and not path.is_file() else path

    def missing(self) -> list[str]:
        """Names of the files that are not there."""
        return [name for name in self.tree.files if not self.path(name).is_file()]

    def read(self, name: str, verify: bool = False) -> bytes:
        """Content of a file, unpacked; with the published checksum if ``verify``."""
        path, published = self.path(name), self.tree.files[name]
        self.files.append(path)
        content = path.read_bytes()
        try:
            content = gzip.decompress(content) if path.suffix == ".gz" else content
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise self.bad(name, f"got a file that cannot be unpacked ({error})") from error
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if verify and md5 != published:
            raise self.bad(name, f"got md5 {md5} of its content", f"{published}, the published one; {STRICT}")
        return content

    def bad(self, name: str, got: str, expected: str = "the published file") -> DataError:
        """The error about a file whose content cannot be right."""
        return self.error(got, self.path(name), expected)


def located(tree: DownloadTree, root: Path) -> RawFolder:
    """The folder under ``root`` that holds most of the files."""
    return RawFolder(tree, root, find(tree, root, [f"{name}*" for name in tree.files]).folder)


def fetch(tree: DownloadTree, root: Path) -> RawFolder:
    """The folder with all raw files of `tree`: as found under `root`, else after a download into `root`."""
    place = located(tree, root)
    if not place.missing():
        return place
    place = RawFolder(tree, root, root / tree.folders[0])
    for name, md5 in tree.published.items():
        _download(place, name, md5)
    return place


def _download(place: RawFolder, name: str, md5: str) -> None:
    """Download a published file from the first mirror that has it, and unpack it if it is an archive."""
    import pooch  # slow to import and needed only once per data set

    pooch.get_logger().setLevel("WARNING")  # the progress bar says what is downloaded
    archive = name.endswith(".tar.gz")
    for mirror in place.tree.mirrors:
        try:
            pooch.retrieve(
                mirror + name,
                f"md5:{md5}",
                name,
                place.folder.parent if archive else place.folder,
                pooch.Untar(extract_dir=".") if archive else None,
                pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=SILENCE_SECONDS),
            )
            return
        except (OSError, ValueError) as error:  # ValueError: another checksum
            reason = f"got no {name} by a download from {mirror} ({' '.join(str(error).split())})"
    raise place.error(reason)
