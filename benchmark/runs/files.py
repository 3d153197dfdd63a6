"""Atomic writes, and the message of a failed write."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from benchmark.errors import StorageError
from benchmark.system import replacing


def write_atomically(
    path: Path,
    content: bytes | Callable[[IO[bytes]], object],
    durable: bool = True,
) -> None:
    """Write a file so that a reader sees either the old content or the new one.

    Args:
        path: The file.
        content: Its content, or a function that writes it to a stream.
        durable: Whether it is on the disk when this returns.

    Raises:
        StorageError: The disk is full or the folder cannot be written. The old file stays.
    """
    # "x": never through a link that has this name.
    with storing(path), replacing(path) as temporary, temporary.open("xb") as stream:
        if callable(content):
            content(stream)
        else:
            stream.write(content)
        stream.flush()
        if durable:
            os.fsync(stream.fileno())


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn the error of a failed write to ``path``, a file or a folder, into `StorageError`."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # torch.save raises a RuntimeError while it handles the OSError of a failed write.
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        said = f"cannot be written ({cause.strerror}). Choose a folder that can be written."
        if cause.errno in (errno.ENOSPC, errno.EDQUOT):
            said = (
                "the disk is full or the quota is used up. What was there before is intact. Free some space and give "
                "the same command again; it continues from the last checkpoint."
            )
        raise StorageError(f"{path.absolute()}: {said}") from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the error of a failed read of ``path`` into `StorageError`. The file may be good, so it stays as it is."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path.absolute()}: cannot be read ({error.strerror}). It stays as it is. Give the same command again "
            "when it can be read."
        ) from error


def write_with_folder(path: Path, content: bytes, durable: bool = True) -> None:
    """Like `write_atomically`, and make the folder if it is not there."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content, durable)
