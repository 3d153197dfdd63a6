"""Partition schemes by name. A new scheme is one file in `partitions/` and one YAML file in `conf/partition/`."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from benchmark.errors import validate, wrong
from partitions.core.base import Partitioner, PartitionError

Scheme = TypeVar("Scheme", bound=type[Partitioner])

_SCHEMES: dict[str, type[Partitioner]] = {}


def partition(name: str) -> Callable[[Scheme], Scheme]:
    """Register a `Partitioner` subclass under `name` (class decorator)."""

    def register(scheme: Scheme) -> Scheme:
        if name in _SCHEMES:
            known = _SCHEMES[name].__module__
            raise PartitionError(f"partition {name!r} is defined twice: in {known} and {scheme.__module__}.")
        scheme.scheme = name
        _SCHEMES[name] = scheme
        return scheme

    return register


@cache
def _discover() -> None:
    """Import every module of the folder, so that each scheme is registered."""
    for module in pkgutil.iter_modules([str(Path(__file__).parents[1])]):
        importlib.import_module(f"partitions.{module.name}")


def names() -> list[str]:
    """The names of all schemes, sorted."""
    _discover()
    return sorted(_SCHEMES)


def get(name: str) -> type[Partitioner]:
    """The class of a scheme."""
    known = names()
    if name not in known:
        expected = f"one of {', '.join(known)}"
        raise PartitionError(wrong("partition", name, expected, known=known, where="with partition=..."))
    return _SCHEMES[name]


def make(name: str, params: Mapping[str, Any] | None = None) -> Partitioner:
    """The scheme `name` with its parameters, the keys of `conf/partition/<name>.yaml` without `name` and `seed`.

    Raises:
        PartitionError: Unknown name or key, a missing value or one out of range; one message for all.
    """
    where = f" Set it in conf/partition/{name}.yaml or on the command line."
    return validate(
        get(name), params or {}, "partition.", f"partition {name}", after=where, kind=PartitionError
    )
