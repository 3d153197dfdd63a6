"""``python -m benchmark table``: plan, run what is missing, write the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmark.analyses.registry import PaperTable
from benchmark.cli.arguments import read
from benchmark.cli.launching import LAUNCH_OPTIONS, launcher_lock, run_missing, settings_of_runs
from benchmark.cli.planning import TABLE_OPTIONS, find_analyses, plans_of, table_query
from benchmark.cli.tracking import TRACKING_OPTIONS, publication, start, tracked_runs
from benchmark.experiments.plan import Cells, check, unique_runs
from benchmark.experiments.selection import TableQuery, plan_tables
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.launch.overview import SHOWN_STATES, RunOverview
from benchmark.reports.collect import collect
from benchmark.reports.layout import as_table
from benchmark.reports.write import write
from benchmark.runs.store import Results

OUT = {"out": "FOLDER"}


def table(words: Sequence[str]) -> int:
    """Plan, launch, write; exit code 0, 1 (a run failed) or 130 (stopped)."""
    values = read(words, {**TABLE_OPTIONS, **LAUNCH_OPTIONS, **TRACKING_OPTIONS, **OUT}, "table")
    query = table_query(values)
    preset = query.preset
    plans, analyses = plans_of(values), find_analyses(query)
    results = Results(Path(values.get("results", "results"))).open()
    read_too = _read_by(analyses, query, values)
    runs = unique_runs([cells for _, cells in [*plans, *read_too]])

    def check_all() -> None:
        for spec, cells in [*plans, *read_too]:
            check(spec, cells)

    with start(values, results.root, [*plans, *read_too]) as tracker:
        with launcher_lock(values, results):
            code = run_missing(values, results, runs, check_all, tracked_runs([*plans, *read_too]))
        folder = Path(values.get("out") or results.root / "tables" / preset)
        overview = RunOverview(results)
        overview.refresh(runs)
        for spec, cells in plans:
            where = write(as_table(collect(spec, preset, cells, overview.index)), folder)
            print(f"{spec.name}: {_summary(overview, cells)}; {where}")
            tracker.publish(publication("table", spec.name, preset, folder, [spec.paper]))
        for made in analyses if code != 130 else ():
            name = _analyse(made, query, folder)
            tracker.publish(publication("table", name, preset, folder, [made.paper]))
    return code


def _read_by(
    analyses: Sequence[PaperTable], query: TableQuery, values: Mapping[str, str]
) -> list[tuple[TableSpec, Cells]]:
    """What the analyses read: the runs of single columns of other tables."""
    found = []
    for made in analyses:
        if made.runs_of is not None:
            name, column = made.runs_of
            part = replace(query, columns=column)
            found += plan_tables([spec_called(name)], part, settings_of_runs(values))
    return found


def _analyse(made: PaperTable, query: TableQuery, folder: Path) -> str:
    """Compute and write a table that an analysis makes; its name."""
    from benchmark.analyses.registry import find  # with all analyses, and PyTorch

    built = find(made.analysis).from_query(query)
    print(f"{built.name}: by `analyse {made.analysis}`; {write(built, folder)}")
    return built.name


def _summary(overview: RunOverview, cells: Cells) -> str:
    counts = Counter(overview.state(run.key) for cell in cells.values() for run in cell.runs)
    gaps = Counter(cell.state for cell in cells.values() if cell.state != "ok")
    states = [f"{counts[state]} {state}" for state in SHOWN_STATES if counts[state]]
    cells_without = [f"{number} cells {state}" for state, number in sorted(gaps.items())]
    return ", ".join([*(states or ["no runs"]), *cells_without])
