"""Finds analyses by name, and the tables of papers that they make."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_type_hints

from benchmark.errors import ConfigError, wrong
from benchmark.experiments.selection import TableQuery, option_words

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
    stale: Literal["rerun", "keep"] = "rerun"
    dataset_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def query(self) -> TableQuery:
        """Selects the runs that are read."""
        return TableQuery(
            preset=self.preset,
            seeds=self.seeds,
            results=self.results,
            tuned=self.tuned,
            dataset_options=self.dataset_options,
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """A note on the options of data sets that were given."""
        words = option_words(self.dataset_options)
        return (f"Options of data sets: {', '.join(words)}.",) if words else ()


class Analysis(NamedTuple):
    """``compute`` takes the options, a dataclass whose fields all have defaults."""

    name: str
    options: type[Options]
    compute: Callable[[Any], Table]

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

MODULES = {
    "client-types": "interaction",
    "communication": "communication",
    "leaderboard": "leaderboard",
    "loss-decomposition": "loss_decomposition",
    "overhead": "overhead",
    "pooled-data": "interaction",
    "resources": "resources",
    "retina-splits": "retina_splits",
    "update-geometry": "update_geometry",
}
"""Analysis -> module of this package, which has a function of its name."""


def find(name: str) -> Analysis:
    """The analysis called ``name``; `ConfigError` if there is none."""
    if name not in MODULES:
        raise ConfigError(wrong("analyse", name, f"one of: {', '.join(MODULES)}", known=MODULES))
    module = importlib.import_module(f"benchmark.analyses.{MODULES[name]}")
    compute = getattr(module, name.replace("-", "_"))
    return Analysis(name, get_type_hints(compute)["options"], compute)
