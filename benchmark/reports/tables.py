"""From finished runs to a table: published beside measured, spread, marks, and what is missing.

`build_table` gets the value of every run and knows no folder layout; `write` saves CSV, LaTeX and Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from benchmark.experiments.plan import TunedValues
from benchmark.experiments.spec import Column, Row, TableSpec
from benchmark.reports.published import Published, PublishedTable
from benchmark.reports.render import latex, markdown
from benchmark.reports.statistics import Mark, Summary, Tau, agreement, mean_tau, rank, summarise
from benchmark.runs.files import storage_error, write_atomically

STATUSES = ("done", "not reached", "missing", "running", "failed", "diverged")
"""Of a run, from best to worst: a cell is called by its worst run.

``not reached``: done, but it never met the value of the reference row, so that it has no number of rounds.
"""

STATES = (
    "ok",
    "method not available yet",
    "selection not available yet",
    "dataset not available yet",
    "model not available yet",
    "partition not available yet",
    "not in this preset",
)
"""Of a cell: ``ok`` has runs, the others say why there are none."""

DECIMALS = 2
"""Digits that a table shows; means that look the same share their marks."""


@dataclass(frozen=True)
class CellRun:
    """One run of a cell.

    ``value`` is as recorded (accuracies as fractions), None unless done; ``run`` is its folder, relative to the
    results. A run without a finite value is never done: without one it counts as missing, with NaN as diverged.
    """

    seed: int
    status: str
    value: float | None = None
    run: str | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r} is none of {', '.join(STATUSES)}")
        if self.status == "done" and (self.value is None or not math.isfinite(self.value)):
            # A finished run without a number must not look like a result, nor stop the other cells of the table.
            object.__setattr__(self, "status", "missing" if self.value is None else "diverged")
        if self.status != "done":
            object.__setattr__(self, "value", None)


@dataclass(frozen=True)
class Cell:
    """What is known about one cell before the statistics: its state and its runs, one per planned seed."""

    state: str = "ok"
    runs: tuple[CellRun, ...] = ()

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state {self.state!r} is none of {', '.join(STATES)}")


@dataclass(frozen=True)
class TableCell:
    """A cell with its statistics, in the unit that the table shows (percent for accuracies)."""

    row: Row
    column: Column
    state: str
    runs: tuple[CellRun, ...]
    values: Mapping[int, float]
    summary: Summary | None
    published: Published | None
    mark: Mark = field(default_factory=Mark)

    @property
    def complete(self) -> bool:
        """All planned seeds are done: only such cells are ranked and compared."""
        return self.state == "ok" and 0 < len(self.runs) == len(self.values)

    @property
    def status(self) -> str:
        """``done``, the worst status of the runs, or the state that explains why there are none."""
        if self.state != "ok":
            return self.state
        return max((run.status for run in self.runs), key=STATUSES.index, default="missing")

    def seeds(self, status: str) -> list[int]:
        """Seeds whose run has ``status``."""
        return [run.seed for run in self.runs if run.status == status]

    @property
    def troubles(self) -> list[str]:
        """What keeps the cell from being complete, like ``2 missing`` and ``1 diverged``."""
        return [f"{len(self.seeds(status))} {status}" for status in STATUSES[1:] if self.seeds(status)]


@dataclass(frozen=True)
class Table:
    """A finished table.

    ``notes``: column -> what stands in for the paper's setting in this preset; ``chosen``: (row, column) -> values of
    hyper-parameters that were tuned here.
    """

    spec: TableSpec
    preset: str
    cells: Mapping[tuple[str, str], TableCell]
    taus: Mapping[str, Tau]
    overall: Tau
    notes: Mapping[str, str]
    has_published: bool
    chosen: Mapping[tuple[str, str], TunedValues] = field(default_factory=dict)

    def cell(self, row: Row, column: Column) -> TableCell:
        """The cell of a row and a column."""
        return self.cells[row.key, column.key]

    @property
    def num_seeds(self) -> int:
        """Most seeds that any cell was planned with; 0 if no cell has runs."""
        return max((len(cell.runs) for cell in self.cells.values()), default=0)

    def to_csv(self) -> str:
        """Long form, one line per cell, with the folders of its runs."""
        frame = pd.DataFrame([self._record(cell) for cell in self.cells.values()])
        return str(frame.to_csv(index=False, lineterminator="\n"))

    def to_markdown(self) -> str:
        """Markdown (GitHub's pipes), one table per block of columns, notes below."""
        return markdown.render(self)

    def to_latex(self) -> str:
        r"""LaTeX that compiles as it is and can be \input into a document with booktabs and graphicx."""
        return latex.render(self)

    def _record(self, cell: TableCell) -> dict[str, object]:
        published = cell.published or Published()
        summary = cell.summary
        return {
            "table": self.spec.name,
            "preset": self.preset,
            "row": cell.row.key,
            "method": cell.row.method,
            "selection": cell.row.selection or "",
            "column": cell.column.key,
            "metric": self.spec.metric,
            "unit": self.spec.metric_format.unit,
            "which_round": self.spec.which_round,
            "mean": _rounded(summary.mean if summary else None),
            "std": _rounded(summary.std if summary else None),
            "n": len(cell.values),
            "n_planned": len(cell.runs),
            "status": cell.status,
            "marks": cell.mark.words,
            "p_best_is_better": _rounded(cell.mark.p),
            "published_mean": published.mean,
            "published_std": published.std,
            "published_n": published.n,
            "published_note": published.note,
            "seeds": ";".join(
                f"{run.seed}={_rounded(cell.values.get(run.seed), run.status)}" for run in cell.runs
            ),
            "runs": ";".join(run.run for run in cell.runs if run.run),
        }


def _rounded(value: float | None, otherwise: str = "") -> float | str:
    """Six digits after the point: more than any test set resolves, and free of rounding noise."""
    return otherwise if value is None else round(value, 6)


def build_table(
    spec: TableSpec,
    preset: str,
    cells: Mapping[tuple[str, str], Cell],
    *,
    notes: Mapping[str, str] | None = None,
    published: PublishedTable | None = None,
    chosen: Mapping[tuple[str, str], TunedValues] | None = None,
) -> Table:
    """Put the runs of a table together.

    ``cells``: (row, column) -> `Cell`, averages left out (they are made here, seed by seed); a cell that is not given
    counts as missing. ``notes``: column -> what stands in for what in this preset, after the column's own note;
    ``chosen``: (row, column) -> hyper-parameters that were tuned.
    Raises `ConfigError` if the published numbers cannot be read, ValueError for a cell that the table does not have.
    """
    known = {(row.key, column.key) for row in spec.rows for column in spec.run_columns}
    strangers = sorted(set(cells) - known)
    if strangers:
        raise ValueError(f"table {spec.name} has no cells {strangers}")
    published = published or PublishedTable(spec)
    built: dict[tuple[str, str], TableCell] = {}
    for row in spec.rows:
        for column in spec.columns:
            parts = [cells.get((row.key, part), Cell()) for part in column.average_of]
            cell = _average(parts) if parts else cells.get((row.key, column.key), Cell())
            built[row.key, column.key] = _summarised(spec, row, column, cell, published)
    taus = {}
    for column in spec.columns:
        built |= _ranked(spec, column, built)
        taus[column.key] = _column_tau(spec, column, built)
    return Table(
        spec=spec,
        preset=preset,
        cells=built,
        taus=taus,
        overall=mean_tau([taus[column.key] for column in spec.run_columns]),
        notes=_all_notes(spec, preset, notes or {}),
        has_published=published.exists,
        chosen=chosen or {},
    )


def _all_notes(spec: TableSpec, preset: str, notes: Mapping[str, str]) -> dict[str, str]:
    result = {}
    for column in spec.run_columns:
        own = column.presets[preset].note if preset in column.presets else ""
        text = "; ".join(note for note in (notes.get(column.key, ""), own) if note)
        if text:
            result[column.key] = text
    return result


def _average(parts: Sequence[Cell]) -> Cell:
    """The mean of several cells, seed by seed; a seed counts only if it is done in all parts."""
    for part in parts:
        if part.state != "ok":
            return part
    seeds = sorted({run.seed for part in parts for run in part.runs})
    return Cell("ok", tuple(_average_seed(seed, parts) for seed in seeds))


def _average_seed(seed: int, parts: Sequence[Cell]) -> CellRun:
    found = [next((run for run in part.runs if run.seed == seed), CellRun(seed, "missing")) for part in parts]
    status = max((run.status for run in found), key=STATUSES.index)
    values = [run.value for run in found if run.value is not None]
    folders = ";".join(run.run for run in found if run.run) or None
    return CellRun(seed, status, math.fsum(values) / len(parts) if status == "done" else None, folders)


def _summarised(
    spec: TableSpec, row: Row, column: Column, cell: Cell, published: PublishedTable
) -> TableCell:
    runs = tuple(sorted(cell.runs, key=lambda run: run.seed))
    values = {run.seed: run.value * spec.metric_format.scale for run in runs if run.value is not None}
    summary = summarise(list(values.values())) if values else None
    return TableCell(row, column, cell.state, runs, values, summary, published.find(row, column))


def _complete(
    spec: TableSpec, column: Column, built: Mapping[tuple[str, str], TableCell]
) -> dict[str, TableCell]:
    cells = {row.key: built[row.key, column.key] for row in spec.rows}
    return {key: cell for key, cell in cells.items() if cell.complete}


def _ranked(
    spec: TableSpec, column: Column, built: Mapping[tuple[str, str], TableCell]
) -> dict[tuple[str, str], TableCell]:
    complete = _complete(spec, column, built)
    marks = rank(
        {key: cell.values for key, cell in complete.items()}, spec.metric_format.higher_is_better, DECIMALS
    )
    return {(key, column.key): replace(cell, mark=marks[key]) for key, cell in complete.items()}


def _column_tau(spec: TableSpec, column: Column, built: Mapping[tuple[str, str], TableCell]) -> Tau:
    complete = _complete(spec, column, built)
    measured = {key: cell.summary.mean for key, cell in complete.items() if cell.summary}
    printed = {key: cell.published.value for key, cell in complete.items() if cell.published}
    return agreement(measured, {key: value for key, value in printed.items() if value is not None})


def write(table: Table, folder: Path | str) -> list[Path]:
    """Write ``<name>.csv``, ``.tex`` and ``.md`` into ``folder``; each file is whole or not there. Returns their paths.

    Raises `StorageError` if the folder cannot be written.
    """
    folder = Path(folder)
    texts = {"csv": table.to_csv(), "tex": table.to_latex(), "md": table.to_markdown()}
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, folder) from error
    for suffix, text in texts.items():
        path = folder / f"{table.spec.name}.{suffix}"
        write_atomically(path, text.encode(), durable=False)
        paths.append(path)
    return paths
