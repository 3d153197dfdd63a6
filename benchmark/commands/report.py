"""All tables of a results folder as one page for the browser."""

import contextlib
import math
import os
import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmark.commands.launching import plans_of
from benchmark.errors import UserError
from benchmark.experiments.plan import Cells, unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.sweeps import Sweep
from benchmark.papers.ledger import Chapter, LedgerEntry, load
from benchmark.paths import conf_files
from benchmark.runs.files import write_with_folder
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState


class ReportOptions(TableQuery):
    """Options of `write_report`."""

    out: Path | None = Field(
        None, description="folder of the page; if left out: report in the results folder"
    )
    row_settings: Mapping[str, Any] = Field({}, exclude=True)
    column_settings: Mapping[str, Any] = Field({}, exclude=True)


def write_report(
    query: TableQuery, index: RunIndex, out: Path | None = None, made: Collection[str] | None = None
) -> Path:
    """Write ``index.html`` about the selected tables, as far as they have runs; its path.

    ``made``: stems of the analyses' tables that are shown if tables were selected; None: those that belong to these.
    """
    selected = _tables(query)
    from benchmark.reports import collect, details, layout, tables
    from benchmark.reports.render.html import page

    plans = [*selected, *([] if query.selects else _sweeps(index.results))]
    chapters, panels = load(), details.Details(index, query)
    newest, sections, absent, shown = 0.0, [], [], dict[str, RunState]()
    for spec, cells, command in plans:
        runs = unique_runs([cells])
        index.refresh(runs)
        results_of = [result for key in runs if (result := index.result(key))]
        if not results_of:
            absent.append((spec.title, spec.name, command))
            continue
        newest = max(newest, *(result.updated for result in results_of))
        shown |= {key: index.state(key) for key in runs}
        preset = query.preset if query.preset in spec.presets else spec.presets[0]  # of a sweep
        results = collect.collect(spec, preset, cells, index)
        panels.add(results, cells, command)
        short = spec.short or spec.paper
        entries = _entries(chapters, spec)
        sections.append(page.Section(results, layout.as_table(results), command, short, entries))
    names = [section.table.name for section in sections]
    path = (out or query.results / "report") / "index.html"
    content = page.render(
        query.preset,
        Counter(shown.values()),
        sections,
        absent,
        list(map(tables.read_table, _texts(query, names, made))),
        {"cells": panels.cells, "partitions": panels.partitions},
        os.path.relpath(query.results, path.parent),
        time.strftime("%Y-%m-%d", time.gmtime(newest)) if newest else "",
    )
    write_with_folder(path, content.encode(), durable=False)
    return path


def _tables(query: TableQuery) -> list[tuple[TableSpec, Cells, str]]:
    """The selected tables in the order of the papers, with the commands that carry out what they lack."""
    plans = sorted(plans_of(query), key=lambda plan: (plan[0].paper, plan[0].table or math.inf, plan[0].name))
    part = [shlex.quote(f"{key}={text}") for key in ("rows", "columns") if (text := getattr(query, key))]
    return [
        (*plan, query.command(" ".join([f"table name={plan[0].name}", *part, f"preset={query.preset}"])))
        for plan in plans
    ]


def _sweeps(results: ResultsFolder) -> list[tuple[TableSpec, Cells, str]]:
    """The sweeps of a results folder as tables, with the commands that repeat them."""
    from benchmark.reports.sweeps import read_sweeps

    plans = []
    for axes, command in read_sweeps(results):
        with contextlib.suppress(UserError):  # its files of conf are no longer there
            plans.append((*Sweep.of(axes).table(), command))
    return plans


def _entries(chapters: Sequence[Chapter], spec: TableSpec) -> list[LedgerEntry]:
    """The entries of the ledger about the table itself, its methods or its selections."""
    methods = {row.method_name for row in spec.rows}
    selections = {row.selection_name for row in spec.rows} - {None}
    entries = []
    for chapter in chapters:
        for entry in chapter.entries:
            base = entry.base
            if base.cell is not None:
                touches = base.cell.table == spec.name
            elif base.method or base.selection:
                touches = base.method in methods or base.selection in selections
            else:
                touches = chapter.paper == spec.paper
            entries += [entry] if touches else []
    return entries


def _texts(query: TableQuery, shown: Sequence[str], made: Collection[str] | None) -> Iterator[Path]:
    """The files that analyses have written beside the tables of runs, as far as they were asked for."""
    wanted = (query.name or f"{query.paper or '*'}_table{query.table or ''}") + "*" if query.selects else "*"
    for path in sorted((query.results / "tables" / query.preset).glob("*.csv")):
        name, dot, _ = path.stem.partition(".")  # another form of a table has a second ending
        whole = name.removesuffix("_part")
        asked = name in made if query.selects and made is not None else fnmatchcase(name, wanted)
        if asked and not dot and whole not in shown and whole not in conf_files("table"):
            yield path
