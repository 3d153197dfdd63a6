"""The entries of the ledger, read from ``methods/fidelity/<paper>.yaml``.

An entry is one place where a paper, its authors' code or the paper's own text disagree: what each says, what is done
here, and the setting that changes it. Every setting that an entry names is composed and built by a test, so that an
entry cannot outlive its switch.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from benchmark.config.files import FileModel, read_model
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.paths import ROOT

LEDGER_FOLDER = ROOT / "methods" / "fidelity"
"""Where the entries live."""

PAPERS = ("fedld", "fedsdc", "feddiverse", "fedmr", "baselines")
"""The four papers and their baselines together, in the order of the document."""

Value = bool | int | float | str | None

Text = Annotated[str, AfterValidator(lambda text: " ".join(text.split()))]
"""A paragraph, on one line."""


class CellName(FileModel):
    """A cell of a table of ``conf/table``."""

    table: str
    row: str
    column: str


class Effect(FileModel):
    """What to measure: ``overrides`` on top of a cell, which may be another one in each preset."""

    overrides: dict[str, Value] = Field(min_length=1)
    cells: dict[str, CellName] = Field(min_length=1)


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
        paper, code, text: what the paper says, what the authors' code does, where the paper contradicts itself.
        default: what is done here unless told otherwise, and why.
        base: what the switch acts on.
        switch: setting -> its values, the default first.
        no_switch: why nothing can be switched; beside a switch, what of the entry cannot.
        effect: what to measure, for the entries that matter most.
    """

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: Text
    paper: Text
    code: Text
    text: Text = ""
    default: Text
    base: Base = Base()
    switch: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    no_switch: Text = ""
    effect: Effect | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "LedgerEntry":
        if not self.switch and not self.no_switch:
            raise ValueError("needs a switch, or no_switch with the reason")
        if self.switch and self.base == Base():
            raise ValueError("a switch needs `base`: what it acts on")
        for key, values in self.switch.items():
            if len(values) < 2 or len(set(values)) < len(values):
                raise ValueError(wrong(f"switch.{key}", list(values), "two or more different values"))
        return self


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


@cache
def table(name: str) -> TableSpec:
    """The table called ``name``, read once; `ConfigError` if there is none."""
    return spec_called(name, "fidelity: table")


def entries_of(chapters: Sequence[Chapter]) -> list[LedgerEntry]:
    """The entries of several chapters, in order."""
    return [entry for chapter in chapters for entry in chapter.entries]


def load(folder: Path = LEDGER_FOLDER) -> list[Chapter]:
    """All chapters, in the order of the papers; `ConfigError`, naming the file, for what does not fit."""
    chapters = []
    for paper in PAPERS:
        path = folder / f"{paper}.yaml"
        chapter = read_model(Chapter, path, "ledger")
        if chapter.paper != paper:
            raise ConfigError(f"ledger file {path}: {wrong('paper', chapter.paper, repr(paper))}")
        chapters.append(chapter)
    ids = [entry.id for entry in entries_of(chapters)]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise ConfigError(f"ledger {folder}: {', '.join(twice)} comes twice; expected unique ids.")
    return chapters
