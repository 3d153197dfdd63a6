"""``python -m benchmark data``: which data sets there are, prepare them, count and show their images."""

import shlex
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmark.cli.options import read, yaml_value
from benchmark.config.compose import group_names, load_group
from benchmark.errors import ConfigError, wrong
from benchmark.reports.render.console import TextConsole
from benchmark.runs.files import storing
from datasets.core.base import PARTS, DataError, Dataset, Split
from datasets.core.prepare import DamagedError, Location, check, is_prepared, locate, prepare
from datasets.core.registry import describe, names, option_values

FOLDERS = {"data": "FOLDER", "cache": "FOLDER"}
ACTIONS = {
    "list": FOLDERS,
    "prepare": FOLDERS,
    "check": {**FOLDERS, "out": "FILE.png", "results": "FOLDER"},
}
"""What each action accepts beside the options of the data sets."""

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
    named = [word for word in rest if "=" not in word and action != "list"]
    if action != "list" and not named:
        raise ConfigError(f"data {action}: name a data set. Known: {', '.join(group_names('dataset'))}.")
    nodes = {name: load_group("dataset", name) for name in named}
    places, options = _places_and_options(action, [word for word in rest if word not in named], nodes)
    folders = tuple(Path(places[key]) if key in places else None for key in FOLDERS)
    out = places.get("out", "")
    if out and len(named) > 1:
        expected = f"results=FOLDER for {len(named)} data sets, or one data set for one file"
        raise ConfigError(wrong("out", out, expected))
    if out and not out.lower().endswith(".png"):
        raise ConfigError(wrong("out", out, "a file that ends in .png"))
    if action == "list":
        print_list(*folders)
    good = True
    for name, node in nodes.items():
        wanted = {**(node.get("options") or {}), **options}
        place = locate(node["name"], wanted, *folders)
        if action == "prepare":
            print_prepared(place)
        elif (data := print_check(place, _prepare_command(name, rest))) is None:
            good = False
        else:
            from benchmark.reports.contact_sheet import contact_sheet

            sheet = Path(out or Path(places.get("results", "results")) / "data" / f"{name}.png")
            original = wanted.get("stands_for")
            title = f"{name}: digits standing in for {original}" if original else name
            with storing(sheet):
                print(f"contact sheet: {contact_sheet(data, sheet, title)}")
    return 0 if good else 1


def _places_and_options(
    action: str, words: Sequence[str], nodes: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], dict[str, Any]]:
    """(folders and files of the command, options of the data sets), from ``key=value`` words; `ConfigError` as `read`.

    An option may be spelled as for runs, ``dataset.options.KEY=VALUE``. It has to be one of every data set named.
    """
    known = ACTIONS[action]
    first, *others = [option_values(node["name"]) for node in nodes.values()] or [{}]
    options = {key: what for key, what in first.items() if all(key in other for other in others)}
    plain = [word.removeprefix("+").removeprefix("dataset.options.") for word in words]
    for word in plain:
        key = word.partition("=")[0].removeprefix("dataset.")
        if nodes and key in OF_RUNS:
            raise ConfigError(
                f"data {action}: {key} belongs to runs (run dataset.{key}=...), and the prepared data do not depend "
                f"on it; expected one of: {', '.join([*known, *options])}."
            )
    values = read(plain, {**known, **options}, f"data {action} {' '.join(nodes)}".rstrip())
    chosen = {key: yaml_value(text, key) for key, text in values.items() if key not in known}
    return {key: text for key, text in values.items() if key in known}, chosen


def _prepare_command(name: str, words: Sequence[str]) -> str:
    """The command line that prepares the data set which ``data check NAME WORDS`` checks."""
    kept = [word for word in words if "=" in word and word.partition("=")[0] not in ("out", "results")]
    return shlex.join(["python", "-m", "benchmark", "data", "prepare", name, *kept])


# Text -----------------------------------------------------------------------------------------------------------


def print_list(root: Path | None, cache: Path | None) -> None:
    """All data sets of the registry with a line on each, and whether they are prepared with their default options."""
    table = Table(title="Data sets", title_justify="left")
    for column in ("name", "prepared", "what it is"):
        table.add_column(column, no_wrap=column != "what it is")
    for name in names():
        try:
            state = "yes" if is_prepared(locate(name, None, root, cache)) else "no"
        except DataError:
            state = "by conf/dataset"  # it has options without a default
        table.add_row(name, state, describe(name))
    _print_table(table)
    place = locate("digits", None, root, cache)
    print(f"raw data: {place.root}\nprepared: {place.folder.parent}")


def print_prepared(place: Location) -> None:
    """Prepare a data set (a damaged one anew); where it is and how large. Errors as `load`."""
    start = time.perf_counter()
    data = prepare(place)
    seconds = time.perf_counter() - start
    size = sum(path.stat().st_size for path in place.folder.iterdir()) / 1e6
    shape = " x ".join(str(length) for length in data.train.images.shape[1:])
    print(
        f"{data.name}: {len(data.train):,} training and {len(data.test):,} test images of {shape}, "
        f"{len(data.classes)} classes; {size:.1f} MB, ready after {seconds:.1f} s\n"
        f"folder: {place.folder}\n"
        f"fingerprint: {data.fingerprint}"
    )
    if data.note:
        print(f"note: {data.note}")


def print_check(place: Location, command: str) -> Dataset | None:
    """Counts per split, class, attribute and source and the published ones; the data set, or None if it is damaged.

    A difference is not a problem: the builder refuses wrong files, and a cut-down copy differs on purpose. `command`
    prepares the data set.
    """
    print(f"{place.entry.name} in {place.folder}")
    problem = f"not prepared in {place.folder}."
    data = None
    try:
        data = check(place)
    except DamagedError as error:
        problem = str(error)
    if data is None:
        print(f"problem: {problem}\nprepare it with: {command}")
        return None
    if data.note:
        print(f"note: {data.note}")
    _print_counts(data)
    print(f"fingerprint {data.fingerprint} verified")
    return data


def _print_counts(data: Dataset) -> None:
    """One row per class (and attribute, source) with a column per split, and the published counts that differ."""
    kinds = {"class": data.classes, "attribute": data.attributes, "source": data.sources}
    counts = {part: _counts(getattr(data, part), kinds.values()) for part in PARTS}
    table = Table(title="Images", title_justify="left", show_footer=True)
    for kind in (kind for kind, known in kinds.items() if known):
        table.add_column(kind, footer="all" if kind == "class" else "")
    for part in PARTS:
        table.add_column(part, justify="right", footer=f"{counts[part].total():,}")
    for cell in product(*(known or ("",) for known in kinds.values())):
        table.add_row(*(name for name in cell if name), *(f"{counts[part][cell]:,}" for part in PARTS))
    _print_table(table)
    differ = []
    for part, label, group, images in data.expected:
        there = data.count(part, label, group)
        if there != images:
            where = " ".join(word for word in (part, label, group) if word)
            differ.append(f"  {where}: {images:,} published, {there:,} found")
    if not data.expected:
        print("published counts: none were known when the set was prepared")
    elif differ:
        print("\n".join([f"published counts: {len(differ)} of {len(data.expected)} differ", *differ]))
    else:
        print(f"published counts: all {len(data.expected)} are met")


def _counts(split: Split, names: Iterable[Sequence[str]]) -> Counter[tuple[str, ...]]:
    """Images of each class, attribute and source of a split; "" where the data set has none."""
    columns = []
    for values, known in zip((split.labels, split.attributes, split.sources), names, strict=True):
        columns.append([""] * len(split) if values is None else [known[index] for index in values])
    return Counter(zip(*columns, strict=True))


def _print_table(table: Table) -> None:
    width = max(shutil.get_terminal_size((110, 24)).columns, 60)
    TextConsole(width).print(table)
