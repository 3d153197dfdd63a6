"""Patterns that choose rows and columns of tables."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from benchmark.errors import ConfigError, nearest


def fits(key: str, patterns: str) -> bool:
    """Whether ``key`` matches one of the comma-separated ``patterns``."""
    return any(fnmatchcase(key, pattern.strip()) for pattern in patterns.split(","))


def matching(keys: Sequence[str], patterns: str | None, what: str, where: str) -> list[str]:
    """The ``keys`` that match one of the comma-separated ``patterns``, in their own order; None matches all.

    Raises `ConfigError`, which calls the patterns ``what`` and the keys those of ``where``, for one without a match.
    """
    for pattern in () if patterns is None else patterns.split(","):
        if not any(fits(key, pattern) for key in keys):
            raise ConfigError(
                f"{what}: {pattern!r} matches none of {where}.{nearest(pattern, keys)} It has: {', '.join(keys)}."
            )
    return [key for key in keys if patterns is None or fits(key, patterns)]
