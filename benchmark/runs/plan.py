"""From a table to its runs: every cell becomes configurations, one per seed, or the reason why there are none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import datasets
from benchmark.errors import ConfigError
from benchmark.runs.config import RunConfig, compose, group_names, resolve
from benchmark.runs.spec import TableSpec


@dataclass(frozen=True)
class PlannedCell:
    """One cell of a table: ``state`` is ``ok`` or says what is not there yet; one run per seed."""

    row: str
    column: str
    state: str
    runs: tuple[RunConfig, ...] = ()


Cells = dict[tuple[str, str], PlannedCell]


def _absent(overrides: Mapping[str, Any]) -> str | None:
    """The first part of a cell that this version does not have yet."""
    for group in ("method", "selection", "dataset", "model", "partition"):
        node = overrides.get(group)
        name = node.get("name") if isinstance(node, Mapping) else None
        if name is not None and name not in group_names(group):
            return f"{group} not available yet"
    return None


@lru_cache(maxsize=4096)
def _check_method(method: str, selection: str) -> None:
    """Build the rules once per different method, so that a bad value stops the plan and not the tenth hour."""
    from methods.method import build

    build(json.loads(method), json.loads(selection))


def _check(config: RunConfig) -> None:
    from benchmark.engine.models import model_names

    _check_method(json.dumps(config.method, sort_keys=True), json.dumps(config.selection, sort_keys=True))
    if config.model.name not in model_names():
        raise ConfigError(
            f"model.name: no model is called {config.model.name!r}. Known: {', '.join(model_names())}."
        )
    if config.dataset.name not in datasets.names():
        raise ConfigError(
            f"dataset.name: no data set is called {config.dataset.name!r}. Known: {', '.join(datasets.names())}."
        )


def plan(
    spec: TableSpec, preset: str, seeds: Sequence[int] | None = None, extra: Mapping[str, Any] | None = None
) -> Cells:
    """All cells of ``spec`` in ``preset``, averages left out.

    ``seeds`` replaces the table's own number; ``extra`` are settings that are no part of a run's identity (paths,
    runtime). Raises :class:`ConfigError`, naming table and cell, for a cell that cannot be composed.
    """
    seeds = range(spec.num_seeds(preset)) if seeds is None else seeds
    cells: Cells = {}
    for row in spec.rows:
        for column in spec.run_columns:
            overrides = spec.cell_overrides(row.key, column.key, preset)
            if overrides is None:
                cells[row.key, column.key] = PlannedCell(row.key, column.key, "not in this preset")
                continue
            state = _absent(overrides)
            if state is not None:
                cells[row.key, column.key] = PlannedCell(row.key, column.key, state)
                continue
            try:
                first = resolve(compose(preset, overrides, extra or {}))
            except ValueError as error:
                raise _in_cell(spec, row.key, column.key, error) from error
            runs = tuple(with_seed(first, seed) for seed in seeds)
            cells[row.key, column.key] = PlannedCell(row.key, column.key, "ok", runs)
    return cells


def check(spec: TableSpec, cells: Cells) -> None:
    """Raise :class:`ConfigError`, naming table and cell, if a run names rules, a model or data that do not exist.

    Before the first run starts, but apart from :func:`plan`: it imports torch, which reading finished runs does not
    need.
    """
    for cell in cells.values():
        for run in cell.runs[:1]:
            try:
                _check(run)
            except ValueError as error:
                raise _in_cell(spec, cell.row, cell.column, error) from error


def _in_cell(spec: TableSpec, row: str, column: str, error: ValueError) -> ConfigError:
    return ConfigError(f"table {spec.name}, row {row}, column {column}: {error}")


def with_seed(config: RunConfig, seed: int) -> RunConfig:
    """The same configuration with another seed; shares the hash, which does not depend on it."""
    twin = config.model_copy(update={"seed": seed})
    twin.__dict__["hash"] = config.hash
    twin.__dict__["label"] = config.label
    return twin


def unique_runs(plans: Sequence[Cells]) -> dict[str, RunConfig]:
    """All runs of several tables, each once, by key and in the order of first appearance."""
    return {run.key: run for cells in plans for cell in cells.values() for run in cell.runs}


def prepare_data(runs: Sequence[RunConfig], load: Callable[[RunConfig], object]) -> None:
    """Prepare every data set that ``runs`` need before any of them starts.

    Raises one :class:`ConfigError` with the messages of all data sets that are not there.
    """
    problems: dict[str, str] = {}
    seen: set[str] = set()
    for run in runs:
        key = json.dumps([run.dataset.name, run.dataset.options], sort_keys=True)
        if key in seen:
            continue
        seen.add(key)
        try:
            load(run)
        except ValueError as error:
            problems[key] = str(error)
    if problems:
        raise ConfigError("\n\n".join(dict.fromkeys(problems.values())))
