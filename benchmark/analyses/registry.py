"""Finds analyses by name: every module of this package registers its own by decorator."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import benchmark.analyses
from benchmark.errors import ConfigError, nearest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Report:
    """What an analysis found: a table, and what has to be said about it.

    ``name`` is that of its files under ``results/tables/<preset>``; ``decimals`` is how numbers are printed (the CSV
    holds them unrounded).
    """

    name: str
    title: str
    data: pd.DataFrame
    notes: tuple[str, ...] = ()
    decimals: int = 4


Compute = Callable[[Mapping[str, str]], Report]


@dataclass(frozen=True)
class Analysis:
    """``keys`` maps what may be given as key=value to what it accepts; ``compute`` gets the given values."""

    name: str
    keys: Mapping[str, str]
    compute: Compute

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (self.compute.__doc__ or "").strip().splitlines()[0]


class PaperTable(NamedTuple):
    """A numbered table of a paper that an analysis makes.

    ``runs_of``: (file of conf/table, column) whose runs it reads; none where it needs no runs.
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
"""Named here, so that a command can ask what there is without importing the analyses (and PyTorch with them)."""

_known: dict[str, Analysis] = {}


def analysis(name: str, keys: Mapping[str, str]) -> Callable[[Compute], Compute]:
    """Register an analysis under ``name``."""

    def decorate(function: Compute) -> Compute:
        if name in _known:
            raise RuntimeError(f"two analyses are called {name!r}")
        _known[name] = Analysis(name, keys, function)
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
        raise ConfigError(f"analyse: came {name!r}.{nearest(name, known)} Allowed: {', '.join(known)}.")
    return known[name]
