"""Checkpoints: the state of a run after some round, in one file that carries a digest of its content."""

import errno
import hashlib
import logging
from pathlib import Path
from typing import Any

import torch

from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError
from benchmark.runs.files import write_atomically
from benchmark.runs.result_files import DamagedError, damaged
from benchmark.system import explain

log = logging.getLogger("fedtables")


def save(path: Path, content: dict[str, Any]) -> None:
    """Replace the file atomically. Errors as in `write_atomically`."""
    whole = content | {"digest": digest(content)}
    write_atomically(path, lambda stream: torch.save(whole, stream))


def read(path: Path) -> dict[str, Any]:
    """The content, in the host's memory.

    Raises:
        DamagedError: It is not what was written.
        StorageError: It cannot be read, or not into the memory that there is. It may be good.
    """
    try:
        with path.open("rb") as stream:
            content: dict[str, Any] = torch.load(stream, map_location="cpu", weights_only=True)
            stated = content.pop("digest", None)
    except Exception as error:  # torch raises many kinds of errors for a file that is not its own
        # In a file that is cut off torch looks for a place before its beginning.
        refused = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        if refused or explain(error):
            raise StorageError(f"{path.absolute()}: cannot be read ({error}). It stays as it is.") from error
        raise damaged(path, type(error).__name__) from error
    if stated != digest(content):
        raise damaged(path, "another digest")
    return content


def load(path: Path, config: RunConfig) -> dict[str, Any] | None:
    """The checkpoint of a run; None if there is no file, or if it is damaged or another run's."""
    try:
        content = read(path) if path.exists() else None
    except DamagedError as error:
        log.warning("%s", error)
        return None
    is_its_own = content and (content.get("hash"), content.get("seed")) == (config.hash, config.seed)
    return content if is_its_own else None


def digest(content: Any) -> str:
    """SHA-256 of plain containers, numbers, texts and tensors."""
    sha256 = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            sha256.update(f"{value.dtype} {tuple(value.shape)}".encode())
            sha256.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(value, dict):
            sha256.update(b"{")
            for key, item in value.items():
                sha256.update(repr(key).encode())
                add(item)
        elif isinstance(value, list | tuple):
            sha256.update(f"[{len(value)}".encode())
            for item in value:
                add(item)
        else:
            sha256.update(repr(value).encode())

    add(content)
    return sha256.hexdigest()
