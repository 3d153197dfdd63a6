"""Whether the runs of a column may be compared: they share engine, data, clients, torch, threads and device."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from benchmark.experiments.plan import Cells
from benchmark.reports.results import Cell, CellRun, gathered
from benchmark.runs.compare import COLUMN, difference
from benchmark.runs.index import RunIndex
from benchmark.runs.status import Result, RunState

Key = tuple[str, str]
Member = tuple[Key, CellRun, Result]


def compared(cells: Cells, measured: Mapping[Key, Cell], index: RunIndex) -> dict[Key, Cell]:
    """The cells, with a mark at runs that were made in another way than the newest own one of their column.

    Runs on other data count as gaps. Only runs whose configurations ask for the same data and clients are compared. The
    clients depend on the seed, so they are compared among runs of one seed.
    """
    runs = {(key, run.seed): run for key, cell in measured.items() for run in cell.runs}
    for members in gathered(_with_values(cells, measured, index)).values():
        newest, by_seed = _newest(members), gathered((member[1].seed, member) for member in members)
        for key, run, result in members:
            of_seed = _newest(by_seed[run.seed])
            runs[key, run.seed] = _marked(
                run, result, newest.origin | {"partition": of_seed.origin["partition"]}
            )
    return {
        key: replace(cell, runs=tuple(runs[key, run.seed] for run in cell.runs))
        for key, cell in measured.items()
    }


def _newest(members: Sequence[Member]) -> Result:
    """That of a run that was carried out here or, if there is none, that of an imported one."""
    return max(members, key=lambda member: (not member[1].by, member[2].updated))[2]


def _with_values(cells: Cells, measured: Mapping[Key, Cell], index: RunIndex) -> Iterator[tuple[str, Member]]:
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
