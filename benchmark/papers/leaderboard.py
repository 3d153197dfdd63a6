"""The leaderboard: all methods on one suite, with default and with tuned values, beside what each of them costs.

Reads the finished runs of conf/table/leaderboard.yaml and leaderboard_tuned.yaml; cells that are not finished here are
taken from the stored version. Costs are counted and timed on the first client of a column, as in FedMR's Fig. 4a
(`benchmark.papers.resources`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from benchmark.code import digest
from benchmark.experiments.plan import Cells
from benchmark.experiments.selection import TableQuery, plan_cells
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import spec_called
from benchmark.experiments.tuning import TunedCell, TunedFolder, TunedTable
from benchmark.papers import frozen
from benchmark.papers.curves import curve_of, over_seeds
from benchmark.papers.registry import LeaderboardOptions
from benchmark.reports.collect import collect, commit_of
from benchmark.reports.notes import short_name, shown_value
from benchmark.reports.results import CellRun, TableResults
from benchmark.reports.statistics import Difference, Ranking, holm, paired_difference, ranking
from benchmark.reports.tables import Table, text_table
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from datasets.core.base import DataError

REPEATS, WARM, ROUNDS = 3, 2, 5
"""How often each method is timed, in turn; first rounds that are not timed; rounds that are."""

TOGETHER = ("hcsfed",)
"""Rows without costs, which are counted for a single client: HCSFed puts its clients into clusters."""

BASE = "fedavg"
CELL = ["row", "data"]
COLUMNS = ["track", "preset", *CELL, "base", "seed", "planned", "outcome", "value", "difference", "same", "differs",
           "cpu_seconds", "processor", "by", "code", "commit", "version"]  # fmt: skip

COSTS = ["time", "up", "down", "client", "server"]

DATA_SET = "data set"

HINTS = {
    DATA_SET: "mean over seeds, and the difference from FedAvg (of default values, from the one with the same client "
    "momentum) over pairs of runs with one seed on one type of processor, with its 95 % interval by Student's t in "
    "brackets. A star: it is still resolved after Holm's correction over the methods of the data set. An equals sign: "
    "the model has the bits of FedAvg's in every seed. Runs that diverged have no value, and with n=2 of 3 there is no "
    "difference",
    "rank": "mean over data sets of the method's rank (1 is best, ties share) by its mean over seeds, with a 95 % "
    "bootstrap interval over data sets and seeds. With default values a method of which a run diverged is not ranked; "
    "with tuned ones it comes last in that data set",
    "trials": "points of rate and values that were tried on a validation split, the best two with three seeds more",
    "search": "CPU-seconds (seconds times threads) of the trials, lower is better",
    "runs": "CPU-seconds of the runs that are shown, lower is better",
    "time": "seconds of a round divided by FedAvg's, lower is better: mean over rounds 3 to 7, median of three. "
    "Computations before these rounds (FedDiverse's set-up) are left out",
    "up": "what the client sends, in sizes of the model, lower is better",
    "down": "what the client receives, in sizes of the model, lower is better",
    "client": "what the client keeps between rounds, in sizes of the model, lower is better",
    "server": "what the server keeps for the client beside the model, in sizes of the model, lower is better",
}
"""Column -> what its numbers are."""

NOTES = (
    *(f"{name}: {text}." for name, text in HINTS.items()),
    "Time, up, down, client and server are counted for one client of the first column that has runs here, in a round "
    "in which it takes part again. Methods without runs here have the costs of the older version. Empty: the method "
    "needs more than one client, or diverged in the rounds that are timed.",
)


class Standing(NamedTuple):
    """One track: its runs, here or of an older version, the chosen values, and what `compare` says of them."""

    track: str
    spec: TableSpec
    cells: Cells
    runs: pd.DataFrame
    tuned: TunedTable
    table: pd.DataFrame
    said: list[str]


def standing(
    track: str,
    query: TableQuery,
    index: RunIndex,
    old: frozen.Version | None,
    settings: Mapping[str, Any] | None = None,
) -> Standing:
    """The standing of the finished runs; cells that are not finished here are taken from ``old``.

    ``settings``: paths and runtime of the cells.
    """
    name = frozen.TRACKS[track]
    spec, tuned = spec_called(name), TunedTable(table=name, preset=query.preset)
    query = query.model_copy(update={"tuned": "off"} if track == "default" else {})
    cells = plan_cells(spec, spec, query, settings)
    runs = runs_of(track, collect(spec, query.preset, cells, index), index)
    if old is not None:
        runs = with_older(runs, old.runs[old.runs["track"] == track])
    if track == "tuned":
        tuned = TunedFolder.of(query.tuned, query.results).read(spec, query.preset)
        tuned = tuned.model_copy(update={"cells": tuned_of(runs, tuned, old)})
    return Standing(track, spec, cells, runs, tuned, *compare(spec, runs, tuned.cells))


def tuned_of(
    runs: pd.DataFrame, here: TunedTable, old: frozen.Version | None
) -> dict[str, dict[str, TunedCell]]:
    """The chosen values of the cells that have runs, from where these are."""
    cells: dict[str, dict[str, TunedCell]] = {}
    for (row, column), version in runs.groupby(CELL)["version"].first().items():
        source = old.tuned if version and old is not None else here
        if column in source.cells.get(row, {}):
            cells.setdefault(row, {})[column] = source.cells[row][column]
    return cells


def ranks_of(standings: Sequence[Standing], prices: pd.DataFrame) -> pd.DataFrame:
    """A line for each track and method; ``prices`` [method x COSTS] stand in the default track."""
    tables = []
    for one in standings:
        table = one.table.join(prices.reindex(columns=COSTS)) if one.track == "default" else one.table
        tables.append(table.rename_axis("method").reset_index().assign(track=one.track))
    return pd.concat(tables, ignore_index=True)


def older_costs(old: frozen.Version | None) -> pd.DataFrame:
    """The costs in a version [method x COSTS]; empty without one."""
    if old is None:
        return pd.DataFrame(columns=COSTS)
    return old.ranks[old.ranks["track"] == "default"].set_index("method").reindex(columns=COSTS)


def leaderboard(options: LeaderboardOptions) -> Table:
    """All methods on one suite: differences from FedAvg, mean ranks with intervals, and what each method costs."""
    index = RunIndex(ResultsFolder(options.results, options.stale).existing())
    old = frozen.newest(options.results, options.preset)
    paths = options.model_dump(mode="json", include={"data"})
    settings = {"paths": paths, "runtime": options.model_dump(include={"device", "threads"})}
    standings = [standing(track, options, index, old, settings) for track in frozen.TRACKS]
    default, tuned = standings
    spec = default.spec
    notes = [*NOTES, *options.remarks, f"Missing runs: make leaderboard PRESET={options.preset}"]
    prices = older_costs(old)
    try:
        prices = _counted(default, prices)
    except DataError as error:  # all runs are imported
        notes.append(f"Costs are not counted: {error}")
    ranks = ranks_of(standings, prices)
    notes += [f"Track {one.track}: {text}" for one in standings for text in one.said]
    if options.freeze:
        folder = options.results / "leaderboard"
        runs = pd.concat([one.runs for one in standings])
        curves = pd.concat([curves_of(one, index, old) for one in standings])
        version = frozen.Version(options.freeze, runs, ranks, curves, tuned.tuned)
        frozen.write(folder, version, options.preset)
        notes.append(f"Frozen in {folder}.")
    return printed(ranks, spec, options.preset, notes)


def runs_of(track: str, results: TableResults, index: RunIndex) -> pd.DataFrame:
    """A line for each run that has ended.

    ``difference``: from the run of ``base`` with this seed on this type of processor. ``same``: whether both models
    have equal bits. ``by``: who ran it, if it was imported. ``code``: digest of the row's own code.
    """
    lines = []
    for (row, column), cell in results.cells.items():
        base = cell.base or cell
        processors = {run.seed: run.processor for run in base.runs}
        models = {run.seed: _model(run, index) for run in base.runs}
        for run in cell.runs:
            result = index.result(run.key) if run.run else None
            if result is None or run.outcome not in (RunState.DONE, RunState.DIVERGED):
                continue
            value = cell.values.get(run.seed)
            pair = base.values.get(run.seed) if processors.get(run.seed) == run.processor else None
            lines.append({
                "track": track, "preset": results.preset, "data": column, "row": row, "base": base.row.key,
                "seed": run.seed,
                "planned": len(cell.runs), "outcome": str(run.outcome), "value": value,
                "difference": None if value is None or pair is None else value - pair,
                "same": result.model_sha256 == models.get(run.seed), "differs": run.differs,
                "cpu_seconds": round(result.seconds * result.origin["threads"], 1),
                "processor": result.instructions, "by": run.by, "code": digest(result.origin["code"])[:12],
                "commit": commit_of(result.made) + " with changes" * result.made["dirty"], "version": "",
            })  # fmt: skip
    # Decimals of the stored version: a method that is FedAvg ties with it there, too.
    return pd.DataFrame(lines, columns=COLUMNS).astype({"value": float, "difference": float}).round(6)


def _model(run: CellRun, index: RunIndex) -> str:
    """SHA-256 of the last model of a run; empty if it has not ended."""
    result = index.result(run.key) if run.run else None
    return result.model_sha256 if result else ""


def with_older(runs: pd.DataFrame, old: pd.DataFrame) -> pd.DataFrame:
    """``runs``, and the cells of an older version that are not complete here or whose base is not complete here."""
    here, there = (frame["row"] + " " + frame["data"] for frame in (runs, old))
    complete = here[here.map(here.value_counts()) == runs["planned"]]
    taken = there[~(there.isin(complete) & (old["base"] + " " + old["data"]).isin(complete))]
    return pd.concat(
        [frame for frame in (runs[~here.isin(taken)], old.loc[taken.index]) if len(frame)] or [runs]
    )


def curves_of(one: Standing, index: RunIndex, old: frozen.Version | None) -> pd.DataFrame:
    """The mean curves of the cells in its runs: from the runs here, or for cells of an older version from there."""
    version = one.runs.groupby(["row", "data"])["version"].first()
    cells = {key: cell for key, cell in one.cells.items() if version.get(key) == ""}
    found = [over_seeds(*key, curve_of(one.spec, cell, index)) for key, cell in cells.items()]
    if old is not None:
        taken = pd.MultiIndex.from_frame(old.curves[["row", "column"]]).isin(version[version != ""].index)
        found.append(old.curves[taken & (old.curves["track"] == one.track)])
    return pd.concat(found).assign(track=one.track) if found else pd.DataFrame()


def _whole(cell: pd.DataFrame) -> bool:
    return len(cell) == cell["planned"].iloc[0]


def _reached(cell: pd.DataFrame) -> str:
    """``2 of 3`` where a run is missing or diverged."""
    count, planned = cell["value"].count(), cell["planned"].iloc[0]
    return "" if count == planned else f"{count} of {planned}"


def compare(
    spec: TableSpec, runs: pd.DataFrame, tuned: Mapping[str, Mapping[str, TunedCell]]
) -> tuple[pd.DataFrame, list[str]]:
    """A line for each method with runs, best first, and what is to be said about the ranks.

    Of a data set with label X there are ``X``, ``X difference``, ``X low``, ``X high`` and ``X chosen``.
    """
    cells = dict(iter(runs.groupby(CELL)))
    data = [c.key for c in spec.run_columns if (BASE, c.key) in cells and _whole(cells[BASE, c.key])]
    wanted = {(column, seed) for column in data for seed in cells[BASE, column]["seed"]}
    ranked: dict[str, dict[tuple[str, int], float]] = {}
    lines: dict[str, dict[str, Any]] = {}
    sensitive, lacking = list[str](), list[str]()
    for row in spec.rows:
        found = {column: cells[row.key, column] for column in data if (row.key, column) in cells}
        line: dict[str, Any] = {}
        for column, cell in found.items():
            line |= _cell_line(spec.column(column).label, cell, tuned.get(row.key, {}).get(column))
        if found:
            points = [p for c in found if c in tuned.get(row.key, {}) for p in tuned[row.key][c].grid]
            line |= {"trials": len(points), "search": math.fsum(point.cpu_seconds or 0.0 for point in points)}
            line |= {"runs": math.fsum(cell["cpu_seconds"].sum() for cell in found.values())}
            lines[row.label] = line
        if row.key in frozen.ANCHORS or (spec.tuned_only and row.key not in tuned):
            continue
        bad = [spec.column(c).label for c, cell in found.items() if cell["value"].isna().any()]
        if bad and not spec.tuned_only:
            sensitive.append(f"{row.label} ({', '.join(bad)})")
        elif found and (values := _ranked(spec, found)).keys() == wanted:
            ranked[row.label] = values
        else:
            lacking.append(row.label)
    table = _with_holm(pd.DataFrame.from_dict(lines, orient="index"), spec, cells)
    why = "runs with FedAvg's seeds are missing" + ", or no trial could be chosen" * spec.tuned_only
    said = [f"not ranked, as {why}: {', '.join(lacking)}."] if lacking else []
    said += [f"sensitive, not ranked, as runs diverged: {'; '.join(sensitive)}."] if sensitive else []
    other = runs[runs["differs"] != ""].groupby("differs")["row"].unique()
    said += [f"made in another way ({how}): {', '.join(keys)}." for how, keys in other.items()]
    if len(ranked) < 2:
        return table, said
    ranks = ranking(pd.DataFrame(ranked))
    table = ranks.table.join(table, how="outer").sort_values("rank", kind="stable")
    return table, [_told_apart(ranks), *said]


def _ranked(spec: TableSpec, found: Mapping[str, pd.DataFrame]) -> dict[tuple[str, int], float]:
    """(data, seed) -> value, higher is better; a run that diverged is worse than all others."""
    sign = 1.0 if spec.metric_format.higher_is_better else -1.0
    return {
        (column, seed): -math.inf if math.isnan(value) else sign * value
        for column, cell in found.items()
        for seed, value in zip(cell["seed"], cell["value"], strict=True)
    }


def _difference(cell: pd.DataFrame) -> Difference | None:
    """The difference from the base row; None for this row itself, and where a run is missing or diverged."""
    pairs = cell.dropna(subset="difference").set_index("seed")["difference"].to_dict()
    is_base = (cell["row"] == cell["base"]).all()
    return None if is_base or _reached(cell) else paired_difference(pairs, dict.fromkeys(pairs, 0.0))


def _with_holm(table: pd.DataFrame, spec: TableSpec, cells: Mapping[Any, pd.DataFrame]) -> pd.DataFrame:
    """With ``X holm low`` and ``X holm high`` of each data set: the intervals after Holm's correction."""
    for column in spec.run_columns:
        rows = [row for row in spec.rows if (row.key, column.key) in cells and row.label in table.index]
        found = holm([_difference(cells[row.key, column.key]) for row in rows])
        for row, interval in zip(rows, found, strict=True):
            if interval is not None:
                table.loc[row.label, [f"{column.label} holm {end}" for end in ("low", "high")]] = interval
    return table


def _cell_line(label: str, cell: pd.DataFrame, tuned: TunedCell | None) -> dict[str, Any]:
    """Mean over seeds, difference from FedAvg with its interval, and the values that were chosen."""
    found = _difference(cell)
    line: dict[str, Any] = {label: float(cell["value"].mean())}
    if _reached(cell):
        line[f"{label} n"] = _reached(cell)
    if found is not None and cell["same"].all() and found.mean == 0 and not found.error:
        line[f"{label} same"] = True
    if found is not None:
        low, high = found.interval or (math.nan, math.nan)
        line |= {f"{label} difference": found.mean, f"{label} low": low, f"{label} high": high}
    if tuned is not None:
        words = [f"{short_name(key)} {shown_value(value)}" for key, value in tuned.chosen.items()]
        line[f"{label} chosen"] = ", ".join(words)
    return line


def _told_apart(ranks: Ranking) -> str:
    blocks = (
        f"{ranks.blocks} data sets, which are the blocks. Friedman test of equal methods: p = {ranks.p:.2g}"
    )
    return (
        f"{len(ranks.table)} methods, {blocks if ranks.blocks > 1 else 'one data set, which is the only block'}. "
        f"Critical difference of mean ranks (Nemenyi, 5 %): {ranks.critical:.2f}. It tells apart: {ranks.apart}."
    )


def printed(ranks: pd.DataFrame, spec: TableSpec, preset: str, notes: Sequence[str]) -> Table:
    """The table to read: one column for each data set, with the difference from FedAvg in brackets."""
    data = ranks[["method", "track"]].copy()
    labels = [column.label for column in spec.run_columns if column.label in ranks]
    for label in labels:
        data[label] = [_shown(label, line) for _, line in ranks.iterrows()]
    numbers = ["rank", "low", "high", "trials", "search", "runs", *COSTS]
    data = data.join(ranks[[name for name in numbers if name in ranks]])
    chosen = [f"{label} chosen" for label in labels if f"{label} chosen" in ranks]
    title = f"Leaderboard: all methods on one suite, preset {preset}"
    return text_table("leaderboard_ranks", title, data.join(ranks[chosen]), tuple(notes), decimals=2)


def _shown(label: str, line: pd.Series) -> str:
    """``72.90 (+1.20 [0.30, 2.10])``, ``72.90 (=)`` or ``72.90 (n=2 of 3)``."""
    value, difference, low, high = (
        line.get(label + more, math.nan) for more in ("", " difference", " low", " high")
    )
    if isinstance(reached := line.get(f"{label} n"), str):
        return f"(n={reached})" if pd.isna(value) else f"{value:.2f} (n={reached})"
    if pd.isna(value):
        return ""
    if line.get(f"{label} same") is True:
        return f"{value:.2f} (=)"
    interval = "" if pd.isna(low) else f" [{low:.2f}, {high:.2f}]"
    holm_low, holm_high = (line.get(f"{label} holm {end}", math.nan) for end in ("low", "high"))
    interval += "*" * (not pd.isna(holm_low) and (holm_low > 0 or holm_high < 0))
    return f"{value:.2f}" + ("" if pd.isna(difference) else f" ({difference:+.2f}{interval})")


def _counted(default: Standing, older: pd.DataFrame) -> pd.DataFrame:
    """The costs of the methods with runs here, and ``older`` ones of the others [method x COSTS]."""
    here = default.runs[default.runs["version"] == ""]
    if here.empty:
        return older
    part = default.spec.cut([BASE, *here["row"]], here["data"])
    counted = pd.DataFrame(costs(part, default.cells)).T
    return counted.combine_first(older.drop(index=[row.label for row in part.rows], errors="ignore"))


def costs(spec: TableSpec, cells: Cells) -> dict[str, dict[str, float]]:
    """Method -> time, up, down, client, server, as `NOTES` says, but for `TOGETHER` and methods without runs."""
    from benchmark.papers.resources import numbers, timed  # imports PyTorch, which the report does not need

    column = spec.run_columns[0].key
    alone = spec.cut([row.key for row in spec.rows if row.key not in TOGETHER], [column])
    trainees = timed(alone, cells, column, REPEATS, warm=WARM, rounds=ROUNDS)
    _, fedavg = trainees.get(spec.row(BASE).label, (None, math.nan))
    prices = {}
    for label, (trainee, seconds) in trainees.items():
        state, run = trainee.state, trainee.run
        _, report = run.run_round(state)
        size = run.layout.size + len(run.model.buffers)
        prices[label] = {
            "time": seconds / fedavg,
            "up": (run.exchanged + report.cost.scalars_up) / size,
            "down": (run.exchanged + report.cost.scalars_down) / size,
            "client": numbers(state.clients.get(0, {})) / size,
            "server": numbers((state.direction, state.optimizer, state.post, state.rules)) / size,
        }
    return prices
