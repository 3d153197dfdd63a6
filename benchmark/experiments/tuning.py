"""Grid search: the grid of a method, the choice among its points, and the file that table runs take the choice from.

``conf/tune/<method>.yaml`` holds the grid. A point is judged by what its runs reach on a validation split held out of
the clients' training data; no function here is given a value of the test set. ``results/tuned/<preset>/<table>.yaml``
holds the chosen values of each cell beside the numbers that chose them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator

from benchmark.errors import ConfigError, format_validation_error, nearest
from benchmark.experiments.plan import TunedValues
from benchmark.experiments.spec import TableSpec
from benchmark.paths import CONF
from benchmark.runs.files import storage_error, write_atomically

ROOT = CONF.parent
COMMITTED = ROOT / "results" / "tuned"
"""Tuned values that come with the project."""

TRAINING = ("train.lr", "train.momentum", "train.weight_decay")
"""What may be tuned beside the method: data, model and budget are the same for all rows."""

Value = bool | int | float | str
Values = dict[str, Value]
"""A point of a grid: dotted name of a setting -> value."""

CellKey = tuple[str, str]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


# The grid --------------------------------------------------------------------------------------------------------


def _number(value: Any) -> Any:
    """YAML reads ``1e-5`` as text (only ``1.0e-5`` is a number to it); nobody means the text."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", value):
        return float(value)
    return value


class Grid(_Part):
    """A file of ``conf/tune``: the method, and the values to try of each of its parameters."""

    method: str
    grid: dict[str, tuple[Value, ...]] = Field(min_length=1)

    @field_validator("grid", mode="before")
    @classmethod
    def _lists(cls, grid: Any) -> Any:
        if not isinstance(grid, Mapping) or not grid:
            raise ValueError(f"came {grid!r}; expected like {{method.client.fedprox.mu: [0.01, 0.1]}}")
        for key, values in grid.items():
            own = str(key).startswith(("method.client.", "method.server.", "method.prediction."))
            if not own and key not in TRAINING:
                allowed = ", ".join(TRAINING)
                raise ValueError(f"{key}: cannot be tuned. Allowed: method.client..., method.server..., "
                                 f"method.prediction..., {allowed}")  # fmt: skip
            if not isinstance(values, Sequence) or isinstance(values, str) or not values:
                raise ValueError(f"{key}: came {values!r}; expected a list with at least one value")
        return {key: tuple(_number(value) for value in values) for key, values in grid.items()}

    @field_validator("grid")
    @classmethod
    def _different(cls, grid: dict[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
        for key, values in grid.items():
            if len(set(values)) < len(values):
                raise ValueError(f"{key}: a value comes twice in {list(values)}")
        return grid

    @property
    def points(self) -> list[Values]:
        """The full product, the last parameter changing fastest."""
        return [dict(zip(self.grid, point, strict=True)) for point in itertools.product(*self.grid.values())]


def grid_path(method: str, folder: Path | None = None) -> Path:
    """Where the grid of ``method`` stands."""
    return (folder or CONF / "tune") / f"{method}.yaml"


def load_grid(method: str, folder: Path | None = None) -> Grid:
    """The grid of ``method``; `ConfigError`, naming the file, for one that is not there or does not fit."""
    path = grid_path(method, folder)
    if not path.is_file():
        known = sorted(other.stem for other in path.parent.glob("*.yaml"))
        raise ConfigError(
            f"method: came {method!r}; there is no grid for it.{nearest(method, known)} "
            f"Allowed: {', '.join(known)} (conf/tune/)."
        )
    grid = _read(Grid, path, "grid")
    if grid.method != method:
        raise ConfigError(f"grid file {path}: method: came {grid.method!r}; the file's name says {method!r}.")
    return grid


def _read(cls: type[Any], path: Path, what: str) -> Any:
    try:
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{what} file {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(node, Mapping):
        raise ConfigError(f"{what} file {path}: came {type(node).__name__}; expected a mapping.")
    try:
        return cls.model_validate(node)
    except ValidationError as error:
        message = format_validation_error(error, cls, whole=what)
        raise ConfigError(f"{what} file {path}: {message}") from error


# The choice ------------------------------------------------------------------------------------------------------


class Point(_Part):
    """What one point of a grid reached in one cell.

    Attributes:
        values: dotted name of a setting -> value.
        validation: mean over the seeds of the metric on the validation split, as recorded (accuracies as fractions);
            null if a run diverged.
        diverged: number of runs that diverged.
        over_columns: where columns share their values, the mean of ``validation`` over them; null if one has none.
        runs: the runs' folders.
    """

    values: Values
    validation: float | None = None
    diverged: int = 0
    over_columns: float | None = None
    runs: tuple[str, ...] = ()


def point(values: Values, found: Sequence[float | None], runs: Sequence[str] = ()) -> Point:
    """A point from the values on the validation split of its runs, one per seed; None or NaN for one that diverged."""
    good = [value for value in found if value is not None and math.isfinite(value)]
    mean = math.fsum(good) / len(good) if good and len(good) == len(found) else None
    return Point(values=values, validation=mean, diverged=len(found) - len(good), runs=tuple(runs))


def best(scores: Sequence[float | None], higher_is_better: bool) -> int | None:
    """Index of the best score; of equal ones the first; None if there is none. None as a score loses to any other."""
    sign = 1.0 if higher_is_better else -1.0
    known = [index for index, score in enumerate(scores) if score is not None]
    return max(known, key=lambda index: sign * (scores[index] or 0.0), default=None)


def shared(columns: Sequence[Sequence[Point]]) -> list[list[Point]]:
    """The same points with their mean over the columns; every column holds the same grid in the same order."""
    result: list[list[Point]] = [[] for _ in columns]
    for several in zip(*columns, strict=True):
        found = [each.validation for each in several if each.validation is not None]
        mean = math.fsum(found) / len(found) if len(found) == len(several) else None
        for target, each in zip(result, several, strict=True):
            target.append(each.model_copy(update={"over_columns": mean}))
    return result


# The file --------------------------------------------------------------------------------------------------------


class TunedCell(_Part):
    """The chosen values of one cell and what they rest on.

    ``share``: ``column`` where the cell chose for itself, ``row`` where one choice was made for ``columns`` together; a
    column that is not one of these took their choice and has no ``grid``.
    ``split`` is the share of every client's training data that was held out.
    """

    method: str
    chosen: Values = Field(min_length=1)
    metric: str
    which_round: str
    split: float = Field(gt=0, lt=1)
    seeds: PositiveInt
    share: Literal["column", "row"] = "column"
    columns: tuple[str, ...] = ()
    command: str = ""
    commit: str = ""
    grid: tuple[Point, ...] = ()


class TunedTable(_Part):
    """A file of ``results/tuned``: row -> column -> cell."""

    table: str
    preset: str
    cells: dict[str, dict[str, TunedCell]] = Field(default_factory=dict)


@dataclass(frozen=True)
class TunedFolder:
    """Where chosen values are looked for: the first folder that has a file for the table."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, option: str | None, results: Path) -> TunedFolder:
        """``tuned=`` of the command line: a folder, ``off``, or nothing (beside the runs, else the committed ones)."""
        if option == "off":
            return cls(())
        if option is None:
            return cls((results / "tuned", COMMITTED))
        if not Path(option).is_dir():
            raise ConfigError(
                f"tuned: there is no folder {option!r}. Allowed: a folder that `tune` has written, or off."
            )
        return cls((Path(option),))

    def find(self, preset: str, table: str) -> Path | None:
        """The file of a table, if there is one."""
        paths = (folder / preset / f"{table}.yaml" for folder in self.folders)
        return next((path for path in paths if path.is_file()), None)

    def load(self, spec: TableSpec, preset: str) -> dict[CellKey, TunedValues]:
        """The chosen values of a whole table (not of a part); empty without a file.

        Raises `ConfigError`, naming the file, for a cell that the table does not have or whose row has another method.
        """
        path = self.find(preset, spec.name)
        return {} if path is None else _chosen(read_tuned(path, spec, preset), spec, path)


def read_tuned(path: Path, spec: TableSpec, preset: str) -> TunedTable:
    """The content of a file; `ConfigError` if it is not one of this table and preset."""
    tuned: TunedTable = _read(TunedTable, path, "tuned")
    if (tuned.table, tuned.preset) != (spec.name, preset):
        raise ConfigError(
            f"tuned file {path}: it is of table {tuned.table}, preset {tuned.preset}; "
            f"here belongs {spec.name}, {preset}."
        )
    return tuned


def _chosen(tuned: TunedTable, spec: TableSpec, path: Path) -> dict[CellKey, TunedValues]:
    source = shown_path(path)
    remedy = "Delete the entry (and tune again where it is needed), or give tuned=off."
    rows = {row.key: row for row in spec.rows}
    columns = [column.key for column in spec.run_columns]
    result = {}
    for row, cells in tuned.cells.items():
        if row not in rows:
            raise ConfigError(
                f"tuned file {path}: table {spec.name} has no row {row!r}.{nearest(row, rows)} {remedy}"
            )
        for column, cell in cells.items():
            if column not in columns:
                raise ConfigError(
                    f"tuned file {path}: row {row}: table {spec.name} has no column {column!r} of runs."
                    f"{nearest(column, columns)} {remedy}"
                )
            if cell.method != rows[row].method_name:
                raise ConfigError(
                    f"tuned file {path}: row {row}, column {column}: the values are of method {cell.method}, "
                    f"the row's is {rows[row].method_name}. {remedy}"
                )
            result[row, column] = TunedValues(cell.chosen, source, cell.split, cell.seeds, cell.columns)
    return result


def shown_path(path: Path) -> str:
    """A path for captions and messages: below the project as it is there, otherwise its last three parts."""
    whole = path.resolve()
    return "/".join(whole.relative_to(ROOT).parts if whole.is_relative_to(ROOT) else whole.parts[-3:])


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, path) from error
    write_atomically(path, (head + yaml.safe_dump(plain, sort_keys=False, width=120)).encode())
    return path
