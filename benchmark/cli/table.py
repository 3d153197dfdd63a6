"""``python -m benchmark table``: plan, run what is missing, write the tables."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmark.cli.launching import find_analyses, finished_runs, in_words, plans_of, run_settings
from benchmark.cli.options import LaunchOptions, parse
from benchmark.experiments.plan import Cells, unique_runs
from benchmark.experiments.selection import TableQuery, plan_tables
from benchmark.experiments.tables import spec_called
from benchmark.launch.overview import RunOverview
from benchmark.runs.store import Results


@dataclass(frozen=True, kw_only=True)
class TableOptions(TableQuery, LaunchOptions):
    """Options of the command."""

    out: Path | None = None


def main(words: Sequence[str]) -> int:
    """Plan, launch, write; exit code 0, 1 (a run failed) or 130 (stopped)."""
    options = parse(words, "table", TableOptions)
    plans, analyses = plans_of(options, options), find_analyses(options)
    from benchmark.reports.collect import collect
    from benchmark.reports.layout import as_table
    from benchmark.reports.write import write

    overview = RunOverview(Results(options.results, options.stale).open())
    folder = options.out or options.results / "tables" / options.preset
    needed = [*plans]
    for made in analyses:
        if made.runs_of is not None:  # an analysis reads a column of another table
            name, column = made.runs_of
            part = replace(options, columns=column)
            needed += plan_tables([spec_called(name)], part, run_settings(overview.index.results, options))
    with finished_runs(options, overview.index, needed) as code:
        overview.refresh(unique_runs([cells for _, cells in plans]))
        for spec, cells in plans:
            where = write(as_table(collect(spec, options.preset, cells, overview.index)), folder)
            print(f"{spec.name}: {_summary(overview, cells)}; {where}")
        for made in analyses if code != 130 else ():
            from benchmark.analyses.registry import find

            built = find(made.analysis).from_query(options)
            print(f"{built.name}: by `analyse {made.analysis}`; {write(built, folder)}")
    return code


def _summary(overview: RunOverview, cells: Cells) -> str:
    counts = Counter(overview.state(run.key) for cell in cells.values() for run in cell.runs)
    gaps = Counter(cell.state for cell in cells.values() if cell.state != "ok")
    return ", ".join(
        [
            in_words(counts) or "no runs",
            *(f"{number} cells {state}" for state, number in sorted(gaps.items())),
        ]
    )
