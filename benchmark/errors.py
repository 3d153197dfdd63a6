"""The error of a user's mistake in the harness itself; the command line prints it and exits with code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


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


def explained(items: Iterable[Mapping[str, Any]], known: Iterable[str], prefix: str = "") -> str:
    """The ``errors()`` of a pydantic ValidationError in our words: each key, behind ``prefix``, what came, why not.

    ``known`` are the keys that there are, for a hint where one is unknown.
    """
    lines = []
    for item in items:
        key = ".".join(str(part) for part in item["loc"])
        hint = nearest(key, known) if item["type"] == "extra_forbidden" else ""
        lines.append(f"{prefix}{key}: came {item['input']!r}; {item['msg']}.{hint}")
    return " ".join(lines)


def nearest(name: str, allowed: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the nearest of ``allowed``, or nothing."""
    match = difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""
