"""``python -m benchmark table`` and ``status``: plan, run what is missing, write the tables."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.table import Table as TextTable

from benchmark.analyses.registry import PAPER_TABLES, PaperTable
from benchmark.commands.arguments import positive, preset_of, read
from benchmark.commands.launching import HOW, run_missing, settings_of_runs, turn
from benchmark.commands.planning import planned
from benchmark.commands.tracking import WORDS, publication, start
from benchmark.errors import ConfigError, nearest
from benchmark.reports.collect import collect, run_state
from benchmark.reports.tables import write
from benchmark.runs.plan import Cells, check, unique_runs
from benchmark.runs.spec import TableSpec, find_specs, spec_called
from benchmark.runs.store import Results

WHAT = {
    "paper": "fedld|fedsdc|feddiverse|fedmr",
    "table": "NUMBER",
    "name": "FILE of conf/table",
    "preset": "quick|small|paper",
    "rows": "KEY,PATTERN*,...",
    "columns": "KEY,PATTERN*,...",
    "seeds": "NUMBER",
    "results": "FOLDER",
    "tuned": "FOLDER|off",
}
OUT = {"out": "FOLDER"}


def tables_of(values: Mapping[str, str]) -> list[TableSpec]:
    """The tables asked for, whole."""
    number = positive(values, "table")
    if "name" in values:
        return [spec_called(values["name"])]
    return find_specs(values.get("paper"), number)


def matching(keys: Sequence[str], patterns: str | None, what: str, table: str) -> list[str]:
    """Those of ``keys`` that fit one of the comma-separated ``patterns``; all without any.

    Raises `ConfigError` for a pattern that fits nothing; ``what`` and ``table`` are for its message.
    """
    if patterns is None:
        return list(keys)
    wanted = patterns.split(",")
    for pattern in wanted:
        if not any(fnmatchcase(key, pattern) for key in keys):
            raise ConfigError(
                f"{what}: {pattern!r} fits none of table {table}.{nearest(pattern, keys)} It has: {', '.join(keys)}."
            )
    return [key for key in keys if any(fnmatchcase(key, pattern) for pattern in wanted)]


def _cut(spec: TableSpec, values: Mapping[str, str]) -> TableSpec:
    if "rows" not in values and "columns" not in values:
        return spec
    rows = matching([row.key for row in spec.rows], values.get("rows"), "rows", spec.name)
    columns = matching([column.key for column in spec.columns], values.get("columns"), "columns", spec.name)
    return spec.cut(rows, columns)


def _having(tables: list[TableSpec], values: Mapping[str, str], preset: str) -> list[TableSpec]:
    """Those with the preset, rows and columns asked for; if there is none, the error of the first."""
    kept, first = [], None
    for spec in tables:
        try:
            spec.preset(preset)
            _cut(spec, values)
            kept.append(spec)
        except ConfigError as error:
            first = first or error
    if first is not None and not kept:
        raise first
    return kept


def analyses_of(values: Mapping[str, str]) -> list[PaperTable]:
    """The tables asked for that an analysis makes; none where a file, rows or columns are named."""
    if any(key in values for key in ("name", "rows", "columns")):
        return []
    paper, number = values.get("paper"), positive(values, "table")
    return [made for made in PAPER_TABLES if paper in (None, made.paper) and number in (None, made.table)]


def _plans(values: Mapping[str, str], preset: str) -> list[tuple[TableSpec, Cells]]:
    """The tables asked for, cut to the rows and columns asked for, with their runs: tuned where something was tuned.

    Where several tables fit, those that lack the preset, a row or a column are left out, as long as one is left.
    """
    try:
        tables = _having(tables_of(values), values, preset)
    except ConfigError:
        if not analyses_of(values):
            raise
        tables = []
    return _planned(tables, values, preset)


def _planned(
    tables: Sequence[TableSpec], values: Mapping[str, str], preset: str
) -> list[tuple[TableSpec, Cells]]:
    parts = [(whole, _cut(whole, values)) for whole in tables]
    return [(part, planned(whole, part, values, preset, settings_of_runs(values))) for whole, part in parts]


def table(words: Sequence[str]) -> int:
    """Plan, launch, write; exit code 0, 1 (a run failed) or 130 (stopped)."""
    values = read(words, {**WHAT, **HOW, **WORDS, **OUT}, "table")
    preset = preset_of(values)
    plans, analyses = _plans(values, preset), analyses_of(values)
    results = Results(Path(values.get("results", "results"))).open()
    read_too = _read_by(analyses, values, preset)
    runs = unique_runs([cells for _, cells in [*plans, *read_too]])

    def check_all() -> None:
        for spec, cells in [*plans, *read_too]:
            check(spec, cells)

    with start(values, results.root, [*plans, *read_too]) as tracker:
        with turn(values, results):
            code = run_missing(values, results, runs, check_all)
        folder = Path(values.get("out") or results.root / "tables" / preset)
        for spec, cells in plans:
            built = collect(spec, preset, cells, results)
            paths = write(built, folder)
            print(f"{spec.name}: {_summary(results, cells)}; {paths[0].with_suffix('')}.{{csv,tex,md}}")
            tracker.publish(publication("table", spec.name, preset, folder, [spec.paper]))
        for made in analyses if code != 130 else ():
            name = _analyse(made, values, folder)
            tracker.publish(publication("table", name, preset, folder, [made.paper]))
    return code


def _read_by(
    analyses: Sequence[PaperTable], values: Mapping[str, str], preset: str
) -> list[tuple[TableSpec, Cells]]:
    """What the analyses read: the runs of single columns of other tables."""
    found = []
    for made in analyses:
        if made.runs_of is not None:
            name, column = made.runs_of
            found += _planned([spec_called(name)], {**values, "columns": column}, preset)
    return found


def _analyse(made: PaperTable, values: Mapping[str, str], folder: Path) -> str:
    """Compute and write a table that an analysis makes; its name."""
    from benchmark.analyses.registry import find  # with all analyses, and PyTorch
    from benchmark.commands.analyse import write as write_report

    chosen = find(made.analysis)
    report = chosen.compute({key: values[key] for key in chosen.keys if key in values})
    print(f"{report.name}: by `analyse {made.analysis}`; {write_report(report, folder)}")
    return report.name


def _counts(results: Results, cells: Cells) -> Counter[str]:
    counts: Counter[str] = Counter()
    for cell in cells.values():
        if cell.state != "ok":
            counts[cell.state] += 1
        for run in cell.runs:
            folder = results.run(run.key)
            counts[run_state(folder, folder.status())] += 1
    return counts


def _summary(results: Results, cells: Cells) -> str:
    counts = _counts(results, cells)
    states = [
        f"{counts[state]} {state}"
        for state in ("done", "running", "failed", "diverged", "missing")
        if counts[state]
    ]
    gaps = [f"{number} cells {state}" for state, number in sorted(counts.items()) if " " in state]
    return ", ".join([*(states or ["no runs"]), *gaps])


def status(words: Sequence[str]) -> int:
    """How many runs of each table are done, running, failed, diverged, missing."""
    values = read(words, WHAT, "status")
    preset = preset_of(values)
    plans = _plans(values, preset)
    results = Results(Path(values.get("results", "results"))).existing()
    view = TextTable(title=f"preset {preset}, {results.root}/runs")
    states = ("done", "running", "failed", "diverged", "missing")
    view.add_column("table")
    for state in states:
        view.add_column(state, justify="right")
    view.add_column("cells without runs")
    for spec, cells in plans:
        counts = _counts(results, cells)
        gaps = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()) if " " in state)
        view.add_row(spec.name, *(str(counts[state]) for state in states), gaps)
    Console(width=None if sys.stdout.isatty() else 140).print(view)
    return 0
