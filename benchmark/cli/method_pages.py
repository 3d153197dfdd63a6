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
from benchmark.experiments.spec import Column, Row, TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.experiments.tuning import COMMITTED, TunedTable, grid_path, load_grid
from benchmark.fidelity.ledger import LedgerEntry, load
from benchmark.paths import ROOT, conf_files
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
def leaderboard() -> tuple[TableSpec, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The committed leaderboard: its table, cells by row and column, ranks and costs by label, curves.

    No other function knows where these files are.
    """
    start = ROOT / "results" / "small" / "leaderboard"
    cells = pd.read_csv(f"{start}.csv", index_col=["row", "column"], keep_default_na=False)
    ranks = pd.read_csv(f"{start}_ranks.csv", index_col="method")
    return spec_called("leaderboard"), cells, ranks, pd.read_csv(f"{start}_curves.csv")


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
    for path in sorted(COMMITTED.glob("*/*.yaml")):
        table = read_model(TunedTable, path, "tuned")
        for row, cells in table.cells.items():
            for column, cell in cells.items():
                values = (f"{key.rpartition('.')[2]} {as_yaml(value)}" for key, value in cell.chosen.items())
                choice = (", ".join(values), ", ".join(cell.columns), str(cell.seeds))
                if cell.method in one.files:
                    found.setdefault((table.table, table.preset, row, *choice), []).append(column)
    return found


def _results(one: Algorithm) -> dict[str, Any]:
    """What the page says about the results: differences to FedAvg, ranks and costs, curves, and what is missing."""
    spec, cells, ranks, _ = leaderboard()
    rows = [row for row in spec.rows if (row.selection_name or row.method_name) in one.files]
    pairs = [(row, column) for row in rows for column in spec.run_columns]
    missing = [(row, column) for row, column in pairs if (row.key, column.key) not in cells.index]
    blocks = cells.index.get_level_values("column").nunique()
    return {
        "rows": rows,
        "compared": [_compared(*pair) for pair in pairs if pair not in missing],
        "missing": [
            list({part.key: part for part in parts}.values()) for parts in zip(*missing, strict=True)
        ],
        "costs": [_rank_and_cost(row) for row in dict.fromkeys([*(row.key for row in rows), "fedavg"])],
        "methods": len(ranks),
        "blocks": blocks,
        "critical": critical_difference(len(ranks), blocks),
        "picture": _picture({"fedavg": "FedAvg"} | {row.key: row.label for row in rows}),
    }


def _compared(row: Row, column: Column) -> tuple[str, ...]:
    """A line of the table: the row, FedAvg, their paired difference, and what that says."""
    cells, difference, words = leaderboard()[1], "", []
    texts, base = (
        dict(run.split("=") for run in cells.loc[key, column.key]["seeds"].split(";"))
        for key in (row.key, "fedavg")
    )
    numbers = [
        {int(seed): float(text) for seed, text in runs.items() if text[-1].isdigit()}
        for runs in (texts, base)
    ]
    if row.key != "fedavg" and (found := paired_difference(*numbers)):
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
    lost = [text for text in texts.values() if not text[-1].isdigit()]
    words += [f"{len(lost)} of {len(texts)} runs {' or '.join(sorted(set(lost)))}"] if lost else []
    means = [str(summarise([*values.values()])) if values else "" for values in numbers]
    return row.label, _label(column), *means, difference, "; ".join(words)


def _label(column: Column) -> str:
    """The column's label; its key and the metric of the committed numbers where the table shows another one now."""
    spec, cells, _, _ = leaderboard()
    metric = str(cells.xs(column.key, level="column")["metric"].iloc[0])
    current = metric == (column.metric or spec.metric)
    return column.label if current else f"{column.key}, {metric.replace('_', ' ')}"


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # + 0.0: no minus before zero


def _rank_and_cost(key: str) -> list[str]:
    """A line of the table: row, mean rank with its interval, time, sizes, and kernels from docs/performance.md."""
    spec, _, ranks, _ = leaderboard()
    row, text = spec.row(key), (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| (\d+) \|.*[ ,]{re.escape(row.method_name)}[ ,]", text, re.MULTILINE)
    numbers = ranks.reindex([row.label]).iloc[0]
    rank = "" if pd.isna(numbers["rank"]) else "{rank:.1f} [{low:.1f}, {high:.1f}]".format(**numbers)
    costs = ["" if pd.isna(numbers[name]) else f"{numbers[name]:.2f}" for name in COSTS]
    return [row.label, rank, *costs, found[1] if found else ""]


def _picture(labels: Mapping[str, str]) -> str:
    """The mean curves of rows as SVG, a panel for each data set; empty if only FedAvg has one.

    Written by hand, so that it is small and the same numbers give the same bytes.
    """
    spec, _, _, curves = leaderboard()
    curves = curves[curves["row"].isin(labels)]
    if len(labels) > 1 and set(curves["row"]) == {"fedavg"}:
        return ""
    colours = {row: COLOURS[number % len(COLOURS)] for number, row in enumerate(labels)}
    columns = list(dict.fromkeys(curves["column"]))
    parts = [SVG.format(width=190 * len(columns), height=160)]
    for number, key in enumerate(columns):
        panel, left = curves[curves["column"] == key], 190 * number + 30
        last, low = panel["round"].max(), 10 * math.floor(panel["mean"].min() / 10)
        high = max(low + 10, 10 * math.ceil(panel["mean"].max() / 10))
        title = escape(_label(spec.column(key)))
        parts.append(PANEL.format(left=left, title=title, last=last, low=low, high=high))
        for row, line in panel.groupby("row", sort=False):
            x, y = left + 150 * line["round"] / last, 115 - 90 * (line["mean"] - low) / (high - low)
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
            parts.append(f'<polyline points="{points}" stroke="{colours[str(row)]}"/>')
    for number, (row, label) in enumerate(labels.items()):
        parts.append(f'<text x="{30 + 110 * number}" y="152" fill="{colours[row]}">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>\n"])
