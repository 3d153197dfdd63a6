"""The parts of a table: rows, columns and overrides, each with settings of runs."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field, field_validator, model_validator

from benchmark.config.files import FileModel
from benchmark.config.schema import GROUPS
from benchmark.experiments.patterns import fits

SETTINGS = (*GROUPS, "train", "evaluation", "precision")
"""The parts of a run's configuration that a table may set."""

Part = dict[str, Any] | None


def _setting(key: str) -> Any:
    named = f"name of a file of `conf/{key}`, or `{{name: NAME, key: value}}`"
    title, description = ("NAME or mapping", named) if key in GROUPS else ("mapping", f"keys of `{key}`")
    return Field(None, title=title, description=description)


class WithSettings(FileModel):
    """Settings of runs, by the keys of the configuration of a run."""

    dataset: Part = _setting("dataset")
    partition: Part = _setting("partition")
    model: Part = _setting("model")
    method: Part = _setting("method")
    selection: Part = _setting("selection")
    train: Part = _setting("train")
    evaluation: Part = _setting("evaluation")
    precision: Part = _setting("precision")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """``method: fedprox`` is short for ``method: {name: fedprox}``."""
        if not isinstance(values, Mapping):
            return values
        names = {key: {"name": values[key]} for key in GROUPS if isinstance(values.get(key), str)}
        return {**values, **names}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What is set here."""
        return {key: value for key in SETTINGS if (value := getattr(self, key)) is not None}


class Row(WithSettings):
    """A row: one method, with one client selection."""

    key: str = Field(description="unique name; also the `method` in the file of published numbers")
    label: str = Field(description="name to print")
    method: Part = Field(
        None,
        validate_default=True,
        title="NAME or mapping",
        description="name of a file of `conf/method`, or `{name: NAME, key: value}`; every row has one",
    )
    base: str = Field(
        "",
        description="key of the row that it is compared with; if left out: that of the whole table, FedAvg",
    )
    own: bool = Field(False, description="whether the paper proposes the method, or the table is about it")
    published: dict[str, str] = Field(
        {},
        description="columns of the file of published numbers, and the values that pick this row's; if left out: "
        "`method` is the row's key",
    )

    @field_validator("method")
    @classmethod
    def _has_a_name(cls, method: Part) -> Part:
        if not (method or {}).get("name"):
            raise ValueError(f"got {method!r}; expected the name of a file of conf/method")
        return method

    @property
    def method_name(self) -> str:
        """Name of the file of ``conf/method``."""
        return str((self.method or {})["name"])

    @property
    def selection_name(self) -> str | None:
        """Name of the file of ``conf/selection``; None: the run's default."""
        return (self.selection or {}).get("name")

    @property
    def published_key(self) -> dict[str, str]:
        """Column -> value in the published CSV."""
        return self.published or {"method": self.key}


class Column(WithSettings):
    """A column: one data set with its partition, or the average of other columns."""

    key: str = Field(description="unique name; also the `setting` in the file of published numbers")
    label: str = Field(description="name to print")
    group: str | None = Field(None, description="heading over neighbouring columns")
    source: str = Field("", description="where the setting is given, and what is not stated there")
    metric: str = Field("", description="what its cells show; if left out: the metric of the table")
    average_of: tuple[str, ...] = Field(
        (),
        description="keys of the columns that this one averages, seed by seed; such a column has no settings",
    )
    presets: tuple[str, ...] = Field(
        (), description="presets in which the column exists; if left out: all of the table"
    )

    @model_validator(mode="after")
    def _runs_or_average(self) -> "Column":
        if self.average_of and (self.settings or self.presets):
            raise ValueError("a column with average_of has no settings and no presets of its own")
        return self


class Override(WithSettings):
    """Settings of the cells that match."""

    row: str = Field("*", description="keys and patterns of rows, like `fedavg,fedmr*`")
    column: str = Field("*", description="keys and patterns of columns, like `fmnist/*`")
    preset: str = Field("*", description="names and patterns of presets")
    note: str = Field(
        "",
        description="printed below the table for each matching column or, if `row` is given, for each matching row; "
        "the last matching note counts",
    )

    def matches(self, row: str, column: str, preset: str) -> bool:
        """Whether these settings are for a cell."""
        return fits(row, self.row) and fits(column, self.column) and fits(preset, self.preset)
