"""From planned runs and their folders to the cells of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping

from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells, PlannedCell
from benchmark.experiments.spec import TableSpec, WhichRound
from benchmark.launch.overview import run_state
from benchmark.reports.statistics import reported_value
from benchmark.reports.tables import STATUSES, Cell, CellRun, Table, build_table
from benchmark.runs.status import Status
from benchmark.runs.store import Results, RunFolder


def _value(spec: TableSpec, folder: RunFolder, status: Status) -> float | None:
    if spec.round.rule == "last":
        return status.final.get(spec.metric_format.split, {}).get(spec.metric)
    values: dict[str, dict[int, float]] = {}
    for record in folder.read_records():
        if record.group == "all" and record.metric == spec.metric:
            values.setdefault(record.split, {})[record.round] = record.value
    return reported_value(
        spec.round,
        values.get(spec.metric_format.split, {}),
        values.get("validation"),
        spec.metric_format.higher_is_better,
    )


def _curve(spec: TableSpec, folder: RunFolder) -> dict[int, float]:
    """The metric that is to be reached, by trained rounds."""
    split, of = spec.metric_format.split, spec.metric_format.of
    return {
        record.round: record.value
        for record in folder.read_records()
        if (record.split, record.group, record.metric) == (split, "all", of) and record.round > 0
    }


def _first(curve: Mapping[int, float], target: float) -> int | None:
    return min((round for round, value in curve.items() if value >= target), default=None)


def _relative_value(spec: TableSpec, folder: RunFolder, reference: RunFolder) -> float | None:
    """First round that is at least as good as the best one of ``reference``, or the speed-up; None if there is none."""
    goal = _curve(spec, reference)
    target = max(goal.values(), default=math.inf)
    reached, first = _first(_curve(spec, folder), target), _first(goal, target)
    if reached is None or first is None:
        return None
    return first / reached if spec.metric == "speedup" else float(reached)


def _cell_run(spec: TableSpec, results: Results, run: RunConfig, reference: RunConfig | None) -> CellRun:
    folder = results.run(run.key)
    status = folder.status()
    state = run_state(folder, status)
    path = f"runs/{run.key}" if status else None
    if reference is None:
        value = _value(spec, folder, status) if state == "done" and status is not None else None
        return CellRun(run.seed, state, value, path)
    other = results.run(reference.key)
    state = max(state, run_state(other, other.status()), key=STATUSES.index)
    value = _relative_value(spec, folder, other) if state == "done" else None
    return CellRun(run.seed, "not reached" if state == "done" and value is None else state, value, path)


def _cell(spec: TableSpec, results: Results, cell: PlannedCell, reference: PlannedCell | None) -> Cell:
    if cell.state != "ok":
        return Cell(cell.state)
    if reference is None:
        return Cell("ok", tuple(_cell_run(spec, results, run, None) for run in cell.runs))
    pairs = zip(cell.runs, reference.runs, strict=False)
    return Cell("ok", tuple(_cell_run(spec, results, run, other) for run, other in pairs))


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

    def reference(column: str) -> PlannedCell | None:
        return cells[spec.reference_row, column] if spec.reference_row else None

    known = {key: _cell(spec, results, cell, reference(key[1])) for key, cell in cells.items()}
    chosen = {key: cell.chosen for key, cell in cells.items() if cell.chosen is not None}
    return build_table(spec, preset, known, notes=_stand_ins(cells), chosen=chosen)


def validation_value(spec: TableSpec, folder: RunFolder) -> float | None:
    """What an ended run reached on its validation split, in the round that the table's rule says; None if it diverged.

    The test set has no part in it: where the table's rule is ``best_test``, the validation split chooses the round.
    Raises `ConfigError` if the run was not evaluated on a validation split, `StorageError` if it has not ended.
    """
    records = folder.read_records()
    status = folder.status()
    if status is None or status.state != "done":
        return None
    held = {
        record.round: record.value
        for record in records
        if (record.split, record.group, record.metric) == ("validation", "all", spec.metric)
    }
    rule = WhichRound("best_validation") if spec.round.rule == "best_test" else spec.round
    try:
        return reported_value(rule, held, held, spec.metric_format.higher_is_better)
    except ConfigError as error:
        raise ConfigError(f"{folder.path}: {spec.metric} on the validation split: {error}") from error
