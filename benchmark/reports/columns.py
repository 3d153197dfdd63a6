"""Whether the runs of a column may be compared: they share data, clients, torch, threads and the type of device."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from benchmark.experiments.plan import Cells, PlannedCell
from benchmark.reports.results import OTHER_DATA, Cell, CellRun
from benchmark.runs.index import RunIndex
from benchmark.runs.status import Status

Key = tuple[str, str]


def compared(cells: Cells, measured: Mapping[Key, Cell], index: RunIndex) -> dict[Key, Cell]:
    """The cells, with a mark at runs that were made in another way than the newest one of their column.

    Runs on other data count as gaps. Only runs whose configurations ask for the same data and clients are compared. The
    clients depend on the seed, so they are compared among runs of one seed.
    """
    newest: dict[tuple[str, int | None], Status] = {}
    for key, planned in cells.items():
        for group, run, status in _with_values(planned, measured[key], index):
            for place in ((group, None), (group, run.seed)):
                newest[place] = max(newest.get(place, status), status, key=lambda status: status.updated)
    marked = dict(measured)
    for key, planned in cells.items():
        new = {
            run.seed: _marked(run, status, newest[group, None], newest[group, run.seed])
            for group, run, status in _with_values(planned, measured[key], index)
        }
        runs = tuple(new.get(run.seed, run) for run in measured[key].runs)
        marked[key] = replace(measured[key], runs=runs)
    return marked


def _with_values(planned: PlannedCell, cell: Cell, index: RunIndex) -> Iterator[tuple[str, CellRun, Status]]:
    """(name of the runs to compare with, run, its status) of the runs of a cell that have a value."""
    # All seeds have the same configuration.
    first = planned.runs[0] if planned.runs else None
    group = f"{planned.column} {first.dataset} {first.partition}" if first else ""
    for config, run in zip(planned.runs, cell.runs, strict=True):
        status = index.status(config.key) if run.value is not None else None
        if status is not None:
            yield group, run, status


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
    return replace(run, differs="; ".join(filter(None, [run.differs, *marks])), processor=status.processor)
