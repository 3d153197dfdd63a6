"""``python -m benchmark table``: plan, run what is missing, write the tables and the report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from benchmark.cli.launching import (
    Plans,
    find_analyses,
    in_words,
    plans_of,
    run_missing,
    run_settings,
    track_files,
)
from benchmark.cli.options import LaunchOptions, ValuesOption, parse
from benchmark.cli.report import report_of_all
from benchmark.errors import ConfigError, StorageError, wrong
from benchmark.experiments.metrics import Show
from benchmark.experiments.plan import Cells, unique_runs
from benchmark.experiments.selection import TableQuery, plan_tables
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.launch.progress import say
from benchmark.papers.registry import PaperTable, find
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

if TYPE_CHECKING:
    from benchmark.reports.results import TableResults
    from benchmark.reports.tables import Table


OWN = "own"
"""The base of ``show=difference`` that stands for every other row of each own row."""


class TableOptions(TableQuery, LaunchOptions, ValuesOption):
    """Options of the command."""

    show: Show = Field("both", description="numbers in the table; difference: to the base row, seed by seed")
    base: str | None = Field(
        None,
        title="KEY",
        description="base row of show=difference; own: every own row minus every other row; if left out: FedAvg, or "
        "the row most like it",
    )
    out: Path | None = Field(
        None,
        description="folder of the tables; if left out: tables/PRESET in the results folder, where a table that rows= "
        "or columns= cut is called NAME_part",
    )


def main(words: Sequence[str]) -> int:
    """Plan, launch, write tables and report; exit code 0, 1 (a run failed) or 130 (stopped)."""
    return make_tables(parse(words, "table", TableOptions))[0]


def check_show(specs: Sequence[TableSpec], show: Show, base: str | None = None) -> None:
    """Raise `ConfigError` if numbers are asked for that no table has, or a base row that one of them lacks."""
    if show == "published" and specs and not any(spec.published for spec in specs):
        names = ", ".join(spec.name for spec in specs)
        raise ConfigError(
            wrong("show", show, f"measured, difference or both: {names} has no published numbers")
        )
    if base is not None and show != "difference":
        raise ConfigError(wrong("show", show, "difference, because base= is given"))
    for spec in specs if base is not None else ():
        keys = [row.key for row in spec.rows]
        if base not in keys and not (base == OWN and any(row.own for row in spec.rows)):
            raise ConfigError(wrong("base", base, f"a row of {spec.name}: {', '.join(keys)}", known=keys))


def make_tables(options: TableOptions) -> tuple[int, list[TableResults]]:
    """As the command: its exit code, and the results of the tables that are made of runs."""
    plans, analyses = plans_of(options, options), find_analyses(options)
    check_show([spec for spec, _ in plans], options.show, options.base)
    from benchmark.reports import collect, write

    if options.values is not None:
        return 0, _from_values(plans, options, options.values)
    index = RunIndex(ResultsFolder(options.results, options.stale).open())
    folder = _folder(options)
    needed = [*plans, *_read_by(analyses, options, index)]
    written: list[tuple[Table, str]] = []
    results: list[TableResults] = []

    def write_tables() -> None:
        """Write the tables from the runs that have ended so far."""
        index.refresh(unique_runs([cells for _, cells in plans]))
        results[:] = [collect.collect(spec, options.preset, cells, index) for spec, cells in plans]
        for (spec, cells), result in zip(plans, results, strict=True):
            table = _laid_out(result, options)
            written.append((table, f"{spec.name}: {_summary(index, cells)}; {write.write(table, folder)}"))

    def seed_ended(seed: int) -> None:
        try:
            write_tables()
            say(f"all runs of seed {seed} have ended; tables with the seeds so far: {folder}/")
        except StorageError as error:
            say(f"warning: tables are not written before all seeds have ended: {error}")
        written.clear()

    with run_missing(options, index, needed, seed_ended=seed_ended) as code:
        write_tables()
        for made in analyses if code != 130 else ():
            built = find(made.analysis).from_query(options)
            where = write.write(built, folder)
            written.append((built, f"{built.name}: by `analyse {made.analysis}`; {where}"))
        for table, _ in written if sys.stdout.isatty() and code != 130 else ():
            write.show(table)
        for _, where in written:
            print(where)
        places = [folder / table.name for table, _ in written]
        track_files(options, index.results.root, "table", options.preset, places)
    if code != 130:
        print(f"report: {report_of_all(options, index, [table.name for table, _ in written])}")
    return code, results


def _from_values(plans: Plans, options: TableOptions, values: Path) -> list[TableResults]:
    """Write the tables from those in the folder ``values``."""
    from benchmark.reports import collect, write

    results = [collect.collect_values(spec, options.preset, cells, values) for spec, cells in plans]
    for result in results:
        table = _laid_out(result, options)
        if sys.stdout.isatty():
            write.show(table)
        print(f"{table.name}: {write.write(table, _folder(options))}")
    return results


def _folder(options: TableOptions) -> Path:
    return options.out or options.results / "tables" / options.preset


def _laid_out(results: TableResults, options: TableOptions) -> Table:
    from benchmark.reports import claims, layout

    spec, own = results.spec, options.base == OWN
    table = claims.as_table(results) if own else layout.as_table(results, options.show, options.base)
    # The whole table may lie in the folder of the preset.
    return replace(table, name=spec.name + "_part" * (spec.is_part and options.out is None))


def _read_by(made: Sequence[PaperTable], options: TableOptions, index: RunIndex) -> Plans:
    """The columns of other tables that analyses read."""
    plans: list[tuple[TableSpec, Cells]] = []
    for name, column in (analysis.runs_of for analysis in made if analysis.runs_of is not None):
        part = options.model_copy(update={"columns": column})
        plans += plan_tables([spec_called(name)], part, run_settings(index.results, options))
    return plans


def _summary(index: RunIndex, cells: Cells) -> str:
    counts = Counter(index.state(run.key) for cell in cells.values() for run in cell.runs)
    gaps = Counter(cell.state for cell in cells.values() if cell.state != "ok")
    return ", ".join(
        [
            in_words(counts) or "no runs",
            *(f"{number} cells {state}" for state, number in sorted(gaps.items())),
        ]
    )
