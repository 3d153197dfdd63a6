"""``python -m benchmark data``: which data sets there are, prepare them, count their images, show their clients."""

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field
from rich.table import Table

from benchmark.cli import partition
from benchmark.cli.options import parse
from benchmark.commands.options import checked
from benchmark.config.compose import group_names, load_group
from benchmark.config.schema import PathsConfig, declared
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.selection import CommandOptions, FileName, RunQuery
from benchmark.reports.render.console import TextConsole
from datasets.core.arrays import fingerprint
from datasets.core.base import PARTS, DataError, Dataset, Split
from datasets.core.prepare import Location, is_prepared, locate, opened, prepare
from datasets.core.registry import describe, names

ACTIONS = ("list", "prepare", "check", "partition")


class DataOptions(CommandOptions):
    """Options of the command."""

    dataset: FileName | None = Field(None, title="FILE of conf/dataset", description="the data set")
    dataset_options: Mapping[str, Any] = declared(RunQuery, "dataset_options")
    data: Path | None = declared(PathsConfig, "data")
    cache: Path | None = declared(PathsConfig, "cache")


def main(argv: Sequence[str]) -> int:
    """List, prepare or check data sets, or show clients; exit code 0, or 1 if a check found a problem."""
    action, *rest = argv or [""]
    if action in ("-h", "--help"):
        print(f"usage: python -m benchmark data {'|'.join(ACTIONS)} [key=value ...]")
        return 0
    if action not in ACTIONS:
        raise ConfigError(wrong("data", action, f"one of: {', '.join(ACTIONS)}", known=ACTIONS))
    if action == "partition":
        return partition.main(rest)
    options = checked(DataOptions, parse(rest, f"data {action}", DataOptions))
    if action == "list":
        print_list(options.data, options.cache)
        return 0
    if options.dataset is None:
        expected = f"one of {', '.join(group_names('dataset'))}"
        raise ConfigError(wrong("dataset", "", expected, where=f"with data {action} dataset=NAME"))
    node = load_group("dataset", options.dataset)
    wanted = {**node["options"], **options.dataset_options}
    place = locate(node["name"], wanted, options.data, options.cache)
    if action == "prepare":
        print_prepared(place)
        return 0
    is_good = print_check(place, shlex.join(["python", "-m", "benchmark", "data", "prepare", *rest]))
    return 0 if is_good else 1


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
    TextConsole().print(table)
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


def print_check(place: Location, command: str) -> bool:
    """Counts per split, class, attribute and source and the published ones; whether the prepared set is whole.

    A difference is not a problem: the builder refuses wrong files, and a cut-down copy differs on purpose. `command`
    prepares the data set.
    """
    print(f"{place.entry.name} in {place.folder}")
    data = opened(place.folder)
    if data is None or fingerprint(data) != data.fingerprint:
        problem = "not prepared, or out of date" if data is None else "the arrays are damaged"
        print(f"problem: {problem}.\nprepare it with: {command}")
        return False
    if data.note:
        print(f"note: {data.note}")
    _print_counts(data)
    print(f"fingerprint {data.fingerprint} verified")
    return True


def _print_counts(data: Dataset) -> None:
    """One row per class (and attribute, source) with a column per split, and the published counts that differ."""
    kinds = {"class": data.classes, "attribute": data.attributes, "source": data.sources}
    counts = {part: _counts(getattr(data, part), kinds.values()) for part in PARTS}
    table = Table(title="Images", title_justify="left", show_footer=True)
    for kind in (kind for kind, labels in kinds.items() if labels):
        table.add_column(kind, footer="all" if kind == "class" else "")
    for part in PARTS:
        table.add_column(part, justify="right", footer=f"{counts[part].total():,}")
    for cell in product(*(labels or ("",) for labels in kinds.values())):
        table.add_row(*(name for name in cell if name), *(f"{counts[part][cell]:,}" for part in PARTS))
    TextConsole().print(table)
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
    for values, labels in zip((split.labels, split.attributes, split.sources), names, strict=True):
        columns.append([""] * len(split) if values is None else [labels[index] for index in values])
    return Counter(zip(*columns, strict=True))
