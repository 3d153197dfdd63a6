"""The tables of ``conf/table``: reading their files, and finding them by paper, number or name."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmark.config.compose import group_names, load_group
from benchmark.config.files import read_yaml
from benchmark.config.merge import merge
from benchmark.errors import ConfigError, usable, validate, wrong
from benchmark.experiments.parts import Row
from benchmark.experiments.patterns import fits
from benchmark.experiments.spec import TableSpec
from benchmark.paths import conf_file, conf_files


class NoTable(ConfigError):
    """No table of ``conf/table`` fits."""


ANY = "any"
"""``tables`` of a method that is a row of every table whose command names it, and of no other."""


def _names() -> list[str]:
    """The tables of ``conf/table``; what begins with an underscore is none."""
    return [name for name in conf_files("table") if not name.startswith("_")]


def extend(node: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a table file, put together with that of the file which it ``extends`` (see `TableSpec`).

    Raises:
        ConfigError: The other file does not exist, or does not have the rows or columns that are taken over.
    """
    content = {key: value for key, value in node.items() if key != "extends"}
    if "extends" not in node:
        return content
    path = conf_file("table", str(node["extends"]))
    if path is None:
        known = conf_files("table")
        raise ConfigError(wrong("extends", node["extends"], "the name of a file of conf/table", known=known))
    base = extend(read_yaml(path, "table"))
    base.pop("table", None)  # the number in the paper is that of the paper's own table
    whole = base | content
    for part in ("rows", "columns"):
        if isinstance(content.get(part), list):
            whole[part] = _take_over(part, base.get(part, []), content[part])
    inherited = [used for entry in base.get("overrides", []) if (used := _used(entry, whole))]
    return whole | {"overrides": [*inherited, *content.get("overrides", [])]}


def _take_over(part: str, base: Sequence[Any], entries: Sequence[Any]) -> list[Any]:
    result = []
    for entry in entries:
        changes = merge({}, entry if isinstance(entry, Mapping) else {"key": entry})
        pattern = str(changes.get("key", ""))
        matches = [old for old in base if fits(str(old["key"]), pattern)]
        if not matches and (len(changes) == 1 or "*" in pattern):
            expected = "a key or pattern of the extended table"
            raise ConfigError(wrong(part, pattern, expected, known=_keys(base)))
        result += [merge(merge(old, changes), {"key": old["key"]}) for old in matches] or [changes]
    return result


def _used(override: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """An inherited override without the patterns that match nothing in the table; empty if it matches no cell."""
    used = merge({}, override)
    for what, part in (("row", "rows"), ("column", "columns"), ("preset", "presets")):
        if what not in override or part not in table:
            continue
        keys = table[part] if part == "presets" else _keys(table[part])
        matching = [one for one in override[what].split(",") if any(fits(key, one) for key in keys)]
        if not matching:
            return {}
        used[what] = ",".join(matching)
    return used


def _keys(parts: Sequence[Any]) -> list[str]:
    return [str(part["key"]) for part in parts if isinstance(part, Mapping) and "key" in part]


def load_spec(path: Path | str) -> TableSpec:
    """Read one table file; `ConfigError`, naming file and key, for one that does not fit."""
    path = Path(path)
    try:
        node = extend(read_yaml(path, "table"))
    except ConfigError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"table file {path}: {error}") from error
    spec = validate(TableSpec, node | {"name": path.stem}, whole="table", before=f"table file {path}: ")
    if spec.table is not None and path.stem != f"{spec.paper}_table{spec.table}":
        raise ConfigError(f"table file {path}: it holds table {spec.table} of {spec.paper}, so it must be called "
                          f"{spec.paper}_table{spec.table}.yaml.")  # fmt: skip
    return spec


def _with_guests(specs: Sequence[TableSpec]) -> list[TableSpec]:
    """The tables with a row for every method whose file names them under ``tables``.

    A pattern stands for the papers' tables, which have a number. Another table is named in full.
    """
    methods = dict(usable(group_names("method"), lambda name: (name, load_group("method", name))))
    return [_with_rows(spec, methods) for spec in specs]


def _with_rows(spec: TableSpec, methods: Mapping[str, Mapping[str, Any]]) -> TableSpec:
    rows = list(spec.rows)
    tables = {spec.name, *_names()}
    of_papers = [name for name in tables if re.fullmatch(r".+_table\d+", name)]
    for name, method in methods.items():
        wanted = method.get("tables") or []
        if wanted == ANY:
            continue
        if not isinstance(wanted, list) or not all(isinstance(pattern, str) for pattern in wanted):
            expected = f'{ANY}, or a list of names or patterns of conf/table, like ["*_table1", leaderboard]'
            raise ConfigError(wrong(f"conf/method/{name}.yaml: tables", wanted, expected))
        for pattern in wanted:
            if pattern not in tables and not any(fnmatchcase(table, pattern) for table in of_papers):
                expected = "a name of conf/table, or a pattern of names PAPER_tableNUMBER"
                raise ConfigError(wrong(f"conf/method/{name}.yaml: tables", pattern, expected, known=tables))
        patterns = wanted if spec.table else []
        named = spec.name in wanted or (not spec.table and spec.paper in wanted)  # a table's second form, too
        invited = named or any(fnmatchcase(spec.name, pattern) for pattern in patterns)
        if invited and all(row.key != name for row in rows):
            new = _row_of(name, method)
            if new.label in {row.label for row in rows}:
                expected = f"a label that no other row of {spec.name} has"
                raise ConfigError(wrong(f"conf/method/{name}.yaml: label", new.label, expected))
            rows.append(new)
    return spec if len(rows) == len(spec.rows) else spec.model_copy(update={"rows": tuple(rows)})


def _row_of(name: str, method: Mapping[str, Any]) -> Row:
    return Row(key=name, label=str(method.get("label", name)), method={"name": name})


def with_named(spec: TableSpec, names: Sequence[str]) -> TableSpec:
    """The table with a row for each of the ``names`` that is a method for any table (``tables: any``)."""
    files, keys = group_names("method"), [row.key for row in spec.rows]
    methods = {name: load_group("method", name) for name in names if name in files and name not in keys}
    rows = [_row_of(name, method) for name, method in methods.items() if method.get("tables") == ANY]
    if not rows:
        return spec
    caption = f"{spec.caption} Added: {', '.join(row.label for row in rows)}.".strip()
    return spec.model_copy(update={"rows": (*spec.rows, *rows), "caption": caption, "is_part": True})


def find_specs(paper: str | None = None, table: int | None = None) -> list[TableSpec]:
    """All tables, or those of one paper, or with one number: numbered ones first, by name.

    Methods of ``conf/method`` whose file asks for it (``tables:``) have a row at the end. Raises `NoTable` if no table
    fits, and `ConfigError` for a broken file whose name says that it is asked for; other broken files are left out.
    """
    asked = f"{paper or '*'}_{f'table{table}' if table else '*'}" if paper or table else ""
    specs = _with_guests(usable(_names(), _load, lambda name: fnmatchcase(name, asked)))
    papers = sorted({spec.paper for spec in specs})
    if paper is not None and paper not in papers:
        raise NoTable(wrong("paper", paper, f"one of {', '.join(papers)} (conf/table/)", known=papers))
    of_paper = [spec for spec in specs if paper in (None, spec.paper)]
    matches = [spec for spec in of_paper if table in (None, spec.table)]
    if not matches:
        numbers = sorted({spec.table for spec in of_paper if spec.table is not None})
        raise NoTable(wrong("table", table, f"one of {', '.join(map(str, numbers))} (conf/table/)"))
    return sorted(matches, key=lambda spec: spec.table is None)


def spec_called(name: str, where: str = "name") -> TableSpec:
    """The table called ``name``; `ConfigError`, which calls it ``where``, if there is none."""
    names = _names()
    if name not in names:
        raise ConfigError(wrong(where, name, f"one of {', '.join(names)} (conf/table/)", known=names))
    return _with_guests([_load(name)])[0]


def _load(name: str) -> TableSpec:
    return load_spec(conf_file("table", name) or name)
