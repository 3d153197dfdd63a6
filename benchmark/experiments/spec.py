"""A table as data: its rows (methods), its columns (data and partition) and the settings of their cells.

One YAML file of ``conf/table`` is one `TableSpec`. Nothing here trains or reads results.
"""

import itertools
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Annotated, Any, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from benchmark.config.compose import group_names
from benchmark.config.files import FileModel
from benchmark.config.merge import merge
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.metrics import METRICS, Metric, WhichRound, format_of
from benchmark.experiments.parts import Column, Override, Row
from benchmark.experiments.patterns import fits, matching

T = TypeVar("T")


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, str) else (value or ())


class TableSpec(FileModel):
    """One table: a grid of rows and columns, and the settings of its cells.

    The settings of a cell are put together from general to special, and the later value wins: the preset's file of
    ``conf/preset``, the matching entries of ``overrides`` in their order, what the column sets, what the row sets.

    A file with ``extends: NAME`` starts from the file ``conf/table/NAME.yaml``; a file whose name begins with an
    underscore is no table itself. Its own keys replace those of the other file, but for three lists: its ``overrides``
    are added at the end; an entry of its ``rows`` or ``columns`` is a key or pattern that takes over rows or columns,
    or a mapping, which changes what it takes over with its ``key``, or is new.
    """

    name: str
    paper: str = Field("", description="short name of the paper; if left out: the name of the file")
    short: str = Field("", description="name in the navigation of the report; if left out: `paper`")
    table: PositiveInt | None = Field(
        None, description="number in the paper; the file is then called `PAPER_tableNUMBER.yaml`"
    )
    title: str = Field(description="heading of the table")
    caption: str = Field(
        "",
        description="what is shown; metric, round and spread are added to it, of a paper's table also the preset",
    )
    hyperparameters: str = Field(
        "", description="how the methods' hyper-parameters were chosen; what was tuned is added to it"
    )
    metric: str = Field(title="|".join(METRICS), description="what the cells show")
    reference_row: str | None = Field(
        None, description="key of the row that the others are compared with, for metrics that compare rows"
    )
    published: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] = Field(
        (),
        title="text or list",
        description="files of `results/published` with the numbers that a paper prints",
    )
    reproductions: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] = Field(
        (),
        title="text or list",
        description="files of `results/published` with the numbers that others measured at the paper's conditions",
    )
    published_metric: str = Field(
        "", description="`metric` to read from them; if left out: that of the table"
    )
    presets: tuple[str, ...] = Field(("quick",), min_length=1, description="presets that the table has")
    which_round: dict[str, str] = Field(
        "last",
        validate_default=True,
        title="last, mean_last_N, mean_until_N, best_validation, best_test, or a mapping",
        description="the round that counts, for all presets or by preset",
    )
    seeds: dict[str, PositiveInt] = Field(
        3,
        validate_default=True,
        title="integer > 0, or a mapping",
        description="number of seeds, for all presets or by preset",
    )
    first_seed: NonNegativeInt = Field(0, description="the first of them; the others follow it")
    rows: tuple[Row, ...] = Field(min_length=1, description="the rows; see below")
    columns: tuple[Column, ...] = Field(min_length=1, description="the columns; see below")
    overrides: tuple[Override, ...] = Field((), description="settings of cells; see below")
    tuned_only: bool = Field(False, description="whether only cells with tuned values have runs")
    is_part: bool = False  # whether rows or columns are left out, added or changed
    changes: tuple[Override, ...] = ()  # settings of cells that a command changes

    @field_validator("which_round", "seeds", mode="before")
    @classmethod
    def _by_preset(cls, value: Any, info: ValidationInfo) -> Any:
        return value if isinstance(value, dict) else dict.fromkeys(info.data.get("presets", ()), value)

    @model_validator(mode="before")
    @classmethod
    def _named_after_file(cls, values: Any) -> Any:
        named = {"paper": values.get("paper") or values.get("name")} if isinstance(values, dict) else {}
        return values | named if named else values

    @model_validator(mode="after")
    def _consistent(self) -> "TableSpec":
        format_of(self.metric)
        rows, columns = [row.key for row in self.rows], [column.key for column in self.columns]
        for what, keys in (("rows", rows), ("columns", columns)):
            twice = sorted({key for key in keys if keys.count(key) > 1})
            if twice:
                raise ValueError(f"{what}: {', '.join(twice)} is there twice")
        runs = [column.key for column in self.run_columns]
        for row in self.rows:
            _check_known(f"rows.{row.key}.base", row.base or (), rows)
        for column in self.columns:
            _check_known(f"columns.{column.key}.average_of", column.average_of, runs)
            _check_known(f"columns.{column.key}.presets", column.presets, self.presets)
            key, own = f"columns.{column.key}.metric", column.metric or self.metric
            formats = format_of(own, key), self.metric_format
            if len({(shown.unit, shown.scale, shown.higher_is_better) for shown in formats}) > 1:
                raise ValueError(wrong(key, own, f"one with the unit and the direction of {self.metric}"))
        for what, by_preset in (("which_round", self.which_round), ("seeds", self.seeds)):
            _check_known(what, by_preset, group_names("preset"))
            _check_known(f"{what}: presets without a value", self.presets, by_preset)
        for rule in self.which_round.values():
            WhichRound.parse(rule)
        for number, entry in enumerate(self.overrides):
            for what, names in (("row", rows), ("column", runs), ("preset", self.presets)):
                matching(names, getattr(entry, what), f"overrides.{number}.{what}", "the table")
        if self.reference_row:
            _check_known("reference_row", self.reference_row, rows)
        if bool(self.metric_format.of) != bool(self.reference_row):
            relative = " and ".join(name for name, metric in METRICS.items() if metric.of)
            expected = f"a row with metric {relative}, and null with the other metrics"
            raise ValueError(wrong("reference_row", self.reference_row, expected))
        return self

    @property
    def run_columns(self) -> tuple[Column, ...]:
        """Columns that need runs: all but the averages."""
        return tuple(column for column in self.columns if not column.average_of)

    @property
    def base_row(self) -> Row:
        """The row that the others are compared with: FedAvg with uniform selection, as far as there is one."""
        return min(
            self.rows, key=lambda r: (r.method_name != "fedavg", r.selection_name not in (None, "uniform"))
        )

    def base_of(self, row: Row) -> Row:
        """The row that a row is compared with; itself if with none, as where its own base was left out."""
        bases = {one.key: one for one in self.rows}
        return bases.get(row.base, row) if row.base else self.base_row

    @property
    def metric_format(self) -> Metric:
        """How the metric is shown."""
        return format_of(self.metric)

    def of_column(self, column: str) -> "TableSpec":
        """The table with the metric of one of its columns."""
        return self.model_copy(update={"metric": self.column(column).metric or self.metric})

    def round(self, preset: str) -> WhichRound:
        """Which round counts in a preset; `ConfigError` if the table has no such preset."""
        return WhichRound.parse(self._one("preset", preset, self.which_round))

    def row(self, key: str) -> Row:
        """The row called ``key``; `ConfigError` if there is none."""
        return self._one("row", key, {row.key: row for row in self.rows})

    def column(self, key: str) -> Column:
        """The column called ``key``; `ConfigError` if there is none."""
        return self._one("column", key, {column.key: column for column in self.columns})

    def seed_range(self, preset: str, count: int | None = None) -> range:
        """The seeds of a preset, or its first ``count``; `ConfigError` if the table has no such preset."""
        planned = self._one("preset", preset, self.seeds)
        return range(self.first_seed, self.first_seed + (planned if count is None else count))

    def check_preset(self, preset: str) -> None:
        """Raise `ConfigError` if the table has no such preset."""
        self.seed_range(preset)

    def _one(self, what: str, key: str, known: Mapping[str, T]) -> T:
        if key not in known:
            expected = f"one of {', '.join(known)}"
            raise ConfigError(f"table {self.name}: {wrong(what, key, expected, known=known)}")
        return known[key]

    def layers(self, row: str, column: str, preset: str) -> dict[str, dict[str, Any]] | None:
        """What sets the settings of a cell on top of the preset's file, in order: where it is set -> settings.

        None if the column is not in this preset. Groups come as ``{name: ...}``. `ConfigError` for an average.
        """
        of_row, of_column = self.row(row), self.column(column)
        self.check_preset(preset)
        if of_column.average_of:
            raise ConfigError(
                f"table {self.name}: column {column!r} averages other columns and has no runs of its own."
            )
        if preset not in (of_column.presets or self.presets):
            return None
        matching_ones = {
            f"override {number} of table {self.name}": entry.settings
            for number, entry in enumerate(self.overrides, start=1)
            if entry.matches(row, column, preset)
        }
        own = {f"column {column}": of_column.settings, f"row {row}": of_row.settings}
        changed = self.changed(row, column)
        return matching_ones | own | ({"command line": changed} if changed else {})

    def changed(self, row: str, column: str) -> dict[str, Any]:
        """What a command changes in a cell."""
        changes = [change.settings for change in self.changes if change.matches(row, column, "")]
        return reduce(merge, changes, dict[str, Any]())

    def is_changed(self, row: Row, column: Column) -> bool:
        """Whether a command changes the runs that make a cell."""
        rows = filter(None, (row.key, self.reference_row))
        return any(itertools.starmap(self.changed, itertools.product(rows, (column.key, *column.average_of))))

    def cell_settings(self, row: str, column: str, preset: str) -> dict[str, Any] | None:
        """The `layers` of one cell on top of each other."""
        layers = self.layers(row, column, preset)
        return None if layers is None else reduce(merge, layers.values(), dict[str, Any]())

    def column_note(self, column: str, preset: str) -> str:
        """What differs from the paper in a column, in all rows."""
        return self._note(preset, [e for e in self.overrides if e.row == "*" and fits(column, e.column)])

    def row_note(self, row: str, preset: str) -> str:
        """What differs from the paper in a row."""
        return self._note(preset, [e for e in self.overrides if e.row != "*" and fits(row, e.row)])

    def _note(self, preset: str, entries: list[Override]) -> str:
        return next((e.note for e in reversed(entries) if e.note and fits(preset, e.preset)), "")

    def cut(self, rows: Iterable[str], columns: Iterable[str]) -> "TableSpec":
        """The same table with some of its rows and columns, in the table's order; its caption says that it is a part.

        Raises:
            ConfigError: A key that the table does not have, an average without all its columns, a metric without its
                reference row, or nothing left.
        """
        row_keys = {self.row(key).key for key in rows}
        column_keys = {self.column(key).key for key in columns}
        kept_rows = tuple(row for row in self.rows if row.key in row_keys)
        kept = tuple(column for column in self.columns if column.key in column_keys)
        problem = ""
        for column in kept:
            lacking = ", ".join(part for part in column.average_of if part not in column_keys)
            if lacking:
                parts = ", ".join(column.average_of)
                problem = (
                    f"column {column.key!r} is the average of {parts}; choose {lacking} too, or leave it out"
                )
        if self.reference_row and self.reference_row not in row_keys:
            problem = f"{self.metric} compares with row {self.reference_row!r}; choose it too"
        if not kept_rows or not kept:
            problem = "no row or no column is left; choose at least one of each"
        if problem:
            raise ConfigError(f"table {self.name}: {problem}.")
        if len(kept_rows) == len(self.rows) and len(kept) == len(self.columns):
            return self
        shown = f"{len(kept_rows)} of {len(self.rows)} rows and {len(kept)} of {len(self.columns)} columns"
        caption = f"{self.caption} {shown} are shown.".strip()
        return self.model_copy(
            update={"caption": caption, "rows": kept_rows, "columns": kept, "is_part": True}
        )


def _check_known(what: str, keys: str | Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for key in [keys] if isinstance(keys, str) else keys:
        if key not in known:
            raise ValueError(wrong(what, key, f"one of {', '.join(known)}", known=known))
