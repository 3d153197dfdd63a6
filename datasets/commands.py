"""Text of `python -m benchmark data list | prepare | check`: what there is, what was prepared, what was found."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from datasets.base import DataError
from datasets.prepare import Count, check, is_prepared, load, locate, prepare
from datasets.registry import describe, names


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
    """Counts per split, class, attribute and source, and problems; and whether all is well.

    Raises:
        DataError: Unknown name or option.
    """
    report = check(name, options, root, cache)
    parts: list[str | Table] = [f"{name} in {report.folder}"]
    if report.note:
        parts.append(f"note: {report.note}")
    if report.counts:
        parts.append(_counts_table(report.counts))
    if report.ok:
        parts.append(f"fingerprint {report.fingerprint} verified")
    parts.extend(f"problem: {problem}" for problem in report.problems)
    return _text(*parts), report.ok


def _counts_table(counts: tuple[Count, ...]) -> Table:
    """One row per class (and attribute, source), one column per split, and the totals."""
    splits = list(dict.fromkeys(count.split for count in counts))
    rows: dict[tuple[str, str, str], dict[str, int]] = {}
    for count in counts:
        cell = rows.setdefault((count.label, count.attribute or "", count.source or ""), {})
        cell[count.split] = count.images
    shown = [k for k, _ in enumerate(("class", "attribute", "source")) if any(row[k] for row in rows)]
    table = Table(title="Images", title_justify="left", show_footer=True)
    for k in shown:
        table.add_column(("class", "attribute", "source")[k], footer="all" if k == 0 else "")
    for split in splits:
        total = sum(count.images for count in counts if count.split == split)
        table.add_column(split, justify="right", footer=f"{total:,}")
    for row, cell in rows.items():
        # A split without attributes or sources has no number for a cell of the other split.
        table.add_row(*(row[k] for k in shown), *(f"{cell[s]:,}" if s in cell else "-" for s in splits))
    return table


def _text(*parts: str | Table) -> str:
    width = max(shutil.get_terminal_size((110, 24)).columns, 60)
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    for part in parts:
        # Paths and fingerprints are copied by people: no line breaks of ours in them.
        console.print(part, soft_wrap=isinstance(part, str))
    stream = console.file
    return stream.getvalue() if isinstance(stream, io.StringIO) else ""
