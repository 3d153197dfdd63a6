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
from typing import TYPE_CHECKING, Any

from pydantic import Field

from benchmark.commands.launching import plans_of
from benchmark.config.schema import RunConfig
from benchmark.errors import UserError
from benchmark.experiments.plan import Cells, unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.sweeps import Sweep
from benchmark.experiments.tables import spec_called
from benchmark.papers.ledger import Chapter, LedgerEntry, load
from benchmark.paths import conf_files
from benchmark.runs.files import write_with_folder
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

if TYPE_CHECKING:
    from benchmark.reports.details import Details
    from benchmark.reports.render.html.page import Board, Section
    from benchmark.reports.tables import Table


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
    from benchmark.reports import details, tables
    from benchmark.reports.render.html import page

    plans = [*selected, *([] if query.selects else _sweeps(index.results))]
    chapters, panels = load(), details.Details(index, query)
    sections, absent, keys, copies = [], [], dict[str, RunConfig](), {}
    for spec, cells, command in plans:
        runs = unique_runs([cells])
        index.refresh(runs)
        if not any(map(index.result, runs)):
            absent.append((spec.title, spec.name, command))
            continue
        keys |= runs
        sections.append(_section((spec, cells, command), query, index, panels, chapters))
        copies[spec.name] = _copies(sections[-1].views)
    board = _board(query, index, chapters, {spec.name for spec, *_ in plans})
    copies |= {name: _copies(views) for name, views in board.tables.items()} if board else {}
    names = [section.table.name for section in sections] + ["leaderboard_ranks"] * bool(board)
    texts = list(map(tables.read_table, _texts(query, names, made)))
    copies |= {table.name: _copies({"": table}) for table in texts}
    newest = max((result.updated for key in keys if (result := index.result(key))), default=0.0)
    path = (out or query.results / "report") / "index.html"
    content = page.render(
        query.preset,
        Counter(map(index.state, keys)),
        sections,
        absent,
        texts,
        {"cells": panels.cells, "partitions": panels.partitions, "copies": copies},
        os.path.relpath(query.results, path.parent),
        time.strftime("%Y-%m-%d", time.gmtime(newest)) if newest else "",
        board,
    )
    write_with_folder(path, content.encode(), durable=False)
    return path


def _section(
    plan: tuple[TableSpec, Cells, str],
    query: TableQuery,
    index: RunIndex,
    panels: "Details",
    chapters: Sequence[Chapter],
) -> "Section":
    """A table that has runs. The details of its cells are added to ``panels``."""
    from benchmark.reports import collect, layout
    from benchmark.reports.render.html import page

    spec, cells, command = plan
    preset = query.preset if query.preset in spec.presets else spec.presets[0]  # of a sweep
    results = collect.collect(spec, preset, cells, index)
    panels.add(results, cells, command)
    names = [view for view in page.VIEWS if view != "published" or spec.published]
    views: dict[str, Table] = {view: layout.as_table(results, view) for view in names}
    table, short = layout.as_table(results), spec.short or spec.paper
    return page.Section(results, table, command, short, _entries(chapters, spec), views)


def _board(
    query: TableQuery, index: RunIndex, chapters: Sequence[Chapter], shown: Collection[str]
) -> "Board | None":
    """The leaderboard's comparison, if one of its tables is asked for; None if it has no two methods."""
    from benchmark.papers import comparison, frozen

    if not {*frozen.TRACKS.values()} & {*shown}:
        return None
    spec = spec_called(frozen.TRACKS["default"])
    entries = {row.key: _entries(chapters, spec.model_copy(update={"rows": (row,)})) for row in spec.rows}
    return comparison.board(query, index, entries)


def _copies(views: Mapping[str, "Table"]) -> str:
    """What the page copies of a table, packed: view -> ending -> text."""
    from benchmark.reports import details, write

    return details.pack({view: write.texts(table) for view, table in views.items()})


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
