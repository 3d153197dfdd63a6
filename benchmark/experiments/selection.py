"""Selection of tables, rows and columns, and the runs of what was selected."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, PositiveInt, ValidationInfo

from benchmark.config.compose import load_group
from benchmark.config.files import FileModel
from benchmark.config.schema import PathsConfig, RuntimeConfig, declared
from benchmark.errors import ConfigError, validate, wrong
from benchmark.experiments.parts import Column, Override, Row, WithSettings
from benchmark.experiments.patterns import fits, matching
from benchmark.experiments.plan import Cells, PlannedCell, plan
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import NoTable, find_specs, spec_called, with_named
from benchmark.experiments.tuning import TunedFolder
from benchmark.paths import conf_file
from benchmark.runs.listing import as_text

Part = TypeVar("Part", Row, Column)


class CommandOptions(FileModel):
    """Options of a command: the ``key=value`` words that it takes, with type, default and meaning.

    The title of a field says what help and messages call its values, if not its type. A field of type bool is a flag:
    ``verbose`` is set by ``--verbose``. A mapping ``GROUP_settings`` takes the words ``GROUP.KEY=VALUE``, with VALUE in
    YAML, and ``dataset_options`` takes ``dataset.options.KEY=VALUE``. A field with ``exclude`` is no word.
    """

    model_config = ConfigDict(validate_default=True)

    def check(self) -> None:
        """Raise `ConfigError` for settings that do not fit together, before anything slow is imported."""


def _has_file(name: str, info: ValidationInfo) -> str:
    load_group(str(info.field_name), name)
    return name


FileName = Annotated[str, AfterValidator(_has_file)]
"""The name of a file in the folder of ``conf`` that is called like the field."""

PATTERNS = "KEY,PATTERN*,..."


class ResultsOptions(CommandOptions):
    """The folder that all results are in."""

    results: Path = declared(PathsConfig, "results")


class RunQuery(ResultsOptions):
    """Which runs a command works on."""

    preset: FileName = Field("quick", title="quick|small|paper", description="data, model and budget")
    seeds: PositiveInt | None = Field(
        None, description="number of seeds; if left out: as many as the table or figure says"
    )
    tuned: str | None = Field(
        None,
        title="FOLDER|off",
        description="tuned values; if left out: those of the results folder, then those of the project",
    )
    stale: Literal["rerun", "keep"] = declared(RuntimeConfig, "stale")
    dataset_options: Mapping[str, Any] = Field(
        {}, title="VALUE", description="an option of the data set of every cell, on top of the cell's own"
    )

    @property
    def remarks(self) -> tuple[str, ...]:
        """A note on the options of data sets that were given."""
        words = setting_words("dataset.options", self.dataset_options)
        return (f"Options of data sets: {', '.join(words)}.",) if words else ()

    @property
    def settings(self) -> list[str]:
        """The words ``GROUP.KEY=VALUE`` that were given."""
        return setting_words("dataset.options", self.dataset_options)

    def command(self, words: str, keys: Sequence[str] = ("seeds", "results", "tuned")) -> str:
        """The command line ``python -m benchmark WORDS`` with these options, and single settings, where given."""
        given = []
        for key in keys:
            value, default = getattr(self, key), type(self).model_fields[key].default
            if value is not None and str(value) != str(default):
                given.append(shlex.quote(f"{key}={value}"))
        return " ".join(["python -m benchmark", words, *given, *self.settings])


class TableChoice(RunQuery):
    """Which tables a command works on."""

    paper: str | None = Field(
        None, title="fedld|fedsdc|feddiverse|fedmr", description="short name of a paper; if left out: all"
    )
    table: PositiveInt | None = Field(None, description="number of the table in the paper; if left out: all")
    name: str | None = Field(
        None, title="FILE of conf/table", description="one file of tables, instead of paper and table"
    )


class TableQuery(TableChoice):
    """Which tables, cells and runs a command works on."""

    rows: str | None = Field(None, title=PATTERNS, description="keys and patterns of rows; if left out: all")
    columns: str | None = Field(
        None, title=PATTERNS, description="keys and patterns of columns; if left out: all"
    )
    row_settings: Mapping[str, Any] = Field(
        {}, title="VALUE", description="KEY.SETTING: a setting of one row, as row.fedprox.train.lr=0.1"
    )
    column_settings: Mapping[str, Any] = Field(
        {}, title="VALUE", description="KEY.SETTING: a setting of one column"
    )

    @property
    def settings(self) -> list[str]:
        """The words ``GROUP.KEY=VALUE`` that were given."""
        rows, columns = setting_words("row", self.row_settings), setting_words("column", self.column_settings)
        return [*super().settings, *rows, *columns]

    @property
    def cuts(self) -> bool:
        """Whether rows or columns are selected or changed."""
        return self.rows is not None or self.columns is not None or bool(self.changes)

    @property
    def selects(self) -> bool:
        """Whether the query is about some tables or cells only."""
        return self.cuts or any(given is not None for given in (self.paper, self.table, self.name))

    @property
    def changes(self) -> list[tuple[str, str, Any]]:
        """What is changed: ``row`` or ``column``, ``KEY.SETTING``, the value."""
        rows = [("row", *change) for change in self.row_settings.items()]
        return [*rows, *(("column", *change) for change in self.column_settings.items())]


def setting_words(group: str, settings: Mapping[str, Any]) -> list[str]:
    """The words ``GROUP.KEY=VALUE`` that give these settings."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
    return [shlex.quote(f"{group}.{key}={text}") for key, text in texts.items()]


def plan_table(
    whole: TableSpec, query: TableQuery, extra: Mapping[str, Any] | None = None
) -> tuple[TableSpec, Cells]:
    """A whole table, cut to the selected rows and columns, with its runs.

    ``extra`` are settings of all runs that do not belong to a run's identity (paths, runtime).
    """
    part = select(whole, query)
    return part, plan_cells(whole, part, query, extra)


def plan_cells(
    whole: TableSpec, part: TableSpec, query: RunQuery, extra: Mapping[str, Any] | None = None
) -> Cells:
    """The cells of ``part`` of a table, with the values that were tuned for the ``whole`` table."""
    seeds = whole.seed_range(query.preset, query.seeds)
    tuned = TunedFolder.of(query.tuned, query.results).load(whole, query.preset)
    extra = {**(extra or {}), "dataset": {"options": query.dataset_options}}
    return plan(part, query.preset, seeds, extra, tuned)


class ShowOptions(TableChoice):
    """Options of `find_cell`."""

    row: str = Field("", title="KEY", description="key of the row")
    column: str = Field("", title="KEY", description="key of the column")


def find_cell(options: ShowOptions) -> PlannedCell:
    """One cell of one table; `ConfigError` if several tables fit, or it has no runs in the preset."""
    tables = find_tables(options)
    if len(tables) > 1:
        names = ", ".join(spec.name for spec in tables)
        expected = f"one of {names} (paper and table, or name, choose it)"
        raise ConfigError(wrong("show", f"{len(tables)} tables", expected))
    spec = with_named(tables[0], [options.row]).cut([options.row], [options.column])
    ((_, cell),) = plan_cells(tables[0], spec, options).items()
    if not cell.runs:
        raise ConfigError(wrong("preset", options.preset, f"one in which column {cell.column} has runs"))
    return cell


def find_tables(query: TableChoice) -> list[TableSpec]:
    """The selected tables that have the preset and a row and a column for every pattern, uncut.

    A line on standard error says which of them lack a row or column.

    Raises:
        ConfigError: A row or column that no table has.
        NoTable: No table is left; the message is about the first one.
    """
    kept, problems, lacking = [], [], []
    wholes = find_specs(query.paper, query.table) if query.name is None else [spec_called(query.name)]
    cells = query if isinstance(query, TableQuery) else TableQuery()
    _check_named(wholes, cells)
    for spec in wholes:
        try:
            spec.check_preset(query.preset)
            if lacks := _lacking([spec], cells):
                lacking.append(f"{spec.name} has no {' and no '.join(lacks)}")
                continue
            select(spec, cells)
            kept.append(spec)
        except ConfigError as error:
            problems.append(error)
    if not kept:
        raise NoTable(str(problems[0]) if problems else f"No table has all of them: {'; '.join(lacking)}.")
    if lacking:
        print(f"left out: {'; '.join(lacking)}.", file=sys.stderr)
    return kept


def _words(patterns: str | None) -> list[str]:
    return [] if patterns is None else [word.strip() for word in patterns.split(",")]


def _keys(spec: TableSpec, query: TableQuery) -> dict[str, list[str]]:
    """The keys of the rows and columns of a table, with the rows for any table that are asked for."""
    rows = with_named(spec, _words(query.rows)).rows
    return {"row": [row.key for row in rows], "column": [column.key for column in spec.columns]}


def _key_of(name: str, keys: Sequence[str]) -> str | None:
    """The longest of the ``keys`` that ``KEY.SETTING`` begins with."""
    return max((key for key in keys if name.startswith(f"{key}.")), key=len, default=None)


def _lacking(specs: Sequence[TableSpec], query: TableQuery) -> dict[str, tuple[str, str, list[str]]]:
    """What none of the tables has, as ``row 'fedavg'`` -> (option, word, keys of all tables)."""
    keys: dict[str, list[str]] = {"row": [], "column": []}
    for spec in specs:
        keys = {what: [*keys[what], *more] for what, more in _keys(spec, query).items()}
    lacks = {}
    for what, words in (("row", _words(query.rows)), ("column", _words(query.columns))):
        for word in words:
            if not any(fits(key, word) for key in keys[what]):
                lacks[f"{what} {word!r}"] = f"{what}s", word, keys[what]
    for what, name, _ in query.changes:
        if _key_of(name, keys[what]) is None:
            lacks[f"{what} for {name!r}"] = what, name, keys[what]
    return lacks


def _check_named(specs: Sequence[TableSpec], query: TableQuery) -> None:
    """Raise `ConfigError` for the first word that fits no row or column of any table."""
    where = f"table {specs[0].name}" if len(specs) == 1 else f"the {len(specs)} tables"
    for option, word, keys in _lacking(specs, query).values():
        known = list(dict.fromkeys(keys))
        if option == "rows" and (path := conf_file("method", word)) is not None:
            expected = (
                f"a row of {where}: `tables: any`, or a list with the table, gives the method one ({path})"
            )
            raise ConfigError(wrong(option, word, expected))
        if option.endswith("s"):
            matching(known, word, option, where)
        expected = f"KEY.SETTING with the key of a {option} of {where}: {', '.join(known)}"
        raise ConfigError(wrong(option, word, expected, known=known))


def select(spec: TableSpec, query: TableQuery) -> TableSpec:
    """The table with the changes of the query, cut to the selected rows and columns."""
    spec = _with_changes(with_named(spec, _words(query.rows)), query)
    if query.rows is None and query.columns is None:
        return spec
    where = f"table {spec.name}"
    rows = matching([row.key for row in spec.rows], query.rows, "rows", where)
    columns = matching([column.key for column in spec.columns], query.columns, "columns", where)
    kept = {"row": rows, "column": columns}
    for what, name, _ in query.changes:
        if _key_of(name, kept[what]) is None:
            expected = f"KEY.SETTING of a {what} that {what}s= selects: {', '.join(kept[what])}"
            raise ConfigError(wrong(what, name, expected))
    return spec.cut(rows, columns)


def _with_changes(spec: TableSpec, query: TableQuery) -> TableSpec:
    """The table with other settings in some rows and columns, whose labels say so."""
    keys, changes = _keys(spec, query), list[Override]()
    said: dict[tuple[str, str], list[str]] = {}
    for what, name, value in query.changes:
        key = _key_of(name, keys[what]) or ""
        setting = name.removeprefix(f"{key}.")
        if what == "column" and spec.column(key).average_of:
            raise ConfigError(wrong("column", name, "a column with runs of its own, and no average"))
        settings: Any = value
        for part in reversed(setting.split(".")):
            settings = {part: settings}
        validate(WithSettings, settings, f"{what}.{key}.")
        changes.append(Override.model_validate({what: key, **settings}))
        said.setdefault((what, key), []).append(f"{setting.rpartition('.')[2]}={as_text(value)}")

    def labelled(what: str, parts: Sequence[Part]) -> tuple[Part, ...]:
        notes = {part.key: ", ".join(said.get((what, part.key), ())) for part in parts}
        return tuple(
            part.model_copy(update={"label": f"{part.label} ({notes[part.key]})"})
            if notes[part.key]
            else part
            for part in parts
        )

    if not changes:
        return spec
    update = {"rows": labelled("row", spec.rows), "columns": labelled("column", spec.columns)}
    return spec.model_copy(update={**update, "changes": tuple(changes), "is_part": True})
