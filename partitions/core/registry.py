"""Partition schemes by name. A new scheme is one file in this folder and one YAML in `conf/partition/`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from benchmark.errors import format_validation_error, nearest
from partitions.core.base import Partitioner, PartitionError

Scheme = TypeVar("Scheme", bound=type[Partitioner])

_SCHEMES: dict[str, type[Partitioner]] = {}


def partition(name: str) -> Callable[[Scheme], Scheme]:
    """Register a `Partitioner` subclass under `name` (class decorator).

    Raises:
        PartitionError: at import, if the name is taken by another class.
    """

    def register(scheme: Scheme) -> Scheme:
        known = _SCHEMES.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (
            scheme.__module__,
            scheme.__qualname__,
        ):
            raise PartitionError(
                f"partition {name!r} is defined twice: in {known.__module__} and {scheme.__module__}."
            )
        scheme.scheme = name
        _SCHEMES[name] = scheme
        return scheme

    return register


@cache
def _discover() -> None:
    """Import every module of this folder, so that each scheme's decorator has run."""
    for module in pkgutil.iter_modules([str(Path(__file__).parents[1])]):
        importlib.import_module(f"partitions.{module.name}")


def names() -> list[str]:
    """Return the names of all schemes, sorted."""
    _discover()
    return sorted(_SCHEMES)


def get(name: str) -> type[Partitioner]:
    """Return the class of a scheme; PartitionError, with the nearest name, if there is none."""
    known = names()
    if name not in known:
        raise PartitionError(
            f"unknown partition {name!r}.{nearest(name, known)} Known: {', '.join(known)}. Set it with "
            "partition=..."
        )
    return _SCHEMES[name]


def describe(name: str) -> str:
    """Return one line: what the scheme does, then its parameters with their defaults."""
    scheme = get(name)
    summary = (inspect.getdoc(scheme) or "").split("\n", 1)[0].rstrip(".")
    fields = [
        key if field.is_required() else f"{key}={_plain(field.get_default(call_default_factory=False))}"
        for key, field in scheme.model_fields.items()
    ]
    return f"{summary} [{', '.join(fields)}]" if fields else summary


def _plain(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def make(name: str, params: Mapping[str, Any] | None = None) -> Partitioner:
    """Return the scheme `name` with its parameters checked.

    Args:
        name: a name of `names()`.
        params: the keys of `conf/partition/<name>.yaml` without `name` and `seed`, as plain Python values.

    Raises:
        PartitionError: unknown name or key (nearest one named), value missing or out of range; one message
            for all.
    """
    scheme = get(name)
    try:
        return scheme(**{str(key): value for key, value in (params or {}).items()})
    except ValidationError as error:
        message = format_validation_error(error, scheme, "partition.", f"partition {name}")
        raise PartitionError(
            f"{message} Set it in conf/partition/{name}.yaml or on the command line."
        ) from error
