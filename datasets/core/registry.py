"""Names of the data sets: `@dataset("name", options=Model)` on a builder, found by importing every file here."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from benchmark.errors import format_validation_error, wrong
from datasets.core.base import DataError, Facts, Options, RawDataset
from datasets.core.images import ListedDataset

Builder = Callable[[Any, Path], RawDataset | ListedDataset]


@dataclass(frozen=True)
class Entry:
    """A registered data set: its builder, the model of its options, and the version of what it builds."""

    name: str
    builder: Builder
    options: type[Options]
    version: int
    facts: Callable[[Any], Facts] | None = None

    @property
    def summary(self) -> str:
        """First line of the builder's docstring."""
        return (inspect.getdoc(self.builder) or "").partition("\n")[0]


_entries: dict[str, Entry] = {}


def dataset(
    name: str,
    *,
    options: type[Options],
    version: int = 1,
    facts: Callable[[Any], Facts] | None = None,
) -> Callable[[Builder], Builder]:
    """Register the decorated builder `(options, root) -> RawDataset` under `name`.

    Args:
        name: Name in configurations and on the command line.
        options: Pydantic model of the options, a subclass of `datasets.core.base.Options`.
        version: Raise it when the builder returns other data for the same options: sets prepared by an older
            version are then left alone and prepared anew.
        facts: Options -> what is known of the set without having it; None where nothing is.

    Raises:
        DataError: At import, where the name is taken or the builder has no docstring to describe it.
    """

    def register(builder: Builder) -> Builder:
        if name in _entries:
            taken = _entries[name].builder
            raise DataError(
                f"data set name '{name}' is registered twice: by {taken.__module__}.{taken.__qualname__} "
                f"and by {builder.__module__}.{builder.__qualname__}; give one of them another name"
            )
        entry = Entry(name, builder, options, version, facts)
        if not entry.summary:
            raise DataError(
                f"the builder of data set '{name}' needs a docstring: its first line is its description"
            )
        _entries[name] = entry
        return builder

    return register


def names() -> tuple[str, ...]:
    """All registered names, sorted."""
    _import_builders()
    return tuple(sorted(_entries))


def describe(name: str) -> str:
    """One line on the data set `name`.

    Raises:
        DataError: No such data set.
    """
    return get(name).summary


def facts(name: str, options: Mapping[str, Any] | None = None) -> Facts | None:
    """What is known of the data set `name` without having it; None where nothing is.

    Raises:
        DataError: No such data set, or such options.
    """
    entry = get(name)
    return None if entry.facts is None else entry.facts(parse(entry, options))


def option_values(name: str) -> dict[str, str]:
    """What each option of the data set `name` accepts, for messages: "2|4", "true|false", or "VALUE".

    Raises:
        DataError: No such data set.
    """
    accepted = {}
    for key, field in get(name).options.model_fields.items():
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        if field.annotation is bool:
            choices = ("true", "false")
        accepted[key] = "|".join(map(str, choices)) or "VALUE"
    return accepted


def get(name: str) -> Entry:
    """The entry registered as `name`.

    Raises:
        DataError: No such data set; the message holds the nearest match and all names.
    """
    known = names()
    if name not in known:
        raise DataError(
            wrong(
                "dataset.name",
                name,
                f"one of {', '.join(known)}",
                known=known,
                where="in conf/dataset/*.yaml",
            )
        )
    return _entries[name]


def parse(entry: Entry, options: Mapping[str, Any] | None) -> Options:
    """Validated options of a data set; None means all defaults.

    Raises:
        DataError: An unknown key (with the nearest match), a missing one or a wrong value.
    """
    try:
        return entry.options.model_validate(dict(options or {}))
    except ValidationError as error:
        message = format_validation_error(error, entry.options, f"options of data set {entry.name!r}: ")
        raise DataError(
            f"{message} Set it under `options:` in conf/dataset/*.yaml or with dataset.options.KEY=VALUE."
        ) from None


def _import_builders() -> None:
    # Every file of the folder is imported, so that a new data set needs no edit anywhere else.
    package = importlib.import_module("datasets")
    for module in pkgutil.walk_packages(package.__path__, "datasets."):
        importlib.import_module(module.name)
