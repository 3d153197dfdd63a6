"""Partition schemes by name. A new scheme is one file in `partitions/` and one YAML file in `conf/partition/`."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from benchmark.errors import validate
from benchmark.registry import Registry
from partitions.core.base import Partitioner, PartitionError

Scheme = TypeVar("Scheme", bound=type[Partitioner])

SCHEMES: Registry[type[Partitioner]] = Registry("partition", "partitions", PartitionError)


def partition(name: str) -> Callable[[Scheme], Scheme]:
    """Register a `Partitioner` subclass under `name` (class decorator)."""

    def register(scheme: Scheme) -> Scheme:
        scheme.scheme = name
        SCHEMES.add(name, scheme, scheme.__module__)
        return scheme

    return register


def names() -> list[str]:
    """The names of all schemes, sorted."""
    return SCHEMES.names()


def get(name: str) -> type[Partitioner]:
    """The class of a scheme."""
    return SCHEMES.get("partition", name, "with partition=...")


def make(name: str, params: Mapping[str, Any] | None = None) -> Partitioner:
    """The scheme `name` with its parameters, the keys of `conf/partition/<name>.yaml` without `name` and `seed`.

    Raises:
        PartitionError: Unknown name or key, a missing value or one out of range; one message for all.
    """
    where = f" Set it in conf/partition/{name}.yaml or on the command line."
    return validate(
        get(name), params or {}, "partition.", f"partition {name}", after=where, kind=PartitionError
    )
