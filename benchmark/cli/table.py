"""``python -m benchmark table``: plan, run what is missing, write the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.cli.launching import launcher_lock, run_missing, run_settings
from benchmark.cli.options import LaunchOptions, parse
from benchmark.cli.planning import find_analyses, plans_of
from benchmark.cli.tracking import start, tracked_runs
from benchmark.experiments.plan import Cells, check, unique_runs
from benchmark.experiments.selection import TableQuery, plan_tables
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.launch.overview import SHOWN_STATES, RunOverview
from benchmark.runs.store import Results

if TYPE_CHECKING:
    from benchmark.analyses.registry import PaperTable


@dataclass(frozen=True, kw_only=True)
class TableOptions(TableQuery, LaunchOptions):
    """Options of the command."""

    out: Path | None = None


def main(words: Sequence[str]) -> int:
    """Plan, launch, write; exit code 0, 1 (a run failed) or 130 (stopped)."""
    options = parse(words, "table", TableOptions)
    from benchmark.reports.collect import collect
    from benchmark.reports.layout import as_table
    from benchmark.reports.write import write

    preset = options.preset
    plans, analyses = plans_of(options, options), find_analyses(options)
    results = Results(options.results).open()
    read_too = _read_by(analyses, options)
    runs = unique_runs([cells for _, cells in [*plans, *read_too]])
    overview = RunOverview(results)

    def check_all() -> None:
        for spec, cells in [*plans, *read_too]:
            check(spec, cells)

    with start(options, results.root, [*plans, *read_too]):
        with launcher_lock(options, results):
            code = run_missing(options, overview.index, runs, check_all, tracked_runs([*plans, *read_too]))
        folder = options.out or results.root / "tables" / preset
        overview.refresh(runs)
        for spec, cells in plans:
            where = write(as_table(collect(spec, preset, cells, overview.index)), folder)
            print(f"{spec.name}: {_summary(overview, cells)}; {where}")
        for made in analyses if code != 130 else ():
            _analyse(made, options, folder)
    return code


def _read_by(analyses: Sequence[PaperTable], options: TableOptions) -> list[tuple[TableSpec, Cells]]:
    """What the analyses read: the runs of single columns of other tables."""
    found = []
    for made in analyses:
        if made.runs_of is not None:
            name, column = made.runs_of
            part = replace(options, columns=column)
            found += plan_tables([spec_called(name)], part, run_settings(options.results, options))
    return found


def _analyse(made: PaperTable, query: TableQuery, folder: Path) -> str:
    """Compute and write a table that an analysis makes; its name."""
    from benchmark.analyses.registry import find  # with all analyses, and PyTorch
    from benchmark.reports.write import write

    built = find(made.analysis).from_query(query)
    print(f"{built.name}: by `analyse {made.analysis}`; {write(built, folder)}")
    return built.name


def _summary(overview: RunOverview, cells: Cells) -> str:
    counts = Counter(overview.state(run.key) for cell in cells.values() for run in cell.runs)
    gaps = Counter(cell.state for cell in cells.values() if cell.state != "ok")
    states = [f"{counts[state]} {state}" for state in SHOWN_STATES if counts[state]]
    cells_without = [f"{number} cells {state}" for state, number in sorted(gaps.items())]
    return ", ".join([*(states or ["no runs"]), *cells_without])
