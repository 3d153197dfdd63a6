"""Laying nested settings on top of each other."""

from collections.abc import Iterator, Mapping
from typing import Any


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` on top, nested; both stay as they are.

    A mapping that names something else (``{name: adam}`` over ``{name: momentum, beta: 0.9}``) replaces the old one,
    since the parameters belong to the name. Lists and single values are replaced. ``null`` is a value.
    """
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping):
            old = merged.get(key)
            if not isinstance(old, Mapping) or (
                "name" in value and old.get("name", value["name"]) != value["name"]
            ):
                old = {}
            value = merge(old, value)
        merged[key] = value
    return merged


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested settings with its dotted key. An empty mapping is a value."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
