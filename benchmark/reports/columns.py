"""Whether the runs of a column may be compared: they share data, clients, torch, threads and the type of device."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter

from benchmark.experiments.plan import Cells
from benchmark.reports.results import OTHER_DATA, Cell, CellRun, gathered
from benchmark.runs.index import RunIndex
from benchmark.runs.status import Status

Key = tuple[str, str]


def compared(cells: Cells, measured: Mapping[Key, Cell], index: RunIndex) -> dict[Key, Cell]:
    """The cells, with a mark at runs that were made in another way than the newest one of their column.

    Runs on other data count as gaps. Only runs whose configurations ask for the same data and clients are compared. The
    clients depend on the seed, so they are compared among runs of one seed.
    """
    runs = {(key, run.seed): run for key, cell in measured.items() for run in cell.runs}
    for members in gathered(_with_values(cells, measured, index)).values():
        newest = max((status for _, _, status in members), key=attrgetter("updated"))
        by_seed = gathered((run.seed, status) for _, run, status in members)
        for key, run, status in members:
            newest_of_seed = max(by_seed[run.seed], key=attrgetter("updated"))
            runs[key, run.seed] = _marked(run, status, newest, newest_of_seed)
    return {
        key: replace(cell, runs=tuple(runs[key, run.seed] for run in cell.runs))
        for key, cell in measured.items()
    }


def _with_values(
    cells: Cells, measured: Mapping[Key, Cell], index: RunIndex
) -> Iterator[tuple[str, tuple[Key, CellRun, Status]]]:
    """(what the runs to compare share, (cell, run, status)) of every run with a value."""
    for key, planned in cells.items():
        for config, run in zip(planned.runs, measured[key].runs, strict=True):
            status = index.status(config.key) if run.value is not None else None
            if status is not None:
                first = planned.runs[0]  # all seeds have the same configuration
                yield f"{planned.column} {first.dataset} {first.partition}", (key, run, status)


def _marked(run: CellRun, status: Status, newest: Status, newest_of_seed: Status) -> CellRun:
    if status.data != newest.data:
        return replace(run, outcome=OTHER_DATA)
    pairs = {
        "torch": (status.torch, newest.torch),
        "threads": (status.threads, newest.threads),
        "device": (status.device.partition(" ")[0], newest.device.partition(" ")[0]),
    }
    marks = [f"{name} {here} and not {there}" for name, (here, there) in pairs.items() if here != there]
    marks += ["other clients"] * (status.partition != newest_of_seed.partition)
    differs = "; ".join(filter(None, [run.differs, *marks]))
    return replace(run, differs=differs, processor=status.instructions)
