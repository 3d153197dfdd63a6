"""From planned runs and what is on disk to the results of a table."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.errors import ConfigError
from benchmark.experiments.metrics import WhichRound
from benchmark.experiments.plan import Cells
from benchmark.experiments.spec import TableSpec
from benchmark.reports.columns import compared
from benchmark.reports.results import NOT_REACHED, OUTCOMES, Cell, CellRun, TableResults, build_results
from benchmark.reports.statistics import reported_value
from benchmark.runs.index import RunIndex
from benchmark.runs.result_files import DamagedError
from benchmark.runs.status import RunState


def commit_of(made: Mapping[str, Any]) -> str:
    """The commit of a run's code, with those of the user's repositories. ``made``: `Result.made`."""
    others = [
        f"{Path(folder).name} {commit or 'without a commit'}"
        for folder, commit in made["repositories"].items()
    ]
    return ", ".join([made["commit"] or "unknown", *others])


def recorded(records: Iterable[Record], split: str, metric: str) -> dict[int, float]:
    """Round -> value over the whole split."""
    names = (split, "all", metric)
    return {r.round: r.value for r in records if (r.split, r.group, r.metric) == names}


def collect(spec: TableSpec, preset: str, cells: Cells, index: RunIndex) -> TableResults:
    """The results of the planned ``cells``, from what is on disk now."""
    planned = {}
    for (row, column), cell in cells.items():
        others: Sequence[RunConfig | None] = [None] * len(cell.runs)
        if spec.reference_row:
            others = cells[spec.reference_row, column].runs
        pairs = zip(cell.runs, others, strict=False)
        of_column = spec.of_column(column)
        runs = (replace(_cell_run(of_column, index, *pair), by=index.by(pair[0].key)) for pair in pairs)
        planned[row, column] = Cell(cell.state, tuple(runs))
    tuned = {key: cell.chosen for key, cell in cells.items() if cell.chosen is not None}
    results = build_results(spec, preset, compared(cells, planned, index))
    return replace(results, stand_ins=_stand_ins(cells), tuned=tuned)


def _cell_run(spec: TableSpec, index: RunIndex, run: RunConfig, reference: RunConfig | None) -> CellRun:
    outcome: str = index.state(run.key)
    path = None
    if index.result(run.key):
        path = index.folder(run.key).path.relative_to(index.results.root).as_posix()
    if reference is not None:
        outcome = max(outcome, index.state(reference.key), key=OUTCOMES.index)
    if outcome != RunState.DONE:
        return CellRun(run.seed, outcome, None, path)
    differs = index.differs(run.key) or (index.differs(reference.key) if reference else "")
    try:
        if reference is None:
            return CellRun(run.seed, outcome, _value(spec, run.preset, index, run.key), path, differs)
        value = _relative_value(spec, index.records(run.key), index.records(reference.key))
    except DamagedError:
        return CellRun(run.seed, RunState.DIFFERS, None, path)
    return CellRun(run.seed, outcome if value is not None else NOT_REACHED, value, path, differs)


def _value(spec: TableSpec, preset: str, index: RunIndex, key: str) -> float | None:
    split, rule = spec.metric_format.split, spec.round(preset)
    if rule.rule == "last":
        return index.final(key, split, spec.metric)
    records = index.records(key)
    test, validation = (recorded(records, part, spec.metric) for part in (split, "validation"))
    return reported_value(rule, test, validation, spec.metric_format.higher_is_better)


def _relative_value(spec: TableSpec, records: Iterable[Record], reference: Iterable[Record]) -> float | None:
    """First round that is at least as good as the best one of ``reference``, or the speed-up; None if there is none."""
    shown = spec.metric_format
    curves = [recorded(of_run, shown.split, shown.of) for of_run in (records, reference)]
    for curve in curves:
        curve.pop(0, None)  # the untrained model does not count
    target = max(curves[1].values(), default=math.inf)
    reached = [[round for round, value in curve.items() if value >= target] for curve in curves]
    if not all(reached):
        return None
    first, first_of_reference = map(min, reached)
    return first_of_reference / first if spec.metric == "speedup" else float(first)


def _stand_ins(cells: Cells) -> dict[str, str]:
    """Column -> what replaces its data, and which options of the data set were changed, where there is either."""
    notes: dict[str, dict[str, None]] = {}
    for cell in cells.values():
        options = cell.runs[0].dataset.options if cell.runs else {}
        texts = notes.setdefault(cell.column, {})
        if options.get("stands_for"):
            lost = f"; not kept: {options['not_kept']}" if options.get("not_kept") else ""
            texts[f"scikit-learn's digits stand in for {options['stands_for']}{lost}"] = None
        for key, (old, new) in cell.options.items():
            texts[f"dataset.options.{key}={json.dumps(new)} in place of {json.dumps(old)}"] = None
    return {column: "; ".join(texts) for column, texts in notes.items() if texts}


def validation_value(spec: TableSpec, preset: str, key: str, index: RunIndex) -> float | None:
    """What an ended run reached on its validation split, in the round that the table's rule says.

    None if it diverged or collapsed: a mean recall over the classes of at most 1/C is that of a constant prediction.
    The test set has no part in it: where the table's rule is ``best_test``, the validation split chooses the round.
    `ConfigError` if the run was not evaluated on a validation split, `StorageError` if it has not ended.
    """
    records = index.records(key)
    held, recall = (recorded(records, "validation", metric) for metric in (spec.metric, "balanced_accuracy"))
    classes = {r.group for r in records if r.split == "validation" and re.fullmatch(r"class=\d+", r.group)}
    if index.state(key) is not RunState.DONE:
        return None
    rule = spec.round(preset)
    if rule.rule == "best_test":
        rule = WhichRound("best_validation")
    higher = spec.metric_format.higher_is_better
    value, mean_recall = (reported_value(rule, values, held, higher) for values in (held, recall))
    if value is None:
        folder = index.folder(key).path
        raise ConfigError(f"{folder}: {spec.metric} on the validation split was evaluated in no round.")
    constant = mean_recall is not None and mean_recall <= 1 / max(len(classes), 1) + 1e-9
    return None if constant else value
