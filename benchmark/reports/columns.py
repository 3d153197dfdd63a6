"""Whether the runs of a column may be compared: they share data, clients, torch, threads and the type of device."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from benchmark.experiments.plan import Cells, PlannedCell
from benchmark.reports.results import OTHER_DATA, Cell, CellRun
from benchmark.runs.index import RunIndex
from benchmark.runs.status import Status

Key = tuple[str, str]


def compared(cells: Cells, known: Mapping[Key, Cell], index: RunIndex) -> dict[Key, Cell]:
    """The cells, with a mark at runs that were made in another way than the newest one of their column.

    Runs on other data count as gaps. Only runs whose configurations ask for the same data and clients are compared. The
    clients depend on the seed, so they are compared among runs of one seed.
    """
    newest: dict[tuple[str, int | None], Status] = {}
    for key, cell in cells.items():
        for group, run, status in _made(cell, known[key], index):
            for place in ((group, None), (group, run.seed)):
                newest[place] = max(newest.get(place, status), status, key=lambda each: each.updated)
    marked = dict(known)
    for key, cell in cells.items():
        found = {run.seed: (newest[group, None], newest[group, run.seed], status)
                 for group, run, status in _made(cell, known[key], index)}  # fmt: skip
        runs = (_marked(run, *found[run.seed]) if run.seed in found else run for run in known[key].runs)
        marked[key] = replace(known[key], runs=tuple(runs))
    return marked


def _made(planned: PlannedCell, cell: Cell, index: RunIndex) -> Iterator[tuple[str, CellRun, Status]]:
    """(name of the runs to compare with, run, its status) of the runs of a cell that have a value."""
    # All seeds have the same configuration.
    first = planned.runs[0] if planned.runs else None
    group = f"{planned.column} {first.dataset} {first.partition}" if first else ""
    for config, run in zip(planned.runs, cell.runs, strict=True):
        status = index.status(config.key) if run.value is not None else None
        if status is not None and status.data:  # earlier versions did not note it
            yield group, run, status


def _marked(run: CellRun, like: Status, same_seed: Status, status: Status) -> CellRun:
    if status.data != like.data:
        return replace(run, outcome=OTHER_DATA)
    pairs = {
        "torch": (status.torch, like.torch),
        "threads": (status.threads, like.threads),
        "device": (status.device.partition(" ")[0], like.device.partition(" ")[0]),
    }
    found = [f"{name} {own} and not {other}" for name, (own, other) in pairs.items() if own != other]
    found += ["other clients"] * (status.partition != same_seed.partition)
    return replace(run, differs="; ".join(filter(None, [run.differs, *found])), processor=status.processor)
