"""From planned runs and their folders to the cells of a table."""

from __future__ import annotations

from collections.abc import Mapping

from benchmark.errors import StorageError
from benchmark.reports.statistics import reported_value
from benchmark.reports.tables import Cell, CellRun, Table, build_table
from benchmark.runs.config import RunConfig
from benchmark.runs.plan import Cells, PlannedCell
from benchmark.runs.spec import TableSpec
from benchmark.runs.store import Results, RunFolder, Status

STATES = {
    "done": "done",
    "diverged": "diverged",
    "failed": "failed",
    "running": "running",
    "interrupted": "missing",
}


def run_state(folder: RunFolder, status: Status | None) -> str:
    """done, running, failed, diverged or missing, as a table shows it."""
    if status is None:
        return "missing"
    state = STATES.get(status.state, "missing")
    if state == "running" and not folder.is_held():
        return "missing"  # its process was killed; the next launch goes on from its checkpoint
    if status.ended and not folder.complete(status):
        raise StorageError(
            f"{folder.records_path.absolute()}: not the {status.records_bytes} bytes that were written. "
            f"Delete {folder.path} to run it again."
        )
    return state


def _value(spec: TableSpec, folder: RunFolder, status: Status) -> float | None:
    if spec.round.rule == "last":
        return status.final.get(spec.shown.split, {}).get(spec.metric)
    values: dict[str, dict[int, float]] = {}
    for record in folder.read_records():
        if record.group == "all" and record.metric == spec.metric:
            values.setdefault(record.split, {})[record.round] = record.value
    return reported_value(
        spec.round, values.get(spec.shown.split, {}), values.get("validation"), spec.shown.higher_is_better
    )


def _cell_run(spec: TableSpec, results: Results, run: RunConfig) -> CellRun:
    folder = results.run(run.key)
    status = folder.status()
    state = run_state(folder, status)
    value = _value(spec, folder, status) if state == "done" and status is not None else None
    return CellRun(run.seed, state, value, f"runs/{run.key}" if status else None)


def _cell(spec: TableSpec, results: Results, cell: PlannedCell) -> Cell:
    if cell.state != "ok":
        return Cell(cell.state)
    return Cell("ok", tuple(_cell_run(spec, results, run) for run in cell.runs))


def _stand_ins(cells: Cells) -> Mapping[str, str]:
    """What stands in for the data of each column, from the data sets' own configuration."""
    notes = {}
    for cell in cells.values():
        for run in cell.runs[:1]:
            original = run.dataset.options.get("stands_for")
            if original:
                lost = run.dataset.options.get("not_kept", "")
                notes[cell.column] = f"scikit-learn's digits stand in for {original}" + (
                    f"; not kept: {lost}" if lost else ""
                )
    return notes


def collect(spec: TableSpec, preset: str, cells: Cells, results: Results) -> Table:
    """Build the table from what is on disk now."""
    known = {key: _cell(spec, results, cell) for key, cell in cells.items()}
    return build_table(spec, preset, known, notes=_stand_ins(cells))
