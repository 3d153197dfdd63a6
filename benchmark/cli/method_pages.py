"""Pages of docs/reference/methods, one for each file of an algorithm: from its code, and from committed results."""

import importlib
import inspect
import math
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from benchmark.cli import reference
from benchmark.cli.list import described
from benchmark.cli.reference import Algorithm, as_yaml, quoted
from benchmark.config.files import read_model
from benchmark.errors import ConfigError
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.experiments.tuning import COMMITTED, TunedTable, grid_path, load_grid
from benchmark.papers import frozen
from benchmark.papers.frozen import TRACKS
from benchmark.papers.ledger import LedgerEntry, load
from benchmark.paths import conf_files
from benchmark.reports.statistics import critical_difference, paired_difference, summarise

COLOURS = ("#888", "#0173b2", "#de8f05", "#029e73")
"""Of FedAvg, and of the rows of a page."""

COSTS = ("time", "up", "down", "client", "server")

SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="10">
<style>polyline, path {{fill: none; stroke-width: 1.3}} .end {{text-anchor: end}}</style>
<rect width="100%" height="100%" fill="white"/>"""

PANEL = """<path d="M{left} 25V115h150" stroke="#aaa"/>
<g transform="translate({left} 0)"><text y="15">{title}</text><text class="end" x="-4" y="29">{high}</text>
<text class="end" x="-4" y="119">{low}</text><text class="end" x="150" y="128">round {last}</text></g>"""


@cache
def leaderboard() -> tuple[TableSpec, frozen.Version]:
    """The table, and the newest committed version of preset small. `ConfigError` without one."""
    version = frozen.newest(frozen.COMMITTED.parent, "small")
    if version is None:
        raise ConfigError(f"{frozen.COMMITTED}: no version of preset small is there. Restore it with git.")
    return spec_called("leaderboard"), version


def pages() -> dict[str, str]:
    """The pages of `reference`, and page and picture of each method, by the names of their files."""
    environment = Environment(
        loader=PackageLoader("benchmark.cli", "."),
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined,
    )  # fmt: skip
    template, found = environment.get_template("method.md.jinja"), reference.pages()
    for one in reference.algorithms():
        stem = f"methods/{Path(one.file).stem}"
        content = _code(one) | _results(one)
        found[f"{stem}.md"] = template.render(
            one=one, stem=Path(one.file).stem, written=reference.WRITTEN, **content
        )
        found |= {f"{stem}.svg": content["picture"]} if content["picture"] else {}
    return found


def _code(one: Algorithm) -> dict[str, Any]:
    """What the page says about the code: equations, values, rules, differences to the authors' code, tuning."""
    module = importlib.import_module(f"methods.{one.file[:-3]}".replace("/", "."))
    group = "selection" if "/" in one.file else "method"
    main = [file for file in one.files if file in {Path(one.file).stem, *one.name.lower().split(", ")}]
    paths = conf_files(group)
    grids = [load_grid(file) for file in one.files if group == "method" and grid_path(file).is_file()]
    return {
        "equations": _equations(inspect.getdoc(module) or ""),
        "group": group,
        "values": {file: paths[file].read_text(encoding="utf-8").strip() for file in main},
        "variants": {file: described(group, file) for file in one.files if file not in main},
        "rules": reference.rule_table(module.__name__),
        "entries": [entry for part in load() for entry in part.entries if _about(one, part.paper, entry)],
        "grids": {
            grid.method: {key: quoted(map(as_yaml, tried)) for key, tried in grid.grid.items()}
            for grid in grids
        },
        "tuned": _tuned(one) if group == "method" else {},
        "quoted": lambda values: quoted(map(as_yaml, values)),
    }


def _equations(docstring: str) -> str:
    """A module's docstring without its title. Markdown takes <g, v> for a tag, but not in an indented equation."""
    lines = reference.prose(docstring).splitlines()[1:]
    escaped = [line if line.startswith("    ") else re.sub(r"<(?=\w)", "&lt;", line) for line in lines]
    return re.sub(r"(https://\S+[^\s,)])", r"<\1>", "\n".join(escaped)).strip()


def _about(one: Algorithm, paper: str, entry: LedgerEntry) -> bool:
    """Whether an entry of the ledger acts on the method, names it, or is in its paper's chapter and on no other."""
    other = entry.base.selection or entry.base.method
    named = re.search(rf"\b{re.escape(one.name)}(?!\w)", entry.title) is not None
    return other in one.files or named or (other is None and paper == Path(one.file).stem)


def _tuned(one: Algorithm) -> dict[tuple[str, ...], list[str]]:
    """(table, preset, row, chosen values, columns that they were chosen on, seeds) -> columns that have them."""
    found: dict[tuple[str, ...], list[str]] = {}
    tables = [read_model(TunedTable, path, "tuned") for path in sorted(COMMITTED.glob("*/*.yaml"))]
    for table in [*tables, leaderboard()[1].tuned]:
        for row, cells in table.cells.items():
            for column, cell in cells.items():
                values = (f"{key.rpartition('.')[2]} {as_yaml(value)}" for key, value in cell.chosen.items())
                choice = (", ".join(values), ", ".join(cell.columns) or "itself", str(cell.seeds))
                if cell.method in one.files:
                    found.setdefault((table.table, table.preset, row, *choice), []).append(column)
    return found


def _results(one: Algorithm) -> dict[str, Any]:
    """What the page says about the results: differences to FedAvg, ranks and costs, curves, and what is missing."""
    spec, version = leaderboard()
    rows = [row for row in spec.rows if (row.selection_name or row.method_name) in one.files]
    cells = dict(iter(version.runs.groupby(["track", "row", "data"])))
    lacking = {
        track: [
            column.label
            for column in spec.run_columns
            if any((track, row.key, column.key) not in cells for row in rows)
        ]
        for track in TRACKS
    }
    return {
        "version": version.name,
        "rows": rows,
        "compared": [
            [track, row.label, column.label, *_compared(cells[key], cells[track, "fedavg", column.key])]
            for track in TRACKS
            for row in rows
            for column in spec.run_columns
            if (key := (track, row.key, column.key)) in cells
        ],
        "missing": {track: columns for track, columns in lacking.items() if columns},
        "costs": [_ranks_and_cost(row) for row in dict.fromkeys([*(row.key for row in rows), "fedavg"])],
        "apart": _apart(version),
        "picture": _picture({"fedavg": "FedAvg"} | {row.key: row.label for row in rows}),
    }


def _compared(cell: pd.DataFrame, base: pd.DataFrame) -> tuple[str, ...]:
    """The end of a line of the table: the row, FedAvg, their paired difference, and what that says."""
    difference, words = "", []
    pairs = cell.dropna(subset="difference").set_index("seed")["difference"].to_dict()
    if set(cell["row"]) != {"fedavg"} and (found := paired_difference(pairs, dict.fromkeys(pairs, 0.0))):
        low, high = found.interval or (-math.inf, math.inf)
        interval = f"[{_signed(low)}, {_signed(high)}]" if found.interval else "(one pair)"
        difference = f"{_signed(found.mean)} {interval}"
        verdicts = {
            "above": low > 0,
            "below": high < 0,
            "equal in every run": low == high,
            "not resolved": True,
        }
        words = [next(verdict for verdict, holds in verdicts.items() if holds)]
    lost = cell["value"].isna().sum()
    words += [f"{lost} of {len(cell)} runs diverged"] if lost else []
    numbers = [list(part["value"].dropna()) for part in (cell, base)]
    return *(str(summarise(values)) if values else "" for values in numbers), difference, "; ".join(words)


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # + 0.0: no minus before zero


def _ranks_and_cost(key: str) -> list[str]:
    """A line of the table: row, mean ranks with intervals, time and sizes."""
    spec, version = leaderboard()
    row = spec.row(key)
    lines = version.ranks.set_index(["track", "method"]).reindex([(track, row.label) for track in TRACKS])
    ranks = [
        "" if pd.isna(line["rank"]) else "{rank:.1f} [{low:.1f}, {high:.1f}]".format(**line)
        for _, line in lines.iterrows()
    ]
    costs = ["" if pd.isna(lines[name].iloc[0]) else f"{lines[name].iloc[0]:.2f}" for name in COSTS]
    return [row.label, *ranks, *costs]


def _apart(version: frozen.Version) -> list[str]:
    """For each track with ranks: how far ranks must be from each other, and among how many methods and data sets."""
    said = []
    for track, table in version.ranks.dropna(subset="rank").groupby("track"):
        blocks = version.runs[version.runs["track"] == track]["data"].nunique()
        far = critical_difference(len(table), blocks)
        said.append(
            f"{far:.1f} ({track} values, {len(table)} methods, {blocks} data set{'s' * (blocks > 1)})"
        )
    return said


def _picture(labels: Mapping[str, str]) -> str:
    """The mean curves of rows as SVG, a panel for each data set; empty if only FedAvg has one.

    Written by hand, so that it is small and the same numbers give the same bytes.
    """
    spec, version = leaderboard()
    curves = version.curves[version.curves["row"].isin(labels)]
    if len(labels) > 1 and set(curves["row"]) == {"fedavg"}:
        return ""
    colours = {row: COLOURS[number % len(COLOURS)] for number, row in enumerate(labels)}
    columns = [column for column in spec.run_columns if column.key in set(curves["column"])]
    parts = [SVG.format(width=190 * len(columns), height=160)]
    for number, column in enumerate(columns):
        panel, left = curves[curves["column"] == column.key], 190 * number + 30
        last, low = panel["round"].max(), 10 * math.floor(panel["mean"].min() / 10)
        high = max(low + 10, 10 * math.ceil(panel["mean"].max() / 10))
        title = escape(column.label)
        parts.append(PANEL.format(left=left, title=title, last=last, low=low, high=high))
        for (row, track), line in panel.groupby(["row", "track"], sort=False):
            x, y = left + 150 * line["round"] / last, 115 - 90 * (line["mean"] - low) / (high - low)
            points = " ".join(f"{round(a, 1):g},{round(b, 1):g}" for a, b in zip(x, y, strict=True))
            dash = ' stroke-dasharray="3 2"' if track == "tuned" else ""
            parts.append(f'<polyline points="{points}" stroke="{colours[row]}"{dash}/>')
    for number, (row, label) in enumerate(labels.items()):
        parts.append(f'<text x="{30 + 110 * number}" y="152" fill="{colours[row]}">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>\n"])
