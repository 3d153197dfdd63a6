"""The fidelity ledger: where a paper, its authors' code or the paper's own text disagree, and what is done here.

The entries are data, ``entries/<paper>.yaml``. ``docs/generate.py`` writes them to ``docs/fidelity.md``, with the
measured effects in ``results/studies/switches``. A test builds every value of every switch.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from benchmark.config.files import FileModel, read_model
from benchmark.paths import ROOT

ENTRIES = Path(__file__).with_name("entries")
EFFECTS = ROOT / "results" / "studies" / "switches"
"""Measured effects of switches: tables whose rows are called by the ids of entries."""

PAPERS = ("fedld", "fedsdc", "feddiverse", "fedmr", "baselines")
"""The four papers and their baselines together, in the order of the page."""

Value = bool | int | float | str | None

Text = Annotated[str, AfterValidator(lambda text: " ".join(text.split()))]
"""A paragraph, on one line."""


class CellName(FileModel):
    """A cell of a table of ``conf/table``."""

    table: str
    row: str
    column: str


class Base(FileModel):
    """What a switch acts on: files of the groups, or a cell of a table as it is in preset paper."""

    method: str | None = None
    selection: str | None = None
    partition: str | None = None
    cell: CellName | None = None


class LedgerEntry(FileModel):
    """One disagreement.

    Attributes:
        id: short name that stays.
        title: what it is about.
        paper, code: what the paper says, and what the authors' code does.
        default: what is done here unless told otherwise.
        base: what the switch acts on.
        switch: setting -> its values, the default first; empty if nothing can be switched.
    """

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: Text
    paper: Text
    code: Text
    default: Text
    base: Base = Base()
    switch: dict[str, tuple[Value, ...]] = Field(default_factory=dict)


class Source(FileModel):
    """A repository of public code that was read."""

    repository: str
    commit: str


class Chapter(FileModel):
    """A file of the ledger: the entries of one paper."""

    paper: str
    title: str
    sources: tuple[Source, ...] = Field(min_length=1)
    entries: tuple[LedgerEntry, ...] = Field(min_length=1)


def load() -> list[Chapter]:
    """All chapters, in the order of the papers; `ConfigError`, naming the file, for what does not fit."""
    return [read_model(Chapter, ENTRIES / f"{paper}.yaml", "ledger") for paper in PAPERS]
