"""Finds analyses by name, and the tables of papers that they make."""

import importlib
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, PositiveInt

from benchmark.config.schema import Device, PathsConfig, RuntimeConfig, declared
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.selection import PATTERNS, FileName, ResultsOptions, RunQuery

if TYPE_CHECKING:
    from benchmark.reports.tables import Table


class CurvesOptions(RunQuery):
    """What `curves` takes."""

    name: str = Field("fedmr_table1", title="FILE of conf/table", description="the table")
    rows: str | None = Field(None, title=PATTERNS, description="rows that are shown; if left out: all")
    columns: str | None = Field(None, title=PATTERNS, description="columns that are shown; if left out: all")


def _is_dated(name: str) -> str:
    """Refuse the name of a version that is not a date, or a date and a letter."""
    try:
        date.fromisoformat(re.sub("[a-z]$", "", name))
    except ValueError as error:
        raise ValueError(
            wrong("freeze", name, "a date like 2026-12-01, or with a letter, 2026-12-01b")
        ) from error
    return name


class LeaderboardOptions(RunQuery):
    """Whether a version is frozen."""

    freeze: Annotated[str, AfterValidator(_is_dated)] | None = Field(
        None,
        title="YYYY-MM-DD",
        description="write the version of this date (and letter, for one more on a day) to leaderboard/ of the results",
    )


class LossDecompositionOptions(ResultsOptions):
    """How the experiment of the figure is carried out."""

    preset: FileName = declared(RunQuery, "preset")
    seeds: PositiveInt | None = declared(RunQuery, "seeds")
    data: Path | None = declared(PathsConfig, "data")
    device: Device = declared(RuntimeConfig, "device")
    threads: PositiveInt = declared(RuntimeConfig, "threads")


class OverheadOptions(RunQuery):
    """Which runs are read."""

    column: str = Field(
        "cmnist_gsc",
        title="COLUMN of feddiverse_table1",
        description="the column of FedDiverse's Table 1 whose runs are read",
    )


class ResourcesOptions(ResultsOptions):
    """What is measured."""

    preset: FileName = declared(RunQuery, "preset")
    columns: str | None = Field(
        None,
        title=f"{PATTERNS} of the figure",
        description="columns of the figure that are measured; if left out: all",
    )
    repeats: PositiveInt | None = Field(
        None, description="how often each method is timed; if left out: as often as in the figure"
    )


class Analysis(NamedTuple):
    """The function of its name in a module of this package; it takes options whose fields all have defaults."""

    name: str
    module: str
    options: type[ResultsOptions]

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
    Analysis("client-types", "interaction", ResultsOptions),
    Analysis("communication", "communication", ResultsOptions),
    Analysis("curves", "curves", CurvesOptions),
    Analysis("leaderboard", "leaderboard", LeaderboardOptions),
    Analysis("loss-decomposition", "loss_decomposition", LossDecompositionOptions),
    Analysis("overhead", "overhead", OverheadOptions),
    Analysis("pooled-data", "interaction", ResultsOptions),
    Analysis("resources", "resources", ResourcesOptions),
)


def find(name: str) -> Analysis:
    """The analysis called ``name``; `ConfigError` if there is none."""
    by_name = {analysis.name: analysis for analysis in ANALYSES}
    if name not in by_name:
        expected = f"one of: {', '.join(by_name)} (`list analyses` describes them)"
        raise ConfigError(wrong("name", name, expected, known=by_name))
    return by_name[name]
