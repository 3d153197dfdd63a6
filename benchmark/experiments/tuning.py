"""Tuning: what is tried in each cell, the choice among it, and the file of chosen values.

``conf/tune/<method>.yaml`` holds the grid of a method. Trials are compared by their results on a validation split that
is held out of the clients' training data, never by test results. ``results/tuned/<preset>/<table>.yaml`` holds the
chosen values of each cell and the results of all trials; runs of tables take the values from there.
"""

import itertools
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import BeforeValidator, ConfigDict, Field, PositiveInt, field_validator

from benchmark.config.files import FileModel, read_model, shown_path
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.plan import TunedValues
from benchmark.experiments.spec import TableSpec
from benchmark.paths import ROOT, conf_file, conf_files
from benchmark.runs.files import write_with_folder

COMMITTED = ROOT / "results" / "tuned"
"""Tuned values that come with the project."""

METHOD = ("method.client.", "method.server.", "method.prediction.")
TRAINING = ("train.lr", "train.momentum", "train.weight_decay")
"""The settings that may be tuned; data, model and budget are the same for all rows."""

Value = bool | int | float | str
Values = dict[str, Value]
"""A point of a grid: dotted name of a setting -> value."""

CellKey = tuple[str, str]


def _number(value: Any) -> Any:
    """YAML reads ``1e-5`` as text; only ``1.0e-5`` is a number to it."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", value):
        return float(value)
    return value


class SearchGrid(FileModel):
    """The values to try of each parameter of a method."""

    method: str = Field(description="name of a file of `conf/method`; also the name of this file")
    grid: dict[str, tuple[Annotated[Value, BeforeValidator(_number)], ...]] = Field(
        min_length=1,
        description="setting → list of values; all combinations are tried. Settings are "
        f"{', '.join(f'`{key}*`' for key in METHOD)} and {', '.join(f'`{key}`' for key in TRAINING)}",
    )

    @field_validator("grid")
    @classmethod
    def _can_be_tuned(cls, grid: dict[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
        for key, values in grid.items():
            if not key.startswith(METHOD) and key not in TRAINING:
                raise ValueError(f"{key} cannot be tuned; expected {', '.join((*METHOD, *TRAINING))}")
            if not values or len(set(values)) < len(values):
                raise ValueError(wrong(key, list(values), "at least one value, and none twice"))
        return grid

    @property
    def points(self) -> list[Values]:
        """The full product, the last parameter changing fastest."""
        return [dict(zip(self.grid, point, strict=True)) for point in itertools.product(*self.grid.values())]


STEPS, MOMENTA = range(-4, 5), (0.0, 0.9)
"""What trials draw from: effective rates in steps of a factor of sqrt(3) from FedAvg's, and client momenta."""

FINALISTS, MORE_SEEDS = 2, 3
"""The best trials, which are compared with so many seeds more."""


def drawn_trials(lr: float, momentum: float, grid: SearchGrid | None, number: int, name: str) -> list[Values]:
    """``number`` different trials of a cell, drawn by the column's ``name`` alone: all rows try the same rates.

    A trial has an effective rate lr / (1 - momentum), a client momentum, and a value of the first parameter of
    ``grid`` that is not one of training, if there is one. ``lr`` and ``momentum`` are FedAvg's in this column.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    pairs = list(itertools.product(STEPS, MOMENTA))
    trials = []
    for index in rng.permutation(len(pairs))[:number]:
        step, other = pairs[index]
        rate = lr / (1 - momentum) * 3 ** (step / 2) * (1 - other)
        trials.append({"train.lr": float(f"{rate:.3g}"), "train.momentum": other})
    mains = (
        [(key, values) for key, values in grid.grid.items() if not key.startswith(TRAINING)] if grid else []
    )
    for key, values in mains[:1]:
        rounds = -(-number // len(values))  # every value about equally often
        order = np.concatenate([rng.permutation(len(values)) for _ in range(rounds)])[:number]
        trials = [{**trial, key: values[place]} for trial, place in zip(trials, order, strict=True)]
    return trials


def load_grid(method: str) -> SearchGrid:
    """The grid of ``method``; `ConfigError`, naming the file, if it does not exist or does not fit."""
    path = conf_file("tune", method)
    if path is None:
        methods = conf_files("tune")
        expected = f"trials=N, or a method with a grid (conf/tune/): {', '.join(methods)}"
        raise ConfigError(wrong("method", method, expected, known=methods))
    return read_model(SearchGrid, path, "grid")


class Point(FileModel):
    """The result of one trial in one cell.

    Attributes:
        values: Dotted name of a setting -> value.
        validation: Mean over the seeds of the metric on the validation split (accuracies are fractions); null if a run
            diverged or collapsed.
        diverged: Number of runs that diverged or collapsed.
        runs: Folders of the runs.
        cpu_seconds: Their seconds times their threads.
    """

    model_config = ConfigDict(extra="ignore")  # files of earlier versions say more

    values: Values
    validation: float | None = None
    diverged: int = 0
    runs: tuple[str, ...] = ()
    cpu_seconds: float | None = None


def mean_of_all(reached: Sequence[float | None]) -> tuple[float | None, int]:
    """Mean of the validation values of a trial, one per seed, and the number of failures (None, NaN, infinite).

    None if there are failures: the mean of the others would favour values that only sometimes work.
    """
    good = [value for value in reached if value is not None and math.isfinite(value)]
    failed = len(reached) - len(good)
    return (math.fsum(good) / len(good) if good and not failed else None), failed


def ranked(points: Sequence[Point], higher_is_better: bool) -> list[int]:
    """Indices of the points, the best first and equal ones in their order, without those that failed."""
    scores = {index: point.validation for index, point in enumerate(points) if point.validation is not None}
    return sorted(scores, key=lambda index: -scores[index] if higher_is_better else scores[index])


def at_edge(points: Sequence[Point], chosen: Values) -> tuple[str, ...]:
    """The settings whose chosen number is the smallest or the largest of three or more that were tried."""
    tried = {key: {point.values[key] for point in points if key in point.values} for key in chosen}
    numbers = {key: sorted(v for v in values if isinstance(v, int | float)) for key, values in tried.items()}
    return tuple(key for key, v in numbers.items() if len(v) > 2 and chosen[key] in (v[0], v[-1]))


class TunedCell(FileModel):
    """The chosen values of one cell, and the runs that chose them.

    Attributes:
        method: Name of the row's method.
        chosen: Dotted name of a setting -> value.
        metric, which_round: What was compared.
        split: Share of every client's training data that was held out.
        seeds: Number of seeds.
        columns: Columns by whose mean the values were chosen (files of earlier versions); otherwise the cell alone.
        command, commit: The search, and the version of the code.
        at_edge: Settings whose chosen number is at an edge of the grid.
        grid: All points.
    """

    model_config = ConfigDict(extra="ignore")

    method: str
    chosen: Values = Field(min_length=1)
    metric: str
    which_round: str
    split: float = Field(gt=0, lt=1)
    seeds: PositiveInt
    columns: tuple[str, ...] = ()
    command: str = ""
    commit: str = ""
    at_edge: tuple[str, ...] = ()
    grid: tuple[Point, ...] = ()


class TunedTable(FileModel):
    """A file of ``results/tuned``: row -> column -> cell."""

    table: str
    preset: str
    cells: dict[str, dict[str, TunedCell]] = Field(default_factory=dict)


@dataclass(frozen=True)
class TunedFolder:
    """The folders of tuned values; the first one that has a file for a table counts."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, option: str | None, results: Path) -> "TunedFolder":
        """The folder ``option``, none for ``off``, or for None those of the results folder and of the project."""
        if option == "off":
            return cls(())
        if option is None:
            return cls((results / "tuned", COMMITTED))
        if not Path(option).is_dir():
            raise ConfigError(wrong("tuned", option, "a folder that `tune` has written, or off"))
        return cls((Path(option),))

    def find(self, preset: str, table: str) -> Path | None:
        """The file of a table, if there is one."""
        paths = (folder / preset / f"{table}.yaml" for folder in self.folders)
        return next((path for path in paths if path.is_file()), None)

    def read(self, spec: TableSpec, preset: str) -> TunedTable:
        """The content of a table's file, without cells if there is none.

        Raises:
            ConfigError: The file is not one of this table and preset.
        """
        path = self.find(preset, spec.name)
        if path is None:
            return TunedTable(table=spec.name, preset=preset)
        tuned = read_model(TunedTable, path, "tuned")
        for what, got, expected in (("table", tuned.table, spec.name), ("preset", tuned.preset, preset)):
            if got != expected:
                raise ConfigError(f"tuned file {path}: {wrong(what, got, repr(expected))}")
        return tuned

    def load(self, spec: TableSpec, preset: str) -> dict[CellKey, TunedValues]:
        """The chosen values of a whole table (not of a part); empty without a file.

        Raises:
            ConfigError: A cell that the table does not have, or whose row has another method.
        """
        path = self.find(preset, spec.name)
        if path is None:
            return {}
        source, result, rows = shown_path(path), {}, {row.key for row in spec.rows}
        for row, cells in self.read(spec, preset).cells.items():
            for column, cell in cells.items():
                try:
                    if row in rows or row != cell.method:  # a row that rows= added is called like its method
                        _check_cell(spec, row, column, cell)
                except ConfigError as error:
                    said = f"row {row}: {error} Delete the entry, or set tuned=off."
                    raise ConfigError(f"tuned file {path}: {said}") from error
                result[row, column] = TunedValues(cell.chosen, source, cell.split, cell.seeds, cell.columns)
        return result


def _check_cell(spec: TableSpec, row: str, column: str, cell: TunedCell) -> None:
    columns = [column.key for column in spec.run_columns]
    if column not in columns:
        raise ConfigError(wrong("column", column, f"a column of table {spec.name} with runs", known=columns))
    for what, got, wanted, whose in (
        ("method", cell.method, spec.row(row).method_name, "row"),
        ("metric", cell.metric, spec.of_column(column).metric, "column"),
    ):
        if got != wanted:
            expected = f"{wanted}, the {what} of the {whose}"
            raise ConfigError(wrong(f"column {column}: {what}", got, expected))


def write_tuned(folder: Path, before: TunedTable, cells: Mapping[CellKey, TunedCell]) -> Path:
    """Write ``before`` with ``cells`` on top as ``<folder>/<preset>/<table>.yaml``, whole or not at all.

    Raises `StorageError` if the folder cannot be written.
    """
    merged = {row: dict(columns) for row, columns in before.cells.items()}
    for (row, column), cell in cells.items():
        merged.setdefault(row, {})[column] = cell
    plain = before.model_copy(update={"cells": merged}).model_dump(mode="json", exclude_none=True)
    path = folder / before.preset / f"{before.table}.yaml"
    head = "# Written by `python -m benchmark tune`. Table runs take the chosen values from here.\n"
    write_with_folder(path, (head + yaml.safe_dump(plain, sort_keys=False, width=120)).encode())
    return path
