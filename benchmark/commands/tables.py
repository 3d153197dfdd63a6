"""Tables: plan, run what is missing, write them and the report."""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from benchmark.commands.launching import (
    Plans,
    find_analyses,
    in_words,
    plans_of,
    run_missing,
    run_settings,
    track_files,
)
from benchmark.commands.options import LaunchOptions
from benchmark.commands.report import write_report
from benchmark.commands.results import Table
from benchmark.errors import ConfigError, StorageError, validate, wrong
from benchmark.experiments.metrics import Show
from benchmark.experiments.plan import Cells, unique_runs
from benchmark.experiments.selection import TableQuery, plan_table
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.launch.progress import say
from benchmark.papers import registry
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

if TYPE_CHECKING:
    from benchmark.reports.results import TableResults
    from benchmark.reports.tables import Table as PrintedTable

OWN = "own"
"""The base of ``show=difference`` that stands for every other row of each own row."""

RANKED = {"leaderboard": "leaderboard", "leaderboard_tuned": "leaderboard"}
"""Tables beside which an analysis is written, unless tuned=off: file of conf/table -> analysis."""


class TableOptions(TableQuery, LaunchOptions):
    """Options of `make_tables`."""

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
    curves: bool = Field(False, description="also write how the runs of each table come on over their rounds")
    freeze: str | None = Field(
        None,
        title="YYYY-MM-DD",
        description="with name=leaderboard_tuned: write the version of this date to leaderboard/ of the results folder",
    )

    def check(self) -> None:
        """Refuse wrong settings."""
        super().check()
        fits = self.name in RANKED and self.tuned != "off" and self.seeds is None
        if self.freeze is not None and not fits:
            expected = "name=leaderboard_tuned beside it, and neither tuned=off nor seeds"
            raise ConfigError(wrong("freeze", self.freeze, expected))


def make_tables(options: TableOptions) -> tuple[int, list[Table]]:
    """Write the selected tables and the report; the exit code, and the tables."""
    plans = plans_of(options, options)
    specs = [spec for spec, _ in plans]
    check_show(specs, options.show, options.base)
    computed = find_analyses(options)
    if options.tuned != "off":
        computed |= {RANKED[spec.name]: None for spec in specs if spec.name in RANKED}
    analyses = [(name, _options_of(name, options)) for name in computed]
    if options.curves:
        analyses += [
            ("curves", _options_of("curves", options, name=s.name)) for s in specs if not s.metric_format.of
        ]
    index, folder = RunIndex(ResultsFolder(options.results, options.stale).open()), _folder(options)
    from benchmark.reports import write

    def seed_ended(seed: int) -> None:
        try:
            _write(plans, options, index)
            say(f"all runs of seed {seed} have ended; tables with the seeds so far: {folder}/")
        except StorageError as error:
            say(f"warning: tables are not written before all seeds have ended: {error}")

    needed = [*plans, *_read_by(computed.values(), options, index)]
    with run_missing(options, index, needed, seed_ended=seed_ended) as code:
        made, said = _write(plans, options, index)
        for name, of_analysis in analyses if code != 130 else ():
            made.append(Table(registry.find(name).compute(of_analysis)))
            said.append(f"{made[-1].name}: {write.write(made[-1].printed, folder)}")
        if sys.stdout.isatty() and code != 130:
            for one in made:
                write.show(one.printed, with_notes=one.measured is None)
        print("\n".join(said))
        names = [one.name for one in made]
        track_files(options, index.results.root, "table", options.preset, [folder / name for name in names])
    if code != 130:
        # Broken files were named when the tables were planned.
        with contextlib.redirect_stderr(io.StringIO()):
            path = write_report(options, index, made=names)
        print(f"report: {path}")
    return code, made


def check_show(specs: Sequence[TableSpec], show: Show, base: str | None = None) -> None:
    """Raise `ConfigError` if numbers are asked for that no table has, or a base row that one of them lacks."""
    if show == "published" and specs and not any(spec.published for spec in specs):
        names = ", ".join(spec.name for spec in specs)
        expected = f"measured, difference or both: {names} has no published numbers"
        raise ConfigError(wrong("show", show, expected))
    if base is not None and show != "difference":
        raise ConfigError(wrong("show", show, "difference, because base= is given"))
    for spec in specs if base is not None else ():
        keys = [row.key for row in spec.rows]
        if base not in keys and not (base == OWN and any(row.own for row in spec.rows)):
            raise ConfigError(wrong("base", base, f"a row of {spec.name}: {', '.join(keys)}", known=keys))


def _options_of(analysis: str, options: TableOptions, **more: object) -> object:
    """The options of an analysis, as far as those of the tables say them."""
    kind = registry.find(analysis).options
    shared = {key: getattr(options, key) for key in kind.model_fields if key in TableOptions.model_fields}
    return validate(
        kind, {key: value for key, value in shared.items() if value is not None and key != "name"} | more
    )


def _write(plans: Plans, options: TableOptions, index: RunIndex) -> tuple[list[Table], list[str]]:
    """Write the tables from the runs that have ended so far; a line about each."""
    from benchmark.reports import collect, write

    index.refresh(unique_runs([cells for _, cells in plans]))
    made, said = [], []
    for spec, cells in plans:
        results = collect.collect(spec, options.preset, cells, index)
        made.append(Table(_laid_out(results, options), results))
        where = write.write(made[-1].printed, _folder(options))
        said.append(f"{spec.name}: {_summary(index, cells)}; {where}")
    return made, said


def _folder(options: TableOptions) -> Path:
    return options.out or options.results / "tables" / options.preset


def _laid_out(results: TableResults, options: TableOptions) -> PrintedTable:
    from benchmark.reports import claims, layout

    spec, own = results.spec, options.base == OWN
    table = claims.as_table(results) if own else layout.as_table(results, options.show, options.base)
    # The whole table may lie in the folder of the preset.
    return replace(table, name=spec.name + "_part" * (spec.is_part and options.out is None))


def _read_by(parts: Iterable[tuple[str, str] | None], options: TableOptions, index: RunIndex) -> Plans:
    """The columns of other tables that analyses read, as of `find_analyses`."""
    plans: list[tuple[TableSpec, Cells]] = []
    for name, column in filter(None, parts):
        part = options.model_copy(update={"columns": column})
        plans += [plan_table(spec_called(name), part, run_settings(index.results, options))]
    return plans


def _summary(index: RunIndex, cells: Cells) -> str:
    counts = Counter(index.state(run.key) for cell in cells.values() for run in cell.runs)
    gaps = Counter(cell.state for cell in cells.values() if cell.state != "ok")
    told = [f"{number} cell{'s' * (number > 1)} {state}" for state, number in sorted(gaps.items())]
    if "not tuned" in gaps:
        told.append("`tune` chooses values first")
    return ", ".join([in_words(counts) or "no runs", *told])
