"""Finds analyses by name. Every module of this package registers its own with a decorator."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import benchmark.analyses
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.selection import TableQuery

if TYPE_CHECKING:
    from benchmark.reports.tables import Table


@dataclass(frozen=True)
class Options:
    """What every analysis takes: the results folder, in which its table is written."""

    results: Path = Path("results")


@dataclass(frozen=True)
class RunOptions(Options):
    """What an analysis of finished runs takes."""

    preset: str = "quick"
    seeds: int | None = None
    tuned: Annotated[str | None, "FOLDER|off"] = None

    @property
    def query(self) -> TableQuery:
        """Selects the runs that are read."""
        return TableQuery(preset=self.preset, seeds=self.seeds, results=self.results, tuned=self.tuned)


Compute = Callable[[Any], "Table"]


class Analysis(NamedTuple):
    """``compute`` takes the options, a dataclass whose fields all have defaults."""

    name: str
    options: type[Options]
    compute: Compute

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (self.compute.__doc__ or "").strip().splitlines()[0]

    def from_query(self, query: TableQuery) -> Table:
        """Compute with those options that ``query`` has too."""
        shared = self.options.__dataclass_fields__.keys() & TableQuery.__dataclass_fields__.keys()
        return self.compute(self.options(**{name: getattr(query, name) for name in shared}))


class PaperTable(NamedTuple):
    """A numbered table of a paper that an analysis makes.

    ``runs_of``: (file of conf/table, column) whose runs it reads; None if it needs no runs.
    """

    paper: str
    table: int
    analysis: str
    runs_of: tuple[str, str] | None = None


PAPER_TABLES = (
    PaperTable("feddiverse", 2, "overhead", ("feddiverse_table1", "cmnist_gsc")),
    PaperTable("feddiverse", 5, "pooled-data"),
    PaperTable("feddiverse", 6, "client-types"),
    PaperTable("fedmr", 3, "communication"),
)
"""Listed here, so that a command can look them up without importing the analyses and PyTorch."""

_known: dict[str, Analysis] = {}


def analysis(name: str, options: type[Options] = Options) -> Callable[[Compute], Compute]:
    """Register an analysis under ``name``."""

    def decorate(function: Compute) -> Compute:
        if name in _known:
            raise RuntimeError(f"two analyses are called {name!r}")
        _known[name] = Analysis(name, options, function)
        return function

    return decorate


def analyses() -> dict[str, Analysis]:
    """All analyses by name."""
    for module in pkgutil.iter_modules(benchmark.analyses.__path__, "benchmark.analyses."):
        importlib.import_module(module.name)
    return dict(sorted(_known.items()))


def find(name: str) -> Analysis:
    """The analysis called ``name``; `ConfigError` if there is none."""
    known = analyses()
    if name not in known:
        raise ConfigError(wrong("analyse", name, f"one of: {', '.join(known)}", known=known))
    return known[name]
