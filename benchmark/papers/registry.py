"""Finds analyses by name, and the tables of papers that they make."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field, PositiveInt

from benchmark.config.schema import Device, PathsConfig, RuntimeConfig, declared
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.selection import TableQuery

if TYPE_CHECKING:
    from benchmark.reports.tables import Table


class LeaderboardOptions(TableQuery):
    """``freeze``: date of the version that is written, with a letter for one more on a day; None: none is written.

    The others are for the rounds that are timed.
    """

    freeze: str | None = Field(None, pattern=r"^\d{4}-\d\d-\d\d[a-z]?$")
    data: Path | None = declared(PathsConfig, "data")
    device: Device = declared(RuntimeConfig, "device")
    threads: PositiveInt = declared(RuntimeConfig, "threads")


class Analysis(NamedTuple):
    """The function of its name in a module of this package; it takes options whose fields all have defaults."""

    name: str
    module: str
    options: type[TableQuery] = TableQuery

    @property
    def compute(self) -> Callable[[Any], "Table"]:
        """The function, whose module may import PyTorch."""
        module = importlib.import_module(f"benchmark.papers.{self.module}")
        function: Callable[[Any], Table] = getattr(module, self.name.replace("-", "_"))
        return function

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (self.compute.__doc__ or "").strip().splitlines()[0]


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

ANALYSES = (
    Analysis("client-types", "counted"),
    Analysis("communication", "counted"),
    Analysis("curves", "curves"),
    Analysis("leaderboard", "leaderboard", LeaderboardOptions),
    Analysis("overhead", "overhead"),
    Analysis("pooled-data", "counted"),
)


def find(name: str) -> Analysis:
    """The analysis called ``name``; `ConfigError` if there is none."""
    by_name = {analysis.name: analysis for analysis in ANALYSES}
    if name not in by_name:
        expected = f"one of: {', '.join(by_name)} (`list analyses` describes them)"
        raise ConfigError(wrong("name", name, expected, known=by_name))
    return by_name[name]
