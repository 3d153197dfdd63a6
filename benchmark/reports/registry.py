"""Analyses and kinds of figures by name. Every module of their packages registers its own with a decorator."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Generic, TypeVar

from benchmark.errors import ConfigError, wrong

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """What the modules of ``package`` register; ``key`` is the setting that names an entry."""

    def __init__(self, package: str, key: str) -> None:
        self._package, self._key = package, key
        self._known: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> None:
        """Register ``entry`` under a name that is free."""
        if name in self._known:
            raise RuntimeError(f"{self._package}: {name!r} is registered twice")
        self._known[name] = entry

    def all(self) -> dict[str, Entry]:
        """All entries, sorted by name."""
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
            importlib.import_module(module.name)
        return dict(sorted(self._known.items()))

    def find(self, name: str) -> Entry:
        """The entry called ``name``; `ConfigError` if there is none."""
        known = self.all()
        if name not in known:
            raise ConfigError(wrong(self._key, name, f"one of: {', '.join(known)}", known=known))
        return known[name]
