"""Atomic writes, and the message of a failed write."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from benchmark.errors import StorageError


def write_atomically(path: Path, content: bytes, durable: bool = True) -> None:
    """Write a file so that a reader sees either the old content or the new one.

    Raises:
        StorageError: The disk is full or the folder cannot be written. The old file stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise storage_error(error, path) from error


def storage_error(error: OSError, path: Path) -> StorageError:
    """The message for a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"{path.absolute()}: the disk is full or the quota is used up. What was there before is intact. Free some "
            "space and give the same command again; it continues from the last checkpoint."
        )
    return StorageError(
        f"{path.absolute()}: cannot be written ({error.strerror}). Set paths.results to a folder that can."
    )
