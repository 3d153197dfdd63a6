"""The error of a user's mistake in the harness itself; the command line prints it and exits with code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST = 80
"""Characters of a value in a message: whole files are not repeated."""


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


def format_validation_error(
    items: Iterable[Mapping[str, Any]], known: Iterable[str], prefix: str = "", whole: str = "settings"
) -> str:
    """The ``errors()`` of a pydantic ValidationError in our words: each key, what came, why not.

    Args:
        items: The errors.
        known: The keys that there are, for a hint where one is unknown.
        prefix: What stands before each key.
        whole: What to call what was validated, where the fault is in no single key of it.
    """
    known = list(known)
    lines = []
    for item in items:
        parts = [str(part) for part in item["loc"]]
        where = prefix + ".".join(parts) if parts else whole
        said = str(item["msg"]).removeprefix("Value error, ").rstrip(".")
        if item["type"] == "extra_forbidden":
            said = f"unknown key.{nearest(parts[-1], known)}"
        else:
            said += "."
        lines.append(f"{where}: {'' if said.startswith('came ') else _came(item)}{said}")
    return " ".join(dict.fromkeys(lines))


def _came(item: Mapping[str, Any]) -> str:
    """What came, where it is a value: of a missing key, and of a fault in no single key, it is all that is around."""
    if item["type"] == "missing" or not item["loc"] or isinstance(item["input"], Mapping):
        return ""
    text = repr(item["input"])
    return f"came {text if len(text) <= LONGEST else f'{text[: LONGEST - 4]} ...'}; "


def nearest(name: str, allowed: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the nearest of ``allowed``, or nothing."""
    match = difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""
