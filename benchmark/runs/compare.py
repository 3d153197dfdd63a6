"""Whether two runs, or two parts of one, were made in the same way: one comparison with three sets of keys."""

from collections.abc import Collection, Mapping
from typing import Any

RESUME = ("code", "engine", "data", "partition", "torch", "threads", "dispatch", "device")
"""A checkpoint is continued if all of these are equal."""

CURRENT = ("code", "data", "partition")
"""A finished run is current if these are; others are only marked."""

COLUMN = tuple(key for key in RESUME if key not in ("code", "engine"))
"""The cells of a column are compared in these. Each row has code of its own; all are compared with today's engine."""

DIGESTS = ("engine", "data", "partition")
"""Their values say nothing to a reader."""


def difference(before: Mapping[str, Any], now: Mapping[str, Any], keys: Collection[str]) -> str:
    """What of ``keys`` has another value now, in words; empty if nothing has. A key that one of them lacks is equal."""
    others: list[str] = []
    for key in (key for key in keys if key in before and key in now):
        old, new = before[key], now[key]
        if key == "code":
            others += [f"code of {name}" for name in sorted({**old, **new}) if old.get(name) != new.get(name)]
        elif old != new:
            others.append(f"the {key}" if key in DIGESTS else f"{key} ({old}, now {new})")
    return ", ".join(others)
