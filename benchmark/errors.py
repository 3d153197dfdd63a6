"""The error of a user's mistake in the harness itself; the command line prints it and exits with code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """One message: what came, what is allowed, where to set it."""


class StorageError(ConfigError):
    """The results folder cannot be used: locked by another process, another format, damaged, or the disk is full."""


def is_users_mistake(error: BaseException) -> bool:
    """Whether ``error`` is one of our own error classes, which carry a message for the user.

    They are ValueErrors; a ValueError of numpy or torch is a bug of ours and keeps its traceback.
    """
    return isinstance(error, ValueError) and type(error).__module__.split(".")[0] in (
        "benchmark",
        "datasets",
        "methods",
        "partitions",
    )


def nearest(name: str, allowed: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the nearest of ``allowed``, or nothing."""
    match = difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""
