"""The notes under a table: legend, agreement of orders, gaps, preset, sources. Plain text without markup."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from benchmark.experiments.parts import Column
from benchmark.experiments.plan import TunedValues
from benchmark.experiments.spec import TableSpec
from benchmark.reports.results import CellResult, TableResults, gathered
from benchmark.reports.statistics import ALPHA
from benchmark.reports.tables import Note


def notes_of(results: TableResults) -> list[Note]:
    """All notes of a table, in order."""
    spec = results.spec
    sources = [(column.key, " ".join(column.source.split())) for column in spec.columns]
    notes = [
        Note((" ".join(spec.caption.split()),), "Setting"),
        Note(tuple(_legend(results)), "Legend"),
        Note(tuple(_agreement(results)), "Agreement with the published order"),
        Note(tuple(_by_reason(results, _gaps) or ["none: every cell has all its seeds."]), "Gaps"),
        Note(tuple(_code(results)), "Code"),
        Note(tuple(_by_reason(results, _run_by)), "Imported runs"),
        Note(tuple(_preset(results)), "Preset"),
        Note(tuple(_hyperparameters(results)), "Hyper-parameters"),
        Note(tuple(_grouped(spec, sources)), "Where the settings come from"),
        Note(tuple(_published_remarks(results)), "Remarks on the published numbers"),
    ]
    return [note for note in notes if any(note.lines)]


# Names -----------------------------------------------------------------------------------------------------------


def full_label(column: Column) -> str:
    """Label of a column with its group."""
    return f"{column.group} {column.label}" if column.group else column.label


def cell_label(spec: TableSpec, row: str, column: str) -> str:
    """``FedAvg, FMNIST IID``: the labels of a row and a column."""
    return f"{spec.row(row).label}, {full_label(spec.column(column))}"


def short_name(key: str) -> str:
    """The name of a setting in a sentence: ``mu`` for ``method.client.fedprox.mu``, ``server lr`` for the server's."""
    side = "server " if key.startswith("method.server.") else "client " if key.startswith("train.") else ""
    return side + key.rpartition(".")[2]


def shown_value(value: object) -> str:
    """A value in a sentence, numbers without trailing zeros."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _plural(number: int) -> str:
    return "" if number == 1 else "s"


def _labels(spec: TableSpec, keys: Sequence[str]) -> str:
    """Names of columns. A whole group (without its average) goes by its heading, and all columns by "all columns"."""
    if {column.key for column in spec.run_columns} <= set(keys):
        return "all columns"
    members = gathered((column.group, column.key) for column in spec.run_columns if column.group)
    whole = {group for group, several in members.items() if len(several) > 1 and set(several) <= set(keys)}
    columns = [spec.column(key) for key in keys]
    names = (column.group if column.group in whole else full_label(column) for column in columns)
    return ", ".join(dict.fromkeys(map(str, names)))


def _grouped(spec: TableSpec, texts: Iterable[tuple[str, str]]) -> list[str]:
    """``columns: text`` for pairs (column, text), with the columns of the same text together."""
    columns = gathered((text, key) for key, text in texts if text)
    return [f"{_labels(spec, keys)}: {text}" for text, keys in columns.items()]


# Notes -----------------------------------------------------------------------------------------------------------


def _legend(results: TableResults) -> list[str]:
    spec = results.spec
    best = "highest" if spec.metric_format.higher_is_better else "lowest"
    power, n = "", results.num_seeds
    if n < 2:
        power = " The test needs at least two seeds."
    elif n < 10:
        power = f" With n = {n} the test sees large and steady gaps only: † says little about being equal."
    lines = [
        f"Bold: best ({best}) mean of the column; underlined: second best; equal printed means share the mark. "
        "Only cells with all seeds done are compared.",
        "†: not significantly worse than the best (one-sided t-test, paired over seeds, "
        f"p ≥ {ALPHA:g}, not corrected for the number of comparisons).{power}",
    ]
    if any(row.own for row in spec.rows):
        lines.append(
            f"(own): {'proposed by the paper itself' if spec.published else 'what the table is about'}."
        )
    if any(column.average_of for column in spec.columns):
        lines.append("Averages are taken seed by seed and then summarised like any other cell.")
    return lines


def _agreement(results: TableResults) -> list[str]:
    spec = results.spec
    if not spec.published:
        return []
    texts, taus = [], []
    for column in spec.columns:
        tau, methods = results.agreement(column)
        if methods > 1:
            number = "undefined (all tied)" if tau is None else f"{tau:+.2f}"
            texts.append(f"{full_label(column)} {number} ({methods})")
        if tau is not None and not column.average_of:
            taus.append(tau)
    if not texts:
        text = "no column has two methods with both a complete measurement and a published number."
        return [f"Kendall's tau: {text}"]
    averages = ", averages left out" if any(column.average_of for column in spec.columns) else ""
    mean = f"{np.mean(taus):+.2f}" if taus else "undefined"
    return [
        f"Kendall's tau-b (methods compared): {', '.join(texts)}. Mean over {len(taus)} "
        f"column{_plural(len(taus))}{averages}: {mean}."
    ]


def _code(results: TableResults) -> list[str]:
    """Cells whose runs executed other code than today's or were made in another way than the rest of their column."""
    lines = [f"‡ {line}" for line in _by_reason(results, lambda cell: _with_seeds(cell, cell.differs))]
    runs = (run for cell in results.cells.values() if not cell.column.average_of for run in cell.runs)
    processors = Counter(run.processor for run in runs if run.processor)
    if len(processors) > 1:
        counts = ", ".join(f"{name} ({number})" for name, number in processors.most_common())
        what = f"{len(processors)} types of processors, so that bits may differ: {counts}."
        lines.append(f"The runs were made on {what}")
    return lines


def _by_reason(results: TableResults, reasons: Callable[[CellResult], list[str]]) -> list[str]:
    """Cells by what is to be said of them: first by reason and row, then rows with the same columns together."""
    spec = results.spec
    by_reason = gathered(
        ((reason, cell.row.label), cell.column.key)
        for cell in results.cells.values()
        for reason in reasons(cell)
    )
    merged = gathered(((reason, tuple(columns)), row) for (reason, row), columns in by_reason.items())
    lines = []
    for (reason, where), rows in merged.items():
        rows_text = "all rows" if len(rows) == len(spec.rows) else ", ".join(rows)
        lines.append(f"{reason}: {rows_text} ({_labels(spec, where)})")
    return sorted(lines, key=lambda line: line.split(":")[0])


def _gaps(cell: CellResult) -> list[str]:
    """Why the cell has not all its seeds."""
    if cell.state != "ok" or not cell.runs:
        return [cell.outcome]
    return _with_seeds(cell, cell.troubles)


def _run_by(cell: CellResult) -> list[str]:
    return [f"run by {text}" for text in _with_seeds(cell, cell.by)]


def _with_seeds(cell: CellResult, reasons: Mapping[str, Sequence[int]]) -> list[str]:
    if cell.column.average_of:
        return []  # the columns that it averages are listed
    return [
        f"{text} (seed{_plural(len(seeds))} {', '.join(map(str, seeds))})" for text, seeds in reasons.items()
    ]


def _preset(results: TableResults) -> list[str]:
    spec, preset = results.spec, results.preset
    lines = ["Data, models, budgets and settings are the paper's as far as it states them."]
    if not spec.published:  # it repeats no paper
        lines = []
    elif preset != "paper":
        lines = [
            f"The numbers of preset {preset} are not the paper's: other data or less of them, a smaller model "
            "and a smaller budget, through the same partition and method code."
        ]
    columns = [column.key for column in spec.run_columns]
    texts = [(results.stand_ins.get(key), spec.column_note(key, preset)) for key in columns]
    lines += _grouped(spec, zip(columns, ("; ".join(filter(None, pair)) for pair in texts), strict=True))
    rows = [(row.label, spec.row_note(row.key, preset)) for row in spec.rows]
    return lines + [f"{label}: {' '.join(note.split())}" for label, note in rows if note]


def _hyperparameters(results: TableResults) -> list[str]:
    text = " ".join(results.spec.hyperparameters.split())
    tuned = tuning_lines(results.spec, results.tuned)
    if not tuned:
        return [f"{text} Nothing was tuned here.".strip()]
    spec, columns = results.spec, {column.key for column in results.spec.run_columns}
    others = [
        key
        for key, cell in results.cells.items()
        if cell.runs and key[1] in columns and key not in results.tuned
    ]
    rows = gathered((_labels(spec, keys), spec.row(row).label) for row, keys in gathered(others).items())
    left = [f"{', '.join(labels)} ({which})" for which, labels in rows.items()]
    tuned += [f"Not tuned: {'; '.join(left)}."] if left else []
    return [*([f"{text} The tuned values below replace them."] if text else []), *tuned]


def tuning_lines(spec: TableSpec, tuned: Mapping[tuple[str, str], TunedValues]) -> list[str]:
    """Which values were chosen by a search: one line for each way and file, row by row in it."""
    labels = {column.key: full_label(column) for column in spec.columns}
    cells = []
    for (row, column), cell in tuned.items():
        # The columns that a shared choice rests on. The table may have been cut to others.
        shared = ", ".join(labels.get(key, key) for key in cell.columns)
        mean = f", by the mean over {shared}" if shared else ""
        how = (
            f"Chosen on a validation split of {100 * cell.split:g} % of every client's training data, "
            f"{cell.seeds} seed{_plural(cell.seeds)}{mean} ({cell.source})"
        )
        values = ", ".join(f"{short_name(key)} {shown_value(value)}" for key, value in cell.values.items())
        cells.append(((how, spec.row(row).label, values), column))
    rows = gathered((key[:2], f"{key[2]} ({_labels(spec, keys)})") for key, keys in gathered(cells).items())
    files = gathered((how, f"{label}: {'; '.join(parts)}") for (how, label), parts in rows.items())
    return [f"{how}: {'. '.join(parts)}." for how, parts in files.items()]


def _published_remarks(results: TableResults) -> list[str]:
    remarks = gathered(
        (cell.published.note, f"{cell.row.label} / {full_label(cell.column)}")
        for cell in results.cells.values()
        if cell.published and cell.published.note
    )
    return [
        f"{', '.join(labels) if len(labels) <= 3 else f'{len(labels)} cells'}: {text}"
        for text, labels in remarks.items()
    ]
