"""Finds analyses by name, and the tables of papers that they make."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from benchmark.errors import ConfigError, wrong
from benchmark.experiments.selection import TableQuery, option_words

if TYPE_CHECKING:
    from benchmark.reports.tables import Table


@dataclass(frozen=True)
class Options:
    """What every analysis takes.

    Attributes:
        results: The results folder, in which the table is written.
    """

    results: Path = Path("results")


@dataclass(frozen=True)
class RunOptions(Options):
    """What an analysis of finished runs takes.

    Attributes:
        preset: Data, model and budget.
        seeds: Number of seeds. If left out: as many as the table says.
        tuned: Folder of tuned values, or ``off``. If left out: those of the results folder, then those of the project.
        stale: Whether finished runs whose method's code has changed since are left out, or used and marked.
        dataset_options: An option of the data set of every cell, on top of the cell's own.
    """

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


@dataclass(frozen=True)
class CurvesOptions(RunOptions):
    """What `curves` takes.

    Attributes:
        name: The table.
        rows: Rows that are shown. If left out: all.
        columns: Columns that are shown. If left out: all.
    """

    name: Annotated[str, "FILE of conf/table"] = "fedmr_table1"
    rows: Annotated[str | None, "KEY,PATTERN*,..."] = None
    columns: Annotated[str | None, "KEY,PATTERN*,..."] = None


@dataclass(frozen=True)
class LossDecompositionOptions(Options):
    """How the experiment of the figure is carried out.

    Attributes:
        preset: Data, model and budget.
        seeds: Number of seeds. If left out: that of the figure's experiment.
        data: Folder of the raw data. If left out: what the variable FEDTABLES_DATA names, or ``data``.
        device: Device of the training.
        threads: Threads of the training.
    """

    preset: str = "quick"
    seeds: int | None = None
    data: Path | None = None
    device: str = "auto"
    threads: int = 1


@dataclass(frozen=True)
class OverheadOptions(RunOptions):
    """Which runs are read.

    Attributes:
        column: The column of FedDiverse's Table 1 whose runs are read.
    """

    column: Annotated[str, "COLUMN of feddiverse_table1"] = "cmnist_gsc"


@dataclass(frozen=True)
class ResourcesOptions(Options):
    """What is measured.

    Attributes:
        preset: Data, model and budget.
        columns: Columns of the figure that are measured. If left out: all.
        repeats: How often each method is timed. If left out: as often as in the figure.
    """

    preset: str = "quick"
    columns: Annotated[str | None, "KEY,PATTERN*,... of the figure"] = None
    repeats: int | None = None


@dataclass(frozen=True)
class RetinaSplitsOptions(Options):
    """Where the data are.

    Attributes:
        data: Folder of the raw data. If left out: what the variable FEDTABLES_DATA names, or ``data``.
    """

    data: Path | None = None


@dataclass(frozen=True)
class UpdateGeometryOptions(Options):
    """Which cell is trained, and for how many rounds.

    Attributes:
        preset: Data, model and budget.
        name: The table of the cell.
        column: Column of the cell. If left out: the first one.
        rounds: Number of rounds. If left out: the cell's own.
    """

    preset: str = "quick"
    name: Annotated[str, "FILE of conf/table with a row fedavg"] = "fedld_table1"
    column: Annotated[str | None, "COLUMN of it"] = None
    rounds: int | None = None


class Analysis(NamedTuple):
    """The function of its name in a module of this package; it takes options whose fields all have defaults."""

    name: str
    module: str
    options: type[Options]

    @property
    def compute(self) -> Callable[[Any], Table]:
        """The function, whose module may import PyTorch."""
        function: Callable[[Any], Table] = getattr(
            importlib.import_module(f"benchmark.analyses.{self.module}"), self.name.replace("-", "_")
        )
        return function

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

ANALYSES = (
    Analysis("client-types", "interaction", Options),
    Analysis("communication", "communication", Options),
    Analysis("curves", "curves", CurvesOptions),
    Analysis("leaderboard", "leaderboard", RunOptions),
    Analysis("loss-decomposition", "loss_decomposition", LossDecompositionOptions),
    Analysis("overhead", "overhead", OverheadOptions),
    Analysis("pooled-data", "interaction", Options),
    Analysis("resources", "resources", ResourcesOptions),
    Analysis("retina-splits", "retina_splits", RetinaSplitsOptions),
    Analysis("update-geometry", "update_geometry", UpdateGeometryOptions),
)


def find(name: str) -> Analysis:
    """The analysis called ``name``; `ConfigError` if there is none."""
    known = {analysis.name: analysis for analysis in ANALYSES}
    if name not in known:
        expected = f"one of: {', '.join(known)} (`list analyses` describes them)"
        raise ConfigError(wrong("analyse", name, expected, known=known))
    return known[name]
