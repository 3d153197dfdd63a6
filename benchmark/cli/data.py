"""``python -m benchmark data``: which data sets there are, prepare them, count and show their images."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmark.cli.options import read, yaml_value
from benchmark.config.compose import group_names, load_group
from benchmark.errors import ConfigError, wrong
from benchmark.runs.files import storage_error
from datasets.core.base import DataError
from datasets.core.check import Report, check
from datasets.core.prepare import is_prepared, load, locate, prepare
from datasets.core.registry import describe, names, option_values

ACTIONS = ("list", "prepare", "check")

OF_RUNS = ("train_per_class", "test_per_class", "rest")
"""Keys of conf/dataset that say what a run takes of the prepared data."""


def main(words: Sequence[str]) -> int:
    """List, prepare or check data sets; exit code 0, or 1 if a check found a problem.

    ``data list``, ``data prepare NAME [KEY=VALUE]``, ``data check NAME [KEY=VALUE] [out=FILE.png]``: NAME is a file of
    conf/dataset, and KEY an option of its data set, on top of those in the file. ``check`` also draws a contact sheet
    of a set without problems, to ``results/data/NAME.png`` by default.
    """
    action, *rest = words or [""]
    if action not in ACTIONS:
        raise ConfigError(wrong("data", action, f"one of: {', '.join(ACTIONS)}", known=ACTIONS))
    names = [word for word in rest if "=" not in word]
    if action != "list" and not names:
        raise ConfigError(f"data {action}: name a data set. Known: {', '.join(group_names('dataset'))}.")
    nodes = {name: load_group("dataset", name) for name in (names if action != "list" else ())}
    places, options = _places_and_options(action, [word for word in rest if "=" in word], nodes)
    root = Path(places["data"]) if "data" in places else None
    cache = Path(places["cache"]) if "cache" in places else None
    if action == "list":
        print(data_list(root=root, cache=cache), end="")
        return 0
    if "out" in places and len(names) > 1:
        raise ConfigError(
            wrong(
                "out",
                places["out"],
                f"results=FOLDER for {len(names)} data sets, or one data set for one file",
            )
        )
    if not places.get("out", ".png").lower().endswith(".png"):
        raise ConfigError(wrong("out", places["out"], "a file that ends in .png"))
    code = 0
    for name, node in nodes.items():
        node["options"] = {**(node.get("options") or {}), **options}
        if action == "prepare":
            print(data_prepare(node["name"], node["options"], root=root, cache=cache), end="")
        else:
            text, ok = data_check(node["name"], node["options"], root=root, cache=cache)
            print(text, end="")
            if ok:
                out = places.get("out") or Path(places.get("results", "results")) / "data" / f"{name}.png"
                print(f"contact sheet: {_contact_sheet(name, node, root, cache, Path(out))}")
            code = code if ok else 1
    return code


def _places_and_options(
    action: str, words: Sequence[str], nodes: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], dict[str, Any]]:
    """(folders and files of the command, options of the data sets), from ``key=value`` words; `ConfigError` as `read`.

    An option may be spelled as for runs, ``dataset.options.KEY=VALUE``. It has to be one of every data set named.
    """
    known = {"data": "FOLDER", "cache": "FOLDER"}
    if action == "check":
        known |= {"out": "FILE.png", "results": "FOLDER"}
    allowed = [option_values(node["name"]) for node in nodes.values()]
    options = {key: what for key, what in (allowed or [{}])[0].items() if all(key in own for own in allowed)}
    plain = [word.removeprefix("+").removeprefix("dataset.options.") for word in words]
    for word in plain:
        key = word.partition("=")[0].removeprefix("dataset.")
        if nodes and key in OF_RUNS:
            raise ConfigError(
                f"data {action}: {key} belongs to runs (run dataset.{key}=...), and the prepared data do not depend "
                f"on it; expected one of: {', '.join([*known, *options])}."
            )
    values = read(plain, {**known, **options}, f"data {action} {' '.join(nodes)}".rstrip())
    chosen = {
        key: yaml_value(text, key) for key, text in values.items() if key in options and key not in known
    }
    return {key: text for key, text in values.items() if key in known}, chosen


def _contact_sheet(
    name: str, node: Mapping[str, Any], root: Path | None, cache: Path | None, out: Path
) -> Path:
    """Draw the contact sheet of a prepared set; `StorageError` if it cannot be written."""
    from benchmark.reports.contact_sheet import contact_sheet

    data = load(node["name"], node.get("options"), root, cache)
    original = (node.get("options") or {}).get("stands_for")
    title = f"{name}: digits standing in for {original}" if original else name
    try:
        return contact_sheet(data, out, title)
    except OSError as error:
        raise storage_error(error, out) from error


# Text -----------------------------------------------------------------------------------------------------------


def data_list(root: Path | None = None, cache: Path | None = None) -> str:
    """All data sets of the registry with a line on each, and whether they are prepared with their default options."""
    table = Table(title="Data sets", title_justify="left")
    for column in ("name", "prepared", "what it is"):
        table.add_column(column, no_wrap=column != "what it is")
    for name in names():
        try:
            state = "yes" if is_prepared(name, None, root, cache) else "no"
        except DataError:
            state = "by conf/dataset"  # it has options without a default
        table.add_row(name, state, describe(name))
    place = locate("digits", None, root, cache)
    return _text(table, f"raw data: {place.root}", f"prepared: {place.folder.parent}")


def data_prepare(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> str:
    """Prepare a data set (a damaged one anew) and say where it is and how large. Arguments and errors as `load`."""
    start = time.perf_counter()
    folder = prepare(name, options, root, cache)
    seconds = time.perf_counter() - start
    data = load(name, options, root, cache)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    shape = " x ".join(str(length) for length in data.train.images.shape[1:])
    lines = [
        f"{name}: {len(data.train):,} training and {len(data.test):,} test images of {shape}, "
        f"{len(data.classes)} classes; {size:.1f} MB, ready after {seconds:.1f} s",
        f"folder: {folder}",
        f"fingerprint: {data.fingerprint}",
    ]
    return _text(*lines, *([f"note: {data.note}"] if data.note else []))


def data_check(
    name: str, options: Mapping[str, Any] | None = None, root: Path | None = None, cache: Path | None = None
) -> tuple[str, bool]:
    """Counts per split, class, attribute and source beside the published ones, and problems; and whether all is well.

    Raises:
        DataError: Unknown name or option.
    """
    report = check(name, options, root, cache)
    parts: list[str | Table] = [f"{name} in {report.folder}"]
    if report.note:
        parts.append(f"note: {report.note}")
    if report.counts:
        parts.extend((_counts_table(report), _differences(report)))
    if report.ok:
        parts.append(f"fingerprint {report.fingerprint} verified")
    parts.extend(f"problem: {problem}" for problem in report.problems)
    return _text(*parts), report.ok


Row = tuple[str, str, str]
"""Class, attribute and source of a line; "" where the data set has none, "all" for all together."""


def _counts_table(report: Report) -> Table:
    """One row per class (and attribute, source), columns per split with what is published, and the totals.

    A published number for several rows together (a class at all sources, a source of all classes) has a row of its own.
    """
    splits = list(dict.fromkeys(count.split for count in report.counts))
    found: dict[Row, dict[str, int]] = {}
    for count in report.counts:
        row = (count.label, count.attribute or "", count.source or "")
        found.setdefault(row, {})[count.split] = count.images
    published: dict[Row, dict[str, int]] = {}
    for split, label, group, images in report.expected:
        members = [row for row in found if label in ("", row[0]) and group in ("", *row[1:])]
        row = members[0] if len(members) == 1 else _together(report, label, group)
        published.setdefault(row, {})[split] = images
        found.setdefault(row, {}).setdefault(split, sum(found[member].get(split, 0) for member in members))
    titles = ("class", "attribute", "source")
    shown = [k for k in range(3) if any(row[k] for row in found)]
    table = Table(title="Images", title_justify="left", show_footer=True)
    for k in shown:
        table.add_column(titles[k], footer="all" if k == 0 else "")
    for split in splits:
        total = sum(count.images for count in report.counts if count.split == split)
        table.add_column(split, justify="right", footer=f"{total:,}")
        if report.expected:
            table.add_column("published", justify="right")
    for row, cell in found.items():
        # A split without attributes or sources has no number for a cell of the other split.
        numbers = [f"{cell[split]:,}" if split in cell else "-" for split in splits]
        if report.expected:
            there = [_published(cell.get(s, 0), published.get(row, {}).get(s)) for s in splits]
            numbers = [text for pair in zip(numbers, there, strict=True) for text in pair]
        table.add_row(*(row[k] for k in shown), *numbers)
    return table


def _together(report: Report, label: str, group: str) -> Row:
    """The row of a published number that belongs to no single row of the counts."""
    by_attribute = any(count.attribute == group for count in report.counts)
    has_source = any(count.source for count in report.counts)
    has_attribute = any(count.attribute for count in report.counts)
    return (
        label or "all",
        (group if by_attribute else "all") if has_attribute else "",
        ("all" if by_attribute or not group else group) if has_source or (group and not by_attribute) else "",
    )


def _published(found: int, published: int | None) -> str:
    """The published number, and how far the found one is from it."""
    if published is None:
        return "-"
    return f"{published:,}" if found == published else f"{published:,} ({found - published:+,})"


def _differences(report: Report) -> str:
    """A sentence on how many of the published counts differ."""
    if not report.expected:
        return "published counts: none were known when the set was prepared"
    wrong = 0
    for split, label, group, images in report.expected:
        wrong += images != sum(
            count.images
            for count in report.counts
            if count.split == split
            and label in ("", count.label)
            and group in ("", count.attribute, count.source)
        )
    if not wrong:
        return f"published counts: all {len(report.expected)} are met"
    return f"published counts: {wrong} of {len(report.expected)} differ, in brackets by how much"


def _text(*parts: str | Table) -> str:
    width = max(shutil.get_terminal_size((110, 24)).columns, 60)
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    for part in parts:
        # Paths and fingerprints are copied by people: no line breaks of ours in them.
        console.print(part, soft_wrap=isinstance(part, str))
    stream = console.file
    return stream.getvalue() if isinstance(stream, io.StringIO) else ""
