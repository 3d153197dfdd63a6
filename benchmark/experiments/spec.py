"""A table as data: rows (methods), columns (data, partition), and how both turn into the settings of a run.

One YAML file of ``conf/table`` is one `TableSpec`. The file says what the paper's table shows; the presets in it say
with which data, model and budget it is rebuilt. Nothing here trains or reads results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from benchmark.config.compose import group_names, load_group
from benchmark.config.merge import merge
from benchmark.errors import ConfigError, format_validation_error, nearest
from benchmark.paths import CONF

TABLE_FOLDER = CONF / "table"
"""Where the table files live."""

GROUPS = ("dataset", "partition", "model", "method", "selection")
"""Configuration groups; a plain name stands for the file of that name."""

SETTINGS = (*GROUPS, "train", "evaluation", "precision")
"""What a table may set. Seeds, paths, launcher and tracking are not a table's business."""

Overrides = dict[str, Any]


@dataclass(frozen=True)
class Metric:
    """How a recorded metric is shown: records hold fractions, tables percent; ``split`` is where it is recorded.

    ``of``: the recorded metric whose rounds are counted, for a metric that compares rows by when they reach something.
    """

    label: str
    higher_is_better: bool = True
    scale: float = 100.0
    unit: str = "%"
    split: str = "test"
    of: str = ""


METRICS = {
    "accuracy": Metric("Test accuracy"),
    "micro_f1": Metric("Micro-F1"),
    "worst_group_accuracy": Metric("Worst-group accuracy"),
    "balanced_accuracy": Metric("Balanced accuracy"),
    "loss": Metric("Test loss", higher_is_better=False, scale=1.0, unit=""),
    "eigenvalue_spread": Metric("Spread of the 50 largest eigenvalues", False, 1.0, ""),
    "eigenvalue_spread_class": Metric("Spread of the 50 largest eigenvalues within classes", False, 1.0, ""),
    "rounds_to_reach": Metric(
        "Rounds until the reference row's best test accuracy", False, 1.0, "", of="accuracy"
    ),
    "speedup": Metric(
        "Speed-up: rounds of the reference row until its best test accuracy, over those of the row",
        True,
        1.0,
        "",
        of="accuracy",
    ),
    "dht_error": Metric("Mean error of the estimated triplets", False, 1.0, "", "selection"),
    "dht_error_max": Metric("Largest error of the estimated triplets", False, 1.0, "", "selection"),
}


@dataclass(frozen=True)
class WhichRound:
    """Which round of a run counts. ``rule``: last, mean_last (of ``n`` evaluations), best_validation, best_test."""

    rule: str
    n: int = 1

    @classmethod
    def parse(cls, text: str) -> WhichRound:
        """Read ``last``, ``mean_last_<n>``, ``best_validation`` or ``best_test``; ValueError for anything else."""
        if text in ("last", "best_validation", "best_test"):
            return cls(text)
        match = re.fullmatch(r"mean_last_([1-9]\d*)", text)
        if not match:
            raise ValueError(f"came {text!r}; allowed: last, mean_last_<n>, best_validation, best_test")
        return cls("mean_last", int(match[1]))

    @property
    def phrase(self) -> str:
        """Words for a caption."""
        return {
            "last": "last round",
            "mean_last": f"mean of the last {self.n} evaluated rounds",
            "best_validation": "round with the best value on the validation split",
            "best_test": "best round on the test set (as the paper does; the test set selects)",
        }[self.rule]


def _normalise(overrides: Any) -> Overrides:
    """Check the top-level keys of ``overrides`` and write names of groups as ``{name: ...}``."""
    if not isinstance(overrides, Mapping):
        raise ValueError(f"came {overrides!r}; expected a mapping like {{train: {{rounds: 20}}}}")
    result: Overrides = {}
    for key, value in overrides.items():
        if key not in SETTINGS:
            raise ValueError(
                f"unknown setting {key!r}.{nearest(str(key), SETTINGS)} Allowed: {', '.join(SETTINGS)}"
            )
        if key in GROUPS and isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise ValueError(f"{key}: came {value!r}; expected a mapping")
        result[key] = merge({}, value)
    return result


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PresetPart(_Part):
    """What a row or a column is made of in one preset: ``overrides`` and a ``note`` on what differs from the paper."""

    note: str = ""
    overrides: Overrides = Field(default_factory=dict)


class Row(_Part):
    """A row: one method (with one client selection).

    Attributes:
        key: unique name of the row; also its ``method`` in the published CSV unless ``published`` says otherwise.
        label: name to print.
        method: name of a file in ``conf/method``.
        selection: name of a file in ``conf/selection``, or null for the run's default.
        own: True for a method that the paper itself proposes.
        published: columns of the published CSV that pick this row's numbers.
        overrides: settings of this row, the same in all presets.
        presets: settings of one preset on top, with a ``note`` that is printed below the table.
    """

    key: str
    label: str
    method: str
    selection: str | None = None
    own: bool = False
    published: dict[str, str] = Field(default_factory=dict)
    overrides: Overrides = Field(default_factory=dict)
    presets: dict[str, PresetPart] = Field(default_factory=dict)

    @field_validator("overrides", mode="before")
    @classmethod
    def _known_settings(cls, overrides: Any) -> Overrides:
        return _normalise(overrides)

    @field_validator("presets", mode="before")
    @classmethod
    def _split_note(cls, presets: Any) -> Any:
        return {name: _split(node, "note") for name, node in dict(presets or {}).items()}

    @property
    def published_key(self) -> dict[str, str]:
        """Column -> value in the published CSV."""
        return self.published or {"method": self.key}


class Column(_Part):
    """A column: one data set with its partition, or the average of other columns.

    Attributes:
        key: unique name of the column; also its ``setting`` in the published CSV.
        label: name to print.
        group: heading over neighbouring columns, or null.
        source: where in the paper the setting stands, and what the paper does not state.
        average_of: keys of the columns that this one averages, seed by seed; empty for a column of runs.
        overrides: settings in all presets.
        presets: settings of one preset, and optionally a ``note``; a preset without an entry has no such column.
    """

    key: str
    label: str
    group: str | None = None
    source: str = ""
    average_of: tuple[str, ...] = ()
    overrides: Overrides = Field(default_factory=dict)
    presets: dict[str, PresetPart] = Field(default_factory=dict)

    @field_validator("overrides", mode="before")
    @classmethod
    def _known_settings(cls, overrides: Any) -> Overrides:
        return _normalise(overrides)

    @field_validator("presets", mode="before")
    @classmethod
    def _split_note(cls, presets: Any) -> Any:
        return {name: _split(node, "note") for name, node in dict(presets or {}).items()}

    @model_validator(mode="after")
    def _runs_or_average(self) -> Column:
        if self.average_of and (self.overrides or self.presets):
            raise ValueError("a column with average_of has no overrides and no presets of its own")
        return self


class TablePreset(_Part):
    """What a preset changes for the whole table: number of ``seeds`` (null: the table's) and ``overrides``."""

    seeds: PositiveInt | None = None
    overrides: Overrides = Field(default_factory=dict)


def _split(node: Any, *own: str) -> dict[str, Any]:
    """Take the keys ``own`` out of a flat preset mapping; the rest are overrides."""
    node = dict(node or {})
    return {key: node.pop(key) for key in own if key in node} | {"overrides": _normalise(node)}


class CellSettings(_Part):
    """Settings of one cell, for hyper-parameters that the paper gives per cell."""

    row: str
    column: str
    overrides: Overrides = Field(default_factory=dict)

    @field_validator("overrides", mode="before")
    @classmethod
    def _known_settings(cls, overrides: Any) -> Overrides:
        return _normalise(overrides)


class TableSpec(_Part):
    """One table. See ``conf/table`` for examples and CONTRIBUTING for the keys.

    Attributes:
        name: file name without ``.yaml``; also the name of the table's outputs.
        paper, table: short name of the paper and number of its table (null for a table of our own).
        title, caption: what is shown; metric, round, spread and preset are added by the program.
        hyperparameters: how the values of the methods' hyper-parameters were chosen; what was tuned here, or that
            nothing was, is added by the program.
        metric, which_round: what is read from the records (see `METRICS`, `WhichRound`).
        reference_row: key of the row whose best value, seed by seed, the others are to reach (``rounds_to_reach``,
            ``speedup``).
        published, published_metric: CSV files under ``results/published`` and the ``metric`` to read from them.
        seeds: number of seeds (0, 1, ...), unless a preset says otherwise.
        overrides: settings of all cells in all presets.
    """

    name: str
    paper: str
    table: PositiveInt | None = None
    title: str
    caption: str = ""
    hyperparameters: str = ""
    metric: str
    which_round: str = "last"
    reference_row: str | None = None
    published: tuple[str, ...] = ()
    published_metric: str = ""
    seeds: PositiveInt = 3
    overrides: Overrides = Field(default_factory=dict)
    presets: dict[str, TablePreset] = Field(min_length=1)
    rows: tuple[Row, ...] = Field(min_length=1)
    columns: tuple[Column, ...] = Field(min_length=1)
    cells: tuple[CellSettings, ...] = ()

    @field_validator("overrides", mode="before")
    @classmethod
    def _known_settings(cls, overrides: Any) -> Overrides:
        return _normalise(overrides)

    @field_validator("presets", mode="before")
    @classmethod
    def _split_seeds(cls, presets: Any) -> Any:
        return {name: _split(node, "seeds") for name, node in dict(presets or {}).items()}

    @field_validator("published", mode="before")
    @classmethod
    def _one_or_more(cls, published: Any) -> Any:
        return (published,) if isinstance(published, str) else (published or ())

    @field_validator("metric")
    @classmethod
    def _known_metric(cls, metric: str) -> str:
        if metric not in METRICS:
            raise ValueError(
                f"unknown metric {metric!r}.{nearest(metric, METRICS)} Allowed: {', '.join(METRICS)}"
            )
        return metric

    @field_validator("which_round")
    @classmethod
    def _known_round(cls, which_round: str) -> str:
        WhichRound.parse(which_round)
        return which_round

    @model_validator(mode="after")
    def _consistent(self) -> TableSpec:
        _unique("rows", [row.key for row in self.rows])
        _unique("columns", [column.key for column in self.columns])
        _known("reference_row", [self.reference_row] if self.reference_row else [], self._rows)
        if bool(self.metric_format.of) != bool(self.reference_row):
            relative = ", ".join(name for name, shown in METRICS.items() if shown.of)
            raise ValueError(
                f"reference_row: came {self.reference_row!r} with metric {self.metric}; {relative} need a row, "
                "the other metrics have none"
            )
        runs = {column.key for column in self.columns if not column.average_of}
        for column in self.columns:
            _known(f"columns.{column.key}.average_of", column.average_of, runs)
            _known(f"columns.{column.key}.presets", column.presets, self.presets)
        for row in self.rows:
            _known(f"rows.{row.key}.presets", row.presets, self.presets)
        _known("cells.row", [cell.row for cell in self.cells], self._rows)
        _known("cells.column", [cell.column for cell in self.cells], runs)
        _unique("cells", [f"{cell.row} x {cell.column}" for cell in self.cells])
        return self

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return {row.key: row for row in self.rows}

    @cached_property
    def _columns(self) -> dict[str, Column]:
        return {column.key: column for column in self.columns}

    @property
    def run_columns(self) -> tuple[Column, ...]:
        """Columns that need runs: all but the averages."""
        return tuple(column for column in self.columns if not column.average_of)

    @property
    def metric_format(self) -> Metric:
        """How the metric is shown."""
        return METRICS[self.metric]

    @property
    def round(self) -> WhichRound:
        """Which round counts."""
        return WhichRound.parse(self.which_round)

    def row(self, key: str) -> Row:
        """The row called ``key``; `ConfigError` if there is none."""
        return self._pick("row", key, self._rows)

    def column(self, key: str) -> Column:
        """The column called ``key``; `ConfigError` if there is none."""
        return self._pick("column", key, self._columns)

    def preset(self, preset: str) -> TablePreset:
        """What ``preset`` changes for the whole table; `ConfigError` if the table has no such preset."""
        return self._pick("preset", preset, self.presets)

    def num_seeds(self, preset: str) -> int:
        """Number of seeds of a preset."""
        return self.preset(preset).seeds or self.seeds

    def cell_overrides(self, row: str, column: str, preset: str) -> Overrides | None:
        """Settings of one cell on top of the preset's file: table, column, row, cell, later ones win.

        Names of groups come as ``{name: ...}``. None if the column is not in this preset. Raises `ConfigError` for an
        unknown row, column or preset and for a column that is an average (it has no runs of its own).
        """
        chosen, where = self.row(row), self.column(column)
        table = self.preset(preset)
        if where.average_of:
            raise ConfigError(
                f"table {self.name}: column {column!r} averages other columns and has no runs of its own."
            )
        if preset not in where.presets:
            return None
        named: Overrides = {"method": {"name": chosen.method}}
        if chosen.selection is not None:
            named["selection"] = {"name": chosen.selection}
        own = [cell.overrides for cell in self.cells if (cell.row, cell.column) == (row, column)]
        merged: Overrides = {}
        layers = (self.overrides, table.overrides, where.overrides, where.presets[preset].overrides)
        for_row = [chosen.presets[preset].overrides] if preset in chosen.presets else []
        for layer in (*layers, named, chosen.overrides, *for_row, *own):
            merged = merge(merged, layer)
        return merged

    def cut(self, rows: Iterable[str], columns: Iterable[str]) -> TableSpec:
        """The same table with some of its rows and columns, in the table's order; its caption says that it is a part.

        Raises `ConfigError` for a key that the table does not have and for an average without all the columns it needs.
        """
        chosen_rows = {self.row(key).key for key in rows}
        chosen = {self.column(key).key for key in columns}
        for column in self.columns:
            lacking = [part for part in column.average_of if part not in chosen]
            if column.key in chosen and lacking:
                raise ConfigError(
                    f"table {self.name}: column {column.key!r} is the average of {', '.join(column.average_of)}; "
                    f"choose {', '.join(lacking)} too, or leave it out."
                )
        if self.reference_row and self.reference_row not in chosen_rows:
            raise ConfigError(
                f"table {self.name}: {self.metric} compares with row {self.reference_row!r}; choose it too."
            )
        if not chosen_rows or not chosen:
            raise ConfigError(f"table {self.name}: no row or no column is left; choose at least one of each.")
        if len(chosen_rows) == len(self.rows) and len(chosen) == len(self.columns):
            return self
        rows_text, columns_text = (
            f"{len(chosen_rows)} of {len(self.rows)}",
            f"{len(chosen)} of {len(self.columns)}",
        )
        part = f"{rows_text} rows and {columns_text} columns are shown."
        return self.with_(
            caption=f"{self.caption} {part}".strip(),
            rows=tuple(row for row in self.rows if row.key in chosen_rows),
            columns=tuple(column for column in self.columns if column.key in chosen),
            cells=tuple(cell for cell in self.cells if cell.row in chosen_rows and cell.column in chosen),
        )

    def with_(self, **changes: Any) -> TableSpec:
        """The same table with other values of some attributes, which fit together."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_construct(**(fields | changes))

    def _pick(self, what: str, key: str, known: Mapping[str, Any]) -> Any:
        if key not in known:
            raise ConfigError(
                f"table {self.name}: no {what} is called {key!r}.{nearest(key, known)} Known: {', '.join(known)}."
            )
        return known[key]


def _unique(what: str, keys: list[str]) -> None:
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ValueError(f"{what}: {', '.join(twice)} comes twice")


def _known(what: str, keys: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for key in keys:
        if key not in known:
            raise ValueError(f"{what}: unknown {key!r}.{nearest(key, known)} Known: {', '.join(known)}")


def load_spec(path: Path | str) -> TableSpec:
    """Read one table file.

    Raises `ConfigError`, naming the file and the key, if it cannot be read, is no YAML or does not fit `TableSpec`.
    """
    path = Path(path)
    try:
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"table file {path} cannot be read: {error.strerror or error}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"table file {path} is no valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(node, Mapping):
        raise ConfigError(
            f"table file {path}: came {type(node).__name__}; expected a mapping with rows and columns."
        )
    try:
        spec = TableSpec.model_validate({"name": path.stem, **node})
    except ValidationError as error:
        message = format_validation_error(error, TableSpec, whole="table")
        raise ConfigError(f"table file {path}: {message}") from error
    if spec.table is not None and path.stem != f"{spec.paper}_table{spec.table}":
        raise ConfigError(f"table file {path}: it holds table {spec.table} of {spec.paper}, so it must be called "
                          f"{spec.paper}_table{spec.table}.yaml.")  # fmt: skip
    return spec


def _with_guests(spec: TableSpec) -> TableSpec:
    """The table with a row for every method whose file names it under ``tables`` (names or patterns)."""
    rows = list(spec.rows)
    for name in group_names("method"):
        method = load_group("method", name)
        wanted = method.get("tables") or []
        if not isinstance(wanted, list) or not all(isinstance(pattern, str) for pattern in wanted):
            raise ConfigError(
                f"conf/method/{name}.yaml: tables: came {wanted!r}; expected a list of names or patterns of "
                'conf/table, like ["*_table1", leaderboard].'
            )
        if any(fnmatchcase(spec.name, pattern) for pattern in wanted) and name not in {
            row.key for row in rows
        }:
            rows.append(Row(key=name, label=str(method.get("label", name)), method=name))
    return spec if len(rows) == len(spec.rows) else spec.with_(rows=tuple(rows))


def find_specs(
    paper: str | None = None, table: int | None = None, folder: Path = TABLE_FOLDER
) -> list[TableSpec]:
    """All tables of ``folder``, or those of one paper, or with one number, in the order of their names.

    Methods of ``conf/method`` whose file asks for it (``tables:``) have a row at the end. Raises `ConfigError` if none
    fits, naming what there is.
    """
    specs = [_with_guests(load_spec(path)) for path in sorted(folder.glob("*.yaml"))]
    papers = sorted({spec.paper for spec in specs})
    if paper is not None and paper not in papers:
        raise ConfigError(
            f"no table of a paper called {paper!r} in {folder}.{nearest(paper, papers)} Known: {', '.join(papers)}."
        )
    found = [spec for spec in specs if paper in (None, spec.paper) and table in (None, spec.table)]
    if not found:
        there = ", ".join(spec.name for spec in specs if paper in (None, spec.paper)) or "none"
        raise ConfigError(f"no table {table} in {folder}. There is: {there}.")
    return found


def spec_called(name: str, where: str = "name", folder: Path = TABLE_FOLDER) -> TableSpec:
    """The table of ``folder`` called ``name``; `ConfigError`, which calls it ``where``, if there is none."""
    every = {spec.name: spec for spec in find_specs(folder=folder)}
    if name not in every:
        raise ConfigError(
            f"{where}: came {name!r}.{nearest(name, every)} Allowed: {', '.join(every)} (conf/table/)."
        )
    return every[name]
