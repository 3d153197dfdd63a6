"""Which tables the command line asks for, and their runs: seeds, chosen values, settings of all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.cli.arguments import positive
from benchmark.cli.launching import settings_of_runs
from benchmark.errors import ConfigError, nearest
from benchmark.experiments.plan import Cells, plan
from benchmark.experiments.spec import TableSpec, find_specs, spec_called
from benchmark.experiments.tuning import TunedFolder

if TYPE_CHECKING:
    from benchmark.analyses.registry import PaperTable

TABLE_OPTIONS = {
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


def command(words: str, values: Mapping[str, str]) -> str:
    """The command line of ``words`` with what was said of seeds, results and chosen values."""
    said = [f"{key}={values[key]}" for key in ("seeds", "results", "tuned") if key in values]
    return " ".join(["python -m benchmark", words, *said])


def planned(
    whole: TableSpec,
    part: TableSpec,
    values: Mapping[str, str],
    preset: str,
    extra: Mapping[str, Any] | None = None,
) -> Cells:
    """The cells of ``part`` of a table, with values that were chosen for the ``whole``; ``extra`` goes on top of all.

    Reads ``seeds``, ``results`` and ``tuned`` of the command line. Raises `ConfigError` as they, or the plan, do.
    """
    count = positive(values, "seeds")
    tuned = TunedFolder.of(values.get("tuned"), Path(values.get("results", "results")))
    seeds = None if count is None else range(count)
    return plan(part, preset, seeds, extra, tuned.load(whole, preset))


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
    from benchmark.analyses.registry import PAPER_TABLES

    if any(key in values for key in ("name", "rows", "columns")):
        return []
    paper, number = values.get("paper"), positive(values, "table")
    return [made for made in PAPER_TABLES if paper in (None, made.paper) and number in (None, made.table)]


def plans_of(values: Mapping[str, str], preset: str) -> list[tuple[TableSpec, Cells]]:
    """The tables asked for, cut to the rows and columns asked for, with their runs: tuned where something was tuned.

    Where several tables fit, those that lack the preset, a row or a column are left out, as long as one is left.
    """
    try:
        tables = _having(tables_of(values), values, preset)
    except ConfigError:
        if not analyses_of(values):
            raise
        tables = []
    return cut_and_planned(tables, values, preset)


def cut_and_planned(
    tables: Sequence[TableSpec], values: Mapping[str, str], preset: str
) -> list[tuple[TableSpec, Cells]]:
    """The ``tables``, cut to the rows and columns asked for, with their runs."""
    parts = [(whole, _cut(whole, values)) for whole in tables]
    return [(part, planned(whole, part, values, preset, settings_of_runs(values))) for whole, part in parts]
