"""Nested settings, one on top of another."""

from collections.abc import Mapping
from typing import Any


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` on top, nested; both stay as they are.

    A mapping that names something else (``{name: adam}`` over ``{name: momentum, beta: 0.9}``) replaces the old one,
    since the parameters belong to the name. Lists and single values are replaced. ``null`` is a value.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, Mapping):
            other = (
                isinstance(old, Mapping)
                and "name" in value
                and old.get("name", value["name"]) != value["name"]
            )
            merged[key] = merge({} if other or not isinstance(old, Mapping) else old, value)
        else:
            merged[key] = value
    return merged
