"""Nested settings that remember where each key was set, and laying one on top of another."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import ValidatorFunctionWrapHandler, WrapValidator


class Settings(dict[str, Any]):
    """A mapping with the source of each key in ``sources``: a file and line, ``default`` or ``command line``."""

    def __init__(self, values: Mapping[str, Any] | None = None, sources: Mapping[str, str] | None = None):
        super().__init__(values or {})
        self.sources = dict(sources or {})


def sources_of(values: Any) -> Mapping[str, str]:
    """The sources of the keys of a mapping, as far as they are known."""
    return values.sources if isinstance(values, Settings) else {}


def _keep_sources(values: Any, check: ValidatorFunctionWrapHandler) -> Settings:
    return Settings(check(values), sources_of(values))


KeepSources = WrapValidator(_keep_sources)
"""For a field of a model: a mapping that keeps its sources."""

OpenSettings = Annotated[dict[str, Any], KeepSources]
"""A mapping with any keys."""


def merge(base: Mapping[str, Any], over: Mapping[str, Any], source: str = "") -> Settings:
    """Return ``base`` with ``over`` on top, nested; both stay as they are.

    A mapping that names something else (``{name: adam}`` over ``{name: momentum, beta: 0.9}``) replaces the old one,
    since the parameters belong to the name. Lists and single values are replaced. ``null`` is a value.
    ``source`` is that of the keys of ``over`` which do not know theirs.
    """
    merged = Settings(base, sources_of(base))
    sources = sources_of(over)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, Mapping):
            other = (
                isinstance(old, Mapping)
                and "name" in value
                and old.get("name", value["name"]) != value["name"]
            )
            merged[key] = merge({} if other or not isinstance(old, Mapping) else old, value, source)
            merged.sources.setdefault(key, sources.get(key, source))
        else:
            merged[key] = value
            merged.sources[key] = sources.get(key, source)
    return merged


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings without their sources."""
    return {key: plain(value) if isinstance(value, Mapping) else value for key, value in settings.items()}


class SourcedValue(NamedTuple):
    """One value of a configuration: its dotted key, and where it was set."""

    key: str
    value: Any
    source: str


def explain(settings: Mapping[str, Any], prefix: str = "") -> Iterator[SourcedValue]:
    """Every value of nested settings, and where it was set."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from explain(value, f"{prefix}{key}.")
        else:
            yield SourcedValue(f"{prefix}{key}", value, sources_of(settings).get(key, ""))
