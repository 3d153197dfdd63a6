"""Whether the runs of a column may be compared: they share engine, data, clients, torch, threads and device."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter

from benchmark.experiments.plan import Cells
from benchmark.reports.results import Cell, CellRun, gathered
from benchmark.runs.compare import COLUMN, difference
from benchmark.runs.index import RunIndex
from benchmark.runs.status import Result, RunState

Key = tuple[str, str]


def compared(cells: Cells, measured: Mapping[Key, Cell], index: RunIndex) -> dict[Key, Cell]:
    """The cells, with a mark at runs that were made in another way than the newest one of their column.

    Runs on other data count as gaps. Only runs whose configurations ask for the same data and clients are compared. The
    clients depend on the seed, so they are compared among runs of one seed.
    """
    runs = {(key, run.seed): run for key, cell in measured.items() for run in cell.runs}
    for members in gathered(_with_values(cells, measured, index)).values():
        newest = max((result for _, _, result in members), key=attrgetter("updated"))
        by_seed = gathered((run.seed, result) for _, run, result in members)
        for key, run, result in members:
            of_seed = max(by_seed[run.seed], key=attrgetter("updated"))
            runs[key, run.seed] = _marked(
                run, result, newest.origin | {"partition": of_seed.origin["partition"]}
            )
    return {
        key: replace(cell, runs=tuple(runs[key, run.seed] for run in cell.runs))
        for key, cell in measured.items()
    }


def _with_values(
    cells: Cells, measured: Mapping[Key, Cell], index: RunIndex
) -> Iterator[tuple[str, tuple[Key, CellRun, Result]]]:
    """(what the runs to compare share, (cell, run, result)) of every run with a value."""
    for key, planned in cells.items():
        for config, run in zip(planned.runs, measured[key].runs, strict=True):
            result = index.result(config.key) if run.value is not None else None
            if result is not None:
                first = planned.runs[0]  # all seeds have the same configuration
                yield f"{planned.column} {first.dataset} {first.partition}", (key, run, result)


def _marked(run: CellRun, result: Result, newest: Mapping[str, object]) -> CellRun:
    run = replace(run, processor=result.instructions)
    if result.origin["data"] != newest["data"]:
        return replace(run, outcome=RunState.DIFFERS)
    other = difference(result.origin, newest, COLUMN)
    return replace(run, differs="; ".join(filter(None, [run.differs, other])))
