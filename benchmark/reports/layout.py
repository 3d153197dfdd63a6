"""Lays the results of a table out: blocks of columns, caption, and one line per cell for the CSV."""

from itertools import groupby

import pandas as pd

from benchmark.experiments.metrics import Show
from benchmark.experiments.parts import Column
from benchmark.experiments.spec import TableSpec
from benchmark.reports.notes import notes_of
from benchmark.reports.published import Published
from benchmark.reports.results import CellResult, TableResults
from benchmark.reports.statistics import ALPHA, Difference
from benchmark.reports.tables import ColumnBlock, Table, TableLine

MAX_COLUMNS = 7
"""Widest block of columns that is still readable on a page."""

PAIRED = (
    "mean over pairs of runs with the same seed on one type of processor, with its 95 % interval by Student's t. "
    "It is not resolved if the interval contains zero."
)
PUBLISHED = (
    "Published: Welch's 95 % interval, assuming independent runs (the pairing is not known); without one where the "
    "paper prints no spread."
)

Columns = tuple[Column, ...]


def as_table(results: TableResults, show: Show = "both", base: str | None = None) -> Table:
    """The table that renderers print; one without published numbers shows the measured ones, or differences of them.

    ``base``: key of the row that differences are taken from; None: the base row of the table.
    """
    spec = results.spec
    results = results if base is None else results.against(base)
    show = show if spec.published or show == "difference" else "measured"
    sources = {"published": spec.published, "reproduced by others": spec.reproductions}
    small = tuple(name for name, files in sources.items() if files and show in ("both", "difference"))
    return Table(
        name=spec.name,
        title=spec.title,
        data=pd.DataFrame([_record(results, cell, show) for cell in results.cells.values()]),
        blocks=tuple(_block(results, columns) for columns in _blocks(spec.columns)),
        notes=tuple(notes_of(results)),
        caption=" ".join([_caption(results, show), *_marks(results, show)]),
        preset=results.preset,
        show=show,
        small=small,
    )


def _blocks(columns: Columns) -> list[Columns]:
    """Whole groups, as many as fit into `MAX_COLUMNS`. A group without a heading can be cut."""
    units: list[Columns] = []
    for heading, neighbours in groupby(columns, key=lambda column: column.group):
        group = tuple(neighbours)
        size = MAX_COLUMNS if heading is None else len(group)
        units += [group[start : start + size] for start in range(0, len(group), size)]
    blocks: list[Columns] = []
    for unit in units:
        if blocks and len(blocks[-1]) + len(unit) <= MAX_COLUMNS:
            blocks[-1] += unit
        else:
            blocks.append(unit)
    return blocks


def _block(results: TableResults, columns: Columns) -> ColumnBlock:
    # The reader must see where the test set chose the round.
    suffix = " (best on test)" if results.spec.round(results.preset).rule == "best_test" else ""
    return ColumnBlock(
        head="Method",
        columns=tuple(f"{column.label}{suffix}" for column in columns),
        lines=tuple(
            TableLine(row.label, tuple(results.cell(row, column) for column in columns), row.own)
            for row in results.spec.rows
        ),
        groups=tuple(column.group for column in columns),
    )


def conditions(results: TableResults, over: str = "") -> str:
    """What the numbers are: metric, round and preset; ``over`` says what they are summarised over."""
    spec = results.spec
    which = spec.round(results.preset).phrase
    if spec.reference_row is not None:
        which = f"compared seed by seed with {spec.row(spec.reference_row).label} in the evaluated rounds"
    other = ""
    if spec.published and results.preset != "paper":
        other = " (not the paper's data and budget)"
    elif results.stand_ins and not spec.published:  # a table of one's own repeats no paper
        other = " (other data in place of those that are named)"
    return f"{_what(spec)}, {which}{over}, preset {results.preset}{other}"


def _what(spec: TableSpec) -> str:
    shown = spec.metric_format
    return f"{shown.label} in {shown.unit}" if shown.unit else shown.label


def _caption(results: TableResults, show: Show) -> str:
    """What the numbers are, in a sentence."""
    if show == "published":
        return f"{_what(results.spec)}, as published."
    seeds = results.num_seeds
    over = {0: "no run planned", 1: "one seed, so without spread"}.get(seeds, f"mean ± SD over {seeds} seeds")
    text = f"{conditions(results, f', {over}')}."
    if show == "difference":
        bases = list(dict.fromkeys(cell.base.row.label for cell in results.cells.values() if cell.base))
        if bases:
            to = "it" if len(bases) == 1 else "the row of their base"
            text += f" Other rows than {bases[0]}: difference to {to}, {PAIRED}"
        if any(found.interval for cell in results.cells.values() if (found := cell.published_difference)):
            text += f" {PUBLISHED}"
    return text


def _marks(results: TableResults, show: Show) -> list[str]:
    """What the marks mean that are in the table."""
    cells = results.cells.values()
    measured = [cell for cell in cells if show in ("measured", "both")]
    states = dict.fromkeys(cell.state for cell in cells if cell.state != "ok" and show != "published")
    meanings = {
        "bold: best": any(cell.mark.best for cell in measured),
        "underlined: second": any(cell.mark.second for cell in measured),
        f"†: not significantly worse (p ≥ {ALPHA:g})": any(cell.mark.not_worse for cell in measured),
        "‡: made by other code or in another way": any(cell.differs for cell in cells)
        and show != "published",
        f"–: {', '.join(states)}": bool(states),
    }
    text = "; ".join(meaning for meaning, there in meanings.items() if there)
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def _record(results: TableResults, cell: CellResult, show: Show) -> dict[str, object]:
    spec, published, summary = results.spec, cell.published or Published(), cell.summary
    values = {run.seed: rounded(cell.values.get(run.seed), run.outcome) for run in cell.runs}
    mark = cell.mark
    marks = {"best": mark.best, "second": mark.second, "not_significantly_worse": mark.not_worse}
    marks["differs"] = bool(cell.differs)
    record: dict[str, object] = {
        "table": spec.name,
        "preset": results.preset,
        "row": cell.row.key,
        "method": cell.row.method_name,
        "selection": cell.row.selection_name or "",
        "column": cell.column.key,
        "metric": cell.column.metric or spec.metric,
        "unit": spec.metric_format.unit,
        "which_round": spec.which_round[results.preset],
        "mean": rounded(summary.mean if summary else None),
        "std": rounded(summary.std if summary else None),
        "n": len(cell.values),
        "n_planned": len(cell.runs),
        "status": cell.outcome,
        "marks": " ".join(word for word, applies in marks.items() if applies),
        "differs": "; ".join(cell.differs),
        "processor": "" if cell.column.average_of else _processors(cell),
        "p_best_is_better": rounded(mark.p),
        "published_mean": published.mean,
        "published_std": published.std,
        "published_n": published.n,
        "published_note": published.note,
        "seeds": ";".join(f"{seed}={value}" for seed, value in values.items()),
        "runs": ";".join(run.run for run in cell.runs if run.run),
    }
    if any(other.by for other in results.cells.values()):
        record["by"] = "; ".join(cell.by)
    if spec.reproductions:
        others = cell.reproduced or Published()
        record |= {f"reproduced_{key}": getattr(others, key) for key in ("mean", "std", "n", "note", "seeds")}
    return record | (differences(cell) if show == "difference" else {})


def _processors(cell: CellResult) -> str:
    """The type of processor of all runs, or of each seed if there are several."""
    by_seed = {run.seed: run.processor for run in cell.runs if run.value is not None}
    if len(set(by_seed.values())) > 1:
        return "; ".join(f"{seed}={processor}" for seed, processor in by_seed.items())
    return next(iter(by_seed.values()), "")


def differences(cell: CellResult) -> dict[str, object]:
    """The difference to the base row, measured and published."""
    found = cell.difference
    return {
        "base": cell.base.row.key if cell.base else "",
        **limits("difference", found),
        "difference_n": found.n if found else 0,
        **limits("published_difference", cell.published_difference),
    }


def limits(name: str, found: Difference | None) -> dict[str, object]:
    """A difference with its interval, as three columns."""
    low, high = (found.interval if found else None) or (None, None)
    values = {name: found.mean if found else None, f"{name}_low": low, f"{name}_high": high}
    return {key: rounded(value) for key, value in values.items()}


def rounded(value: float | None, otherwise: str = "") -> float | str:
    """Six digits after the point: more than any test set resolves, and free of rounding noise."""
    return otherwise if value is None else round(value, 6)
