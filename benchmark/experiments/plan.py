"""The runs of a table: one configuration per cell and seed, or the reason why a cell has none."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from benchmark.config.compose import (
    compose,
    group_names,
    load_group,
    resolve,
    set_value,
    with_dataset_options,
)
from benchmark.config.merge import flat, merge
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.metrics import METRICS
from benchmark.experiments.spec import TableSpec
from benchmark.registry import BrokenFile
from datasets.core import registry as datasets
from partitions.core import registry as partitions


@dataclass(frozen=True)
class TunedValues:
    """Hyper-parameters of a cell that replace its own.

    Attributes:
        values: Dotted name of a setting -> value.
        source: The file of tuned values or the grid that they come from.
        split, seeds: Share of every client's training data that was held out, and number of seeds, of the search.
        columns: Columns of the table by whose mean the values were chosen; empty if by the cell alone.
    """

    values: Mapping[str, Any]
    source: str
    split: float = 0.0
    seeds: int = 0
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedCell:
    """One cell of a table, with one run per seed; ``state`` is ``ok`` or says why there are no runs.

    ``options``: options of the data set that were changed, key -> (the cell's own value, new value).
    ``layers``: what sets its settings, in order, where it is set -> settings; the later value wins.
    """

    row: str
    column: str
    state: str
    runs: Sequence[RunConfig] = ()
    chosen: TunedValues | None = None
    options: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    layers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False, compare=False)


Cells = dict[tuple[str, str], PlannedCell]


def check_names(run: RunConfig) -> None:
    """Raise a `UserError` if there is no such model, partition or data set. Imports no torch."""
    name = run.model.name
    models = sorted({str(load_group("model", file)["name"]) for file in group_names("model")})
    if name not in models:
        raise ConfigError(wrong("model.name", name, f"one of {', '.join(models)}", known=models))
    partitions.make(run.partition.name, run.partition.parameters)
    datasets.get(run.dataset.name)


def check_run(run: RunConfig) -> None:
    """Raise a `UserError` if a run cannot be built. Imports torch, after all that can be checked without it."""
    check_names(run)
    from benchmark.runs.build import check

    check(run)


def plan(
    spec: TableSpec,
    preset: str,
    seeds: Sequence[int] | None = None,
    extra: Mapping[str, Any] | None = None,
    chosen: Mapping[tuple[str, str], TunedValues] | None = None,
) -> Cells:
    """All cells of a table in a preset, without averages.

    ``seeds`` replace the table's own; ``extra`` are settings of all cells: paths and runtime, which are no part of a
    run's identity, and options of their data sets; ``chosen`` are tuned values of single cells.

    Raises:
        ConfigError: A cell cannot be composed; the message names table and cell.
    """
    seeds = spec.seed_range(preset) if seeds is None else seeds
    cells: Cells = {}
    for row, column in itertools.product(spec.rows, spec.run_columns):
        key = (row.key, column.key)
        tuned = (chosen or {}).get(key)
        layers = spec.layers(*key, preset)
        if layers is None or (spec.tuned_only and tuned is None):
            cells[key] = PlannedCell(*key, "not in this preset" if layers is None else "not tuned")
            continue
        changed = dict(flat(spec.changed(*key)))  # what a command says counts more than a tuned value
        if tuned is not None and changed.keys() & tuned.values.keys():
            tuned = replace(tuned, values={n: value for n, value in tuned.values.items() if n not in changed})
        cell = PlannedCell(*key, "ok", (), tuned)
        try:
            cells[key] = _with_runs(cell, preset, seeds, layers | _own_metrics(spec, layers), extra or {})
        except ValueError as error:
            raise _in_cell(spec, cell, error) from error
    return cells


def _own_metrics(spec: TableSpec, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The layer that asks for what the table shows and only a repository knows, beside what ``layers`` ask for."""
    shown = {spec.metric, *(column.metric for column in spec.columns if column.metric)}
    own = sorted(shown - METRICS.keys())
    asked = reduce(merge, layers.values(), dict[str, Any]()).get("evaluation", {}).get("metrics", [])
    return {f"metric of table {spec.name}": {"evaluation": {"metrics": [*asked, *own]}}} if own else {}


def _with_runs(
    cell: PlannedCell,
    preset: str,
    seeds: Sequence[int],
    layers: dict[str, dict[str, Any]],
    extra: Mapping[str, Any],
) -> PlannedCell:
    others = {key: value for key, value in extra.items() if key != "dataset"}
    plain = compose(preset, reduce(merge, layers.values(), {}), others)
    layers = {f"conf/preset/{preset}.yaml": load_group("preset", preset), **layers}
    options: dict[str, tuple[Any, Any]] = {}
    if given := extra.get("dataset", {}).get("options"):
        plain, options = with_dataset_options(plain, given)
        layers["command line"] = {"dataset": {"options": dict(given)}}
    if cell.chosen is not None:
        for name, value in cell.chosen.values.items():
            plain = set_value(plain, name, value, new="key")
        layers[f"tuned ({cell.chosen.source})"] = dict(cell.chosen.values)
    first = resolve(plain)
    runs = tuple(with_seed(first, seed) for seed in seeds)
    return replace(cell, runs=runs, options=options, layers=layers)


def check(spec: TableSpec, cells: Cells) -> None:
    """Raise `ConfigError`, naming table and cell, if a run names rules, a model or data that do not exist.

    Or if it is not evaluated in the rounds that the table shows.

    It is not a part of `plan` because it imports torch, which reading finished runs does not need.
    """
    for cell in cells.values():
        for run in cell.runs[:1]:
            evaluation = run.evaluation
            try:
                spec.round(run.preset).require(run.train.rounds, evaluation.every, evaluation.validation)
                check_run(run)
            except BrokenFile:  # these runs fail one by one, with this message; the others are carried out
                continue
            except ValueError as error:
                raise _in_cell(spec, cell, error) from error


def _in_cell(spec: TableSpec, cell: PlannedCell, error: ValueError) -> ConfigError:
    source = f" (with {', '.join(cell.chosen.values)} of {cell.chosen.source})" if cell.chosen else ""
    return ConfigError(f"table {spec.name}, row {cell.row}, column {cell.column}: {error}{source}")


def with_seed(config: RunConfig, seed: int) -> RunConfig:
    """The same configuration with another seed. The hash is copied, as it does not depend on the seed."""
    twin = config.model_copy(update={"seed": seed})
    twin.__dict__.update(hash=config.hash, label=config.label)
    return twin


def unique_runs(plans: Sequence[Cells]) -> dict[str, RunConfig]:
    """All runs of several tables by key, without duplicates."""
    return {run.key: run for cells in plans for cell in cells.values() for run in cell.runs}
