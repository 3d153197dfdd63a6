"""What the report shows to compare the leaderboard's methods: ranks, wins, costs, and each method beside FedAvg.

All numbers are those of `benchmark.papers.leaderboard`. Costs, which take a while to measure, are those that the
leaderboard's table in the results folder or the stored version has.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from benchmark.experiments.selection import TableQuery
from benchmark.experiments.spec import Row, TableSpec
from benchmark.papers import frozen
from benchmark.papers import leaderboard as suite
from benchmark.papers.leaderboard import COSTS, DATA_SET, HINTS, NOTES, Standing
from benchmark.papers.ledger import LedgerEntry
from benchmark.reports.details import POINTS
from benchmark.reports.render.html.page import Board
from benchmark.reports.results import measured_at
from benchmark.reports.statistics import paired_difference, shown_interval
from benchmark.reports.tables import Table, text_table
from benchmark.runs.index import RunIndex

AXES = {
    "time": "client seconds of a round (FedAvg: 1)",
    "traffic": "sent and received in a round (sizes of the model)",
    "spent": "CPU-seconds of all runs, with the search",
}
"""Costs that the page draws -> the label of the axis."""

METHOD_HINTS = {
    "values": "the values of the method's file in conf/method, or those that were chosen on a validation split",
    "mean": "mean over seeds of the data set's metric, in its unit",
    "seeds": "runs with a value, of those that are planned",
    "difference": "from the row named beside it: mean over pairs of runs with one seed on one type of processor",
    "interval": "95 % interval of the difference by Student's t",
    "Holm": "95 % interval after Holm's correction over the methods of the data set",
    "chosen": "the values that were tuned; empty with default values",
}
"""Column of the table of one method -> what its numbers are."""


def board(query: TableQuery, index: RunIndex, entries: Mapping[str, Sequence[LedgerEntry]]) -> Board | None:
    """The comparison, from the finished runs and the stored version; None with fewer than two methods.

    ``entries``: row -> where paper and code of its method disagree.
    """
    old = frozen.newest(query.results, query.preset)
    standings = [suite.standing(track, query, index, old) for track in frozen.TRACKS]
    spec = standings[0].spec
    rows = [row for row in spec.rows if any(row.label in one.table.index for one in standings)]
    if len(rows) < 2:
        return None
    prices = _prices(query, old)
    tracks = {
        one.track: {row.key: line for row in rows if (line := _line(one, row, prices))} for one in standings
    }
    lines = [line for track in tracks.values() for line in track.values()]
    data = [c.key for c in spec.run_columns if any(c.key in line["cells"] for line in lines)]
    wins = {one.track: wins_of(one.spec, one.runs, data) for one in standings}
    counts = {one.track: _wins_table(one.spec, one.track, wins[one.track]) for one in standings}
    methods = {row.key: _method_table(spec, row, tracks) for row in rows}
    said = [f"Track {one.track}: {text}" for one in standings for text in one.said]
    ranking = suite.printed(suite.ranks_of(standings, prices), spec, query.preset, [*NOTES, *said])
    content = {
        "higher": spec.metric_format.higher_is_better,
        "data": [_data(spec, key, query.preset) for key in data],
        "rows": [{"key": row.key, "label": row.label, "anchor": row.key in frozen.ANCHORS} for row in rows],
        "tracks": tracks,
        "costs": {key: text for key, text in AXES.items() if any(key in line["costs"] for line in lines)},
        "wins": wins,
        "counts": {track: _plain(table) for track, table in counts.items()},
        "methods": {key: _plain(table) for key, table in methods.items()},
        "curves": {one.track: _curves(suite.curves_of(one, index, old)) for one in standings},
        "entries": {row.key: [_entry(entry) for entry in entries.get(row.key, ())] for row in rows},
        "hints": HINTS | METHOD_HINTS,
        "said": said,
    }
    tables = {"board-ranking": dict.fromkeys(tracks, ranking), "board-wins": counts, "board-method": methods}
    return Board(content, tables)


def _data(spec: TableSpec, key: str, preset: str) -> dict[str, str]:
    """The names of a data set, and what is measured on it."""
    metric, column = spec.of_column(key).metric_format, spec.column(key)
    direction = "higher" if metric.higher_is_better else "lower"
    hint = f"{metric.label} in {metric.unit}, {direction} is better, {spec.round(preset).phrase}: {HINTS[DATA_SET]}"
    return {"key": key, "label": column.label, "axis": metric.axis, "hint": hint}


def _prices(query: TableQuery, old: frozen.Version | None) -> pd.DataFrame:
    """Costs [method x COSTS]: of the table that `make leaderboard` has written here, else of the stored version."""
    path = query.results / "tables" / query.preset / "leaderboard_ranks.csv"
    prices = suite.older_costs(old)
    if not path.is_file():
        return prices
    here = pd.read_csv(path)
    return here[here["track"] == "default"].set_index("method").reindex(columns=COSTS).combine_first(prices)


def _line(one: Standing, row: Row, prices: pd.DataFrame) -> dict[str, Any] | None:
    """What the page knows of a method in a track; None if it has no finished run there."""
    if row.label not in one.table.index:
        return None
    line, own = one.table.loc[row.label], one.runs[one.runs["row"] == row.key]
    cells = {}
    for column in one.spec.run_columns:
        cell, label = own[own["data"] == column.key], column.label
        if cell.empty or label not in line:
            continue
        tuned = one.tuned.cells.get(row.key, {}).get(column.key)
        searched = [point.cpu_seconds or 0.0 for point in tuned.grid] if tuned else []
        chosen = line.get(f"{label} chosen")
        cells[column.key] = {
            "value": _number(line[label]),
            "n": int(cell["value"].notna().sum()),
            "planned": int(cell["planned"].iloc[0]),
            "base": one.spec.row(cell["base"].iloc[0]).label,
            "difference": _number(line.get(f"{label} difference")),
            "interval": _interval(line, label),
            "holm": _interval(line, f"{label} holm"),
            "same": line.get(f"{label} same") is True,
            "chosen": chosen if isinstance(chosen, str) else "",
            "spent": math.fsum([*cell["cpu_seconds"], *searched]),
        }
    price = prices.loc[row.label] if row.label in prices.index else pd.Series(dtype=float)
    costs = {name: _number(price.get(name)) for name in COSTS}
    costs |= {name: _number(line[name]) for name in ("trials", "search", "runs")}
    costs["traffic"] = _number(price.get("up", math.nan) + price.get("down", math.nan))
    costs["spent"] = _number(line["search"] + line["runs"])
    rank = _number(line.get("rank"))
    return {
        "rank": None if rank is None else [rank, *(_interval(line, "") or ())],
        "cells": cells, "status": _status(own),
        "costs": {name: value for name, value in costs.items() if value is not None},
    }  # fmt: skip


def _status(runs: pd.DataFrame) -> str:
    """``measured at small, run by lab, version 2026-11-28``: what the runs of a method are."""
    words = [measured_at(runs["preset"].iloc[0])]
    for before, what in (("run by", "by"), ("version", "version")):
        words += [f"{before} {name}" for name in sorted(set(runs[what]) - {""})]
    return ", ".join(words)


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else round(float(value), 4)


def _interval(line: pd.Series, name: str) -> list[float] | None:
    low, high = (_number(line.get(f"{name} {end}".strip())) for end in ("low", "high"))
    return None if low is None or high is None else [low, high]


def wins_of(spec: TableSpec, runs: pd.DataFrame, data: Sequence[str]) -> dict[str, dict[str, str]]:
    """Row -> other row -> a character for each data set: + row above, - below, = tie, . not compared.

    A tie: the 95 % interval, uncorrected, of the difference over pairs of runs with one seed on one type of processor
    holds zero. Not compared: fewer than two pairs. Runs that diverged have no value, and form no pair.
    """
    sign = 1.0 if spec.metric_format.higher_is_better else -1.0
    values = {
        key: dict(zip(cell["seed"], zip(cell["processor"], sign * cell["value"], strict=True), strict=True))
        for key, cell in runs.dropna(subset="value").groupby(suite.CELL)
    }
    found: dict[str, dict[str, str]] = {row.key: {} for row in spec.rows if row.key in set(runs["row"])}
    for first, second in combinations(found, 2):
        marks = "".join(_mark(values.get((first, key), {}), values.get((second, key), {})) for key in data)
        found[first][second], found[second][first] = marks, marks.translate(str.maketrans("+-", "-+"))
    return found


def _mark(first: Mapping[int, tuple[str, float]], second: Mapping[int, tuple[str, float]]) -> str:
    seeds = [seed for seed, (kind, _) in first.items() if seed in second and second[seed][0] == kind]
    found = paired_difference(*({seed: of[seed][1] for seed in seeds} for of in (first, second)))
    if found is None or found.interval is None:
        return "."
    low, high = found.interval
    return "+" if low > 0 else "-" if high < 0 else "="


def _wins_table(spec: TableSpec, track: str, wins: Mapping[str, Mapping[str, str]]) -> Table:
    """On how many data sets the row wins, ties and loses against the column."""
    labels = {key: spec.row(key).label for key in wins}
    lines = []
    for key, others in wins.items():
        of = {k: _counts(marks) for k, marks in others.items()}
        lines.append({"method": labels[key]} | {label: of.get(k, "") for k, label in labels.items()})
    note = (
        "Data sets that the row wins / ties / loses against the column. A tie: the paired 95 % interval holds zero. "
        "A dash: compared on none."
    )
    title = f"Leaderboard, {track} values: wins / ties / losses"
    data = pd.DataFrame(lines, columns=["method", *labels.values()])
    return text_table(f"leaderboard_wins_{track}", title, data, (note,))


def _counts(marks: str) -> str:
    """``2/0/1`` of ``++-``; a dash if nothing is compared."""
    return "/".join(str(marks.count(mark)) for mark in "+=-") if marks.strip(".") else "–"


def _method_table(spec: TableSpec, row: Row, tracks: Mapping[str, Mapping[str, Any]]) -> Table:
    """A method on every data set, with default and with tuned values."""
    lines = []
    for column in spec.run_columns:
        for track, of_rows in tracks.items():
            cell = of_rows.get(row.key, {"cells": {}})["cells"].get(column.key)
            if cell is None:
                continue
            interval, holm = (shown_interval(cell[name]) for name in ("interval", "holm"))
            difference = (
                "" if cell["difference"] is None else f"{cell['difference']:+.2f} from {cell['base']}"
            )
            lines.append({
                "data set": column.label, "values": track, "mean": cell["value"],
                "seeds": f"{cell['n']} of {cell['planned']}",
                "difference": "same bits" if cell["same"] else difference, "interval": interval, "Holm": holm,
                "chosen": cell["chosen"],
            })  # fmt: skip
    return text_table(
        f"leaderboard_{row.key}", f"{row.label} on every data set", pd.DataFrame(lines), decimals=2
    )


def _plain(table: Table) -> dict[str, Any]:
    (block,) = table.blocks
    return {
        "heads": [block.head, *block.columns],
        "rows": [[line.label, *line.cells] for line in block.lines],
    }


def _curves(curves: pd.DataFrame) -> dict[str, dict[str, list[list[float]]]]:
    """Row -> data set -> (round, mean over seeds), every n-th point from the last one on."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for (row, data), curve in curves.groupby(["row", "column"]) if len(curves) else ():
        points = curve[["round", "mean"]].dropna().round(3).to_numpy().tolist()
        found.setdefault(row, {})[data] = points[:: -math.ceil(len(points) / POINTS) or -1][::-1]
    return found


def _entry(entry: LedgerEntry) -> dict[str, str]:
    switch = "; ".join(f"{key}={' | '.join(map(str, values))}" for key, values in entry.switch.items())
    return {
        "title": entry.title,
        "Paper": entry.paper,
        "Code": entry.code,
        "Here": entry.default,
        "Switch": switch,
    }
