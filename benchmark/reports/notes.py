"""The words around a table: caption, legend, agreement of orders, gaps, preset, sources. Plain text, no markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.experiments.plan import TunedValues
from benchmark.experiments.spec import Column, TableSpec
from benchmark.reports.statistics import ALPHA, Tau

if TYPE_CHECKING:
    from benchmark.reports.tables import Table, TableCell

MAX_COLUMNS = 7
"""Widest block of columns that is still readable on a page."""


@dataclass(frozen=True)
class Note:
    """A paragraph (``lines`` of one) or list under a table, with its heading. ``brief`` ones also go to LaTeX."""

    heading: str
    lines: tuple[str, ...]
    brief: bool = True


@dataclass(frozen=True)
class Block:
    """Neighbouring columns that are printed as one table."""

    columns: tuple[Column, ...]

    @property
    def groups(self) -> list[tuple[str | None, int]]:
        """(heading, number of columns) of the groups, from left to right."""
        found: list[tuple[str | None, int]] = []
        for column in self.columns:
            if found and found[-1][0] == column.group:
                found[-1] = (column.group, found[-1][1] + 1)
            else:
                found.append((column.group, 1))
        return found

    @property
    def title(self) -> str:
        """The headings of the groups, as far as there are any."""
        return ", ".join(group for group, _ in self.groups if group)


def blocks(table: Table) -> list[Block]:
    """Cut the columns into blocks: whole groups, as many as fit into `MAX_COLUMNS`; a group without name can be cut."""
    units: list[tuple[Column, ...]] = []
    for group, size in Block(table.spec.columns).groups:
        start = sum(map(len, units))
        columns = table.spec.columns[start : start + size]
        if group is not None:
            units.append(columns)
        else:
            units += [columns[i : i + MAX_COLUMNS] for i in range(0, size, MAX_COLUMNS)]
    packed: list[tuple[Column, ...]] = []
    for unit in units:
        if packed and len(packed[-1]) + len(unit) <= MAX_COLUMNS:
            packed[-1] += unit
        else:
            packed.append(unit)
    return [Block(columns) for columns in packed]


def column_label(table: Table, column: Column) -> str:
    """Label of a column; where the test set chooses the round, the label says so."""
    return f"{column.label} (best on test)" if table.spec.round.rule == "best_test" else column.label


def full_label(column: Column) -> str:
    """Label with its group, for text."""
    return f"{column.group} {column.label}" if column.group else column.label


def caption(table: Table, published: str) -> str:
    """One paragraph: metric, round, spread, preset; ``published`` says where the paper's numbers stand."""
    spec = table.spec
    unit = f" in {spec.metric_format.unit}" if spec.metric_format.unit else ""
    parts = [
        spec.caption,
        f"{spec.metric_format.label}{unit}, {_round(spec)}, {_spread(table)}, preset {table.preset}.",
    ]
    if table.has_published:
        parts.append(published)
    return " ".join(" ".join(part.split()) for part in parts if part)


def _round(spec: TableSpec) -> str:
    if spec.reference_row is None:
        return spec.round.phrase
    return f"compared seed by seed with {spec.row(spec.reference_row).label} in the evaluated rounds"


def _spread(table: Table) -> str:
    if table.num_seeds == 0:
        return "no run planned"
    if table.num_seeds == 1:
        return "one seed, so without spread"
    return f"mean ± sample standard deviation (divisor n - 1) over {table.num_seeds} seeds"


def notes(table: Table) -> list[Note]:
    """All paragraphs under a table, in order."""
    found = [
        Note("Legend", tuple(_legend(table))),
        Note("Agreement with the published order", tuple(_agreement(table))),
        Note("Gaps", tuple(_gaps(table))),
        Note("Preset", tuple(_preset(table))),
        Note("Hyper-parameters", tuple(_hyperparameters(table))),
        Note("Where the settings come from", tuple(_sources(table)), brief=False),
        Note("Remarks on the published numbers", tuple(_published_remarks(table)), brief=False),
    ]
    return [note for note in found if any(note.lines)]


def _legend(table: Table) -> list[str]:
    best = "highest" if table.spec.metric_format.higher_is_better else "lowest"
    lines = [
        f"Bold: best ({best}) mean of the column; underlined: second best; equal printed means share the mark. "
        "Only cells with all seeds done are compared.",
        "†: not significantly worse than the best (one-sided t-test, paired over seeds, "
        f"p ≥ {ALPHA:g}, not corrected for the number of comparisons).{_power(table)}",
    ]
    if any(row.own for row in table.spec.rows):
        lines.append("(own): proposed by the paper itself.")
    if any(column.average_of for column in table.spec.columns):
        lines.append("Averages are taken seed by seed and then summarised like any other cell.")
    return lines


def _power(table: Table) -> str:
    n = table.num_seeds
    if n < 2:
        return " The test needs at least two seeds."
    return (
        f" With n = {n} the test sees large and steady gaps only: † says little about being equal."
        if n < 10
        else ""
    )


def _agreement(table: Table) -> list[str]:
    if not table.has_published:
        return []
    measured = [column for column in table.spec.columns if table.taus[column.key].n > 1]
    if not measured:
        return [
            "Kendall's tau: no column has two methods with both a complete measurement and a published number."
        ]
    taus = ", ".join(f"{full_label(column)} {_tau(table.taus[column.key])}" for column in measured)
    averages = "" if all(not column.average_of for column in table.spec.columns) else ", averages left out"
    overall = table.overall
    number = "undefined" if overall.value is None else f"{overall.value:+.2f}"
    columns = f"{overall.n} column{'s' if overall.n != 1 else ''}"
    return [f"Kendall's tau-b (methods compared): {taus}. Mean over {columns}{averages}: {number}."]


def _tau(tau: Tau) -> str:
    return f"{'undefined (all tied)' if tau.value is None else format(tau.value, '+.2f')} ({tau.n})"


def _gaps(table: Table) -> list[str]:
    """Cells without all their seeds: first by reason and row, then rows with the same columns together."""
    by_reason: dict[tuple[str, str], list[Column]] = {}
    for row in table.spec.rows:
        for column in table.spec.columns:
            for reason in _reasons(table.cell(row, column)):
                by_reason.setdefault((reason, row.key), []).append(column)
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (reason, row_key), columns in by_reason.items():
        where = tuple(column.key for column in columns)
        merged.setdefault((reason, where), []).append(table.spec.row(row_key).label)
    lines = []
    for (reason, where), rows in merged.items():
        rows_text = "all rows" if len(rows) == len(table.spec.rows) else ", ".join(rows)
        lines.append(f"{reason}: {rows_text} ({_labels(table.spec, where)})")
    return sorted(lines, key=lambda line: line.split(":")[0]) or ["none: every cell has all its seeds."]


def _reasons(cell: TableCell) -> list[str]:
    if cell.state != "ok":
        return [cell.state]
    if not cell.runs:
        return ["missing"]
    if cell.column.average_of:
        return []  # its parts are listed
    known = ("not reached", "missing", "running", "failed", "diverged")
    troubles = {status: cell.seeds(status) for status in known}
    return [
        f"{status} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})"
        for status, seeds in troubles.items()
        if seeds
    ]


def _labels(spec: TableSpec, keys: Sequence[str]) -> str:
    """Names of columns; a whole group (its average aside) goes by its heading, everything by "all columns"."""
    if {column.key for column in spec.run_columns} <= set(keys):
        return "all columns"
    names: list[str] = []
    for key in keys:
        column = spec.column(key)
        group = {other.key for other in spec.run_columns if other.group == column.group}
        whole = column.group is not None and len(group) > 1 and group <= set(keys)
        name = column.group if whole and column.group else full_label(column)
        if name not in names:
            names.append(name)
    return ", ".join(names)


def _preset(table: Table) -> list[str]:
    if table.preset == "paper":
        first = "Data, models, budgets and settings are the paper's as far as it states them."
    else:
        first = (
            f"The numbers of preset {table.preset} are not the paper's: other data or less of them, a smaller model "
            "and a smaller budget, through the same partition and method code."
        )
    rows = [
        f"{row.label}: {' '.join(row.presets[table.preset].note.split())}"
        for row in table.spec.rows
        if table.preset in row.presets and row.presets[table.preset].note
    ]
    return [first, *_grouped(table, table.notes.items()), *rows]


def _hyperparameters(table: Table) -> list[str]:
    """What the table's file says, and what was tuned."""
    text = " ".join(table.spec.hyperparameters.split())
    tuned = tuning_lines(table.spec, table.chosen)
    if not tuned:
        return [f"{text} Nothing was tuned here.".strip()]
    return [*([f"{text} What follows stands in place of these."] if text else []), *tuned]


def tuning_lines(spec: TableSpec, chosen_values: Mapping[tuple[str, str], TunedValues]) -> list[str]:
    """Which values were chosen by grid search: one line for each way and file, row by row in it."""
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for (row, column), chosen in chosen_values.items():
        how = (
            f"Chosen by grid search on a validation split of {100 * chosen.split:g} % of every client's training data, "
            f"{chosen.seeds} seed{'s' if chosen.seeds > 1 else ''}{_by_mean(spec, chosen.columns)} ({chosen.source})"
        )
        values = ", ".join(f"{short_name(key)} {shown_value(value)}" for key, value in chosen.values.items())
        label = spec.row(row).label
        found.setdefault(how, {}).setdefault(label, {}).setdefault(values, []).append(column)
    lines = []
    for how, rows in found.items():
        parts = [
            f"{label}: " + "; ".join(f"{values} ({_labels(spec, keys)})" for values, keys in by_value.items())
            for label, by_value in rows.items()
        ]
        lines.append(f"{how}: {'. '.join(parts)}.")
    return lines


def _by_mean(spec: TableSpec, keys: Sequence[str]) -> str:
    """The columns that a shared choice rests on; the table may have been cut to others."""
    if not keys:
        return ""
    known = {column.key: full_label(column) for column in spec.columns}
    return f", by the mean over {', '.join(known.get(key, key) for key in keys)}"


def short_name(key: str) -> str:
    """The name of a setting in a sentence: ``mu`` for ``method.client.fedprox.mu``, ``server lr`` for the server's."""
    side = "server " if key.startswith("method.server.") else "client " if key.startswith("train.") else ""
    return side + key.rpartition(".")[2]


def shown_value(value: object) -> str:
    """A value in a sentence, numbers without trailing zeros."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _sources(table: Table) -> list[str]:
    return _grouped(table, [(column.key, " ".join(column.source.split())) for column in table.spec.columns])


def _grouped(table: Table, texts: Iterable[tuple[str, str]]) -> list[str]:
    """``columns: text``, columns with the same text together."""
    found: dict[str, list[str]] = {}
    for key, text in texts:
        if text:
            found.setdefault(text, []).append(key)
    return [f"{_labels(table.spec, keys)}: {text}" for text, keys in found.items()]


def _published_remarks(table: Table) -> list[str]:
    found: dict[str, list[TableCell]] = {}
    for cell in table.cells.values():
        if cell.published and cell.published.note:
            found.setdefault(cell.published.note, []).append(cell)
    return [f"{_cells(cells)}: {text}" for text, cells in found.items()]


def _cells(cells: Sequence[TableCell]) -> str:
    if len(cells) > 3:
        return f"{len(cells)} cells"
    return ", ".join(f"{cell.row.label} / {full_label(cell.column)}" for cell in cells)
