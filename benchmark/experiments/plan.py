"""From a table to its runs: every cell becomes configurations, one per seed, or the reason why there are none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import datasets
from benchmark.config.compose import compose, group_names, resolve
from benchmark.config.merge import merge
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, nearest
from benchmark.experiments.spec import TableSpec

if TYPE_CHECKING:
    from methods.core.rules import Method


@dataclass(frozen=True)
class TunedValues:
    """Values on top of a cell's own, by dotted name, and where they come from: a file of tuned values or a grid.

    ``split`` and ``seeds``: share of every client's training data and number of seeds that chose them; ``columns``: the
    columns of the table by whose mean they were chosen, none where a cell chose for itself.
    """

    values: Mapping[str, Any]
    source: str
    split: float = 0.0
    seeds: int = 0
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedCell:
    """One cell of a table: ``state`` is ``ok`` or says what is not there yet; one run per seed."""

    row: str
    column: str
    state: str
    runs: tuple[RunConfig, ...] = ()
    chosen: TunedValues | None = None


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
def _check_method(method: str, selection: str) -> Method:
    """Build the rules once per different method, so that a bad value stops the plan and not the tenth hour."""
    from methods.core.build import build

    return build(json.loads(method), json.loads(selection))


def _check(config: RunConfig) -> None:
    from benchmark.models.networks import model_names

    method = _check_method(
        json.dumps(config.method, sort_keys=True), json.dumps(config.selection, sort_keys=True)
    )
    config.check_method(method)
    if config.model.name not in model_names():
        raise ConfigError(
            f"model.name: no model is called {config.model.name!r}. Known: {', '.join(model_names())}."
        )
    if config.dataset.name not in datasets.names():
        raise ConfigError(
            f"dataset.name: no data set is called {config.dataset.name!r}. Known: {', '.join(datasets.names())}."
        )


def _set(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """``config`` with the setting of a dotted name; the part that it belongs to must be there already."""
    *parents, last = key.split(".")
    node: Any = config
    for depth, part in enumerate(parents):
        if not isinstance(node, Mapping) or not isinstance(node.get(part), Mapping):
            known = [name for name, child in node.items() if isinstance(child, Mapping)]
            where = ".".join(parents[:depth]) or "the configuration"
            raise ConfigError(
                f"{key}: {where} has no {part!r} here.{nearest(part, known)} There is: {', '.join(known) or 'nothing'}."
            )
        node = node[part]
    nested: Any = {last: value}
    for part in reversed(parents):
        nested = {part: nested}
    return merge(config, nested)


def _composed(
    preset: str, overrides: Mapping[str, Any], extra: Mapping[str, Any], chosen: TunedValues | None
) -> RunConfig:
    plain = compose(preset, overrides, extra)
    for key, value in chosen.values.items() if chosen else ():
        plain = _set(plain, key, value)
    return resolve(plain)


def plan(
    spec: TableSpec,
    preset: str,
    seeds: Sequence[int] | None = None,
    extra: Mapping[str, Any] | None = None,
    chosen: Mapping[tuple[str, str], TunedValues] | None = None,
) -> Cells:
    """All cells of ``spec`` in ``preset``, averages left out.

    ``seeds`` replaces the table's own number; ``extra`` are settings that are no part of a run's identity (paths,
    runtime); ``chosen`` are values on top of those of single cells. Raises :class:`ConfigError`, naming table and cell,
    for a cell that cannot be composed.
    """
    seeds = range(spec.num_seeds(preset)) if seeds is None else seeds
    cells: Cells = {}
    for row in spec.rows:
        for column in spec.run_columns:
            overrides = spec.cell_settings(row.key, column.key, preset)
            if overrides is None:
                cells[row.key, column.key] = PlannedCell(row.key, column.key, "not in this preset")
                continue
            state = _absent(overrides)
            if state is not None:
                cells[row.key, column.key] = PlannedCell(row.key, column.key, state)
                continue
            over = (chosen or {}).get((row.key, column.key))
            cell = PlannedCell(row.key, column.key, "ok", (), over)
            try:
                first = _composed(preset, overrides, extra or {}, over)
            except ValueError as error:
                raise _in_cell(spec, cell, error) from error
            runs = tuple(with_seed(first, seed) for seed in seeds)
            cells[row.key, column.key] = replace(cell, runs=runs)
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
                raise _in_cell(spec, cell, error) from error


def _in_cell(spec: TableSpec, cell: PlannedCell, error: ValueError) -> ConfigError:
    source = f" (with {', '.join(cell.chosen.values)} of {cell.chosen.source})" if cell.chosen else ""
    return ConfigError(f"table {spec.name}, row {cell.row}, column {cell.column}: {error}{source}")


def with_seed(config: RunConfig, seed: int) -> RunConfig:
    """The same configuration with another seed; shares the hash, which does not depend on it."""
    twin = config.model_copy(update={"seed": seed})
    twin.__dict__["hash"] = config.hash
    twin.__dict__["label"] = config.label
    return twin


def unique_runs(plans: Sequence[Cells]) -> dict[str, RunConfig]:
    """All runs of several tables, each once, by key and in the order of first appearance."""
    return {run.key: run for cells in plans for cell in cells.values() for run in cell.runs}


def prepare_data(
    runs: Sequence[RunConfig],
    load: Callable[[RunConfig], object],
    fetch: Callable[[RunConfig], object] = lambda run: None,
) -> None:
    """Prepare every data set (``load``) and all trained weights (``fetch``) of ``runs`` before any of them starts.

    Raises one :class:`ConfigError` with the messages of all that is not there.
    """
    problems: dict[str, None] = {}
    seen: set[str] = set()
    for run in runs:
        wanted = (
            (load, ["data", run.dataset.name, run.dataset.options]),
            (fetch, ["weights", run.model.name, run.model.parameters.get("pretrained")]),
        )
        for get, what in wanted:
            key = json.dumps(what, sort_keys=True)
            if key in seen:
                continue
            seen.add(key)
            try:
                get(run)
            except ValueError as error:
                problems[str(error)] = None
    if problems:
        raise ConfigError("\n\n".join(problems))
