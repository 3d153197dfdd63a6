"""The measured effect of a switch: a cell of a table as it is, and the same with the switch, over the same seeds."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells, TunedValues, plan
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tuning import TunedFolder
from benchmark.fidelity.ledger import ROOT, CellName, Chapter, Entry, table
from benchmark.reports.collect import collect
from benchmark.reports.statistics import Summary
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.runs.store import Results, read_json

EFFECTS_FOLDER = ROOT / "results" / "fidelity"
"""Where measured effects are committed, one CSV per preset."""

COLUMNS = (
    "id",
    "table",
    "row",
    "column",
    "overrides",
    "metric",
    "default_mean",
    "default_sd",
    "default_n",
    "switched_mean",
    "switched_sd",
    "switched_n",
    "difference",
    "differences",
    "seeds",
    "diverged",
    "commit",
)


@dataclass(frozen=True)
class Pair:
    """The two cells of an entry: ``spec`` is cut to the cell."""

    entry: Entry
    cell: CellName
    spec: TableSpec
    default: Cells
    switched: Cells


def key_of(entry: Entry, preset: str) -> tuple[str, ...] | None:
    """What a measured line must match to be about this entry; None where nothing is to be measured."""
    if entry.effect is None or preset not in entry.effect.cells:
        return None
    cell = entry.effect.cells[preset]
    return entry.id, cell.table, cell.row, cell.column, json.dumps(entry.effect.overrides)


def pairs(
    chapters: Sequence[Chapter],
    preset: str,
    seeds: Sequence[int] | None,
    extra: Mapping[str, Any],
    tuned: TunedFolder,
) -> list[Pair]:
    """The cells to run in ``preset``; a cell of tuned hyper-parameters keeps them on both sides."""
    found = []
    for entry in (entry for chapter in chapters for entry in chapter.entries):
        if entry.effect is None or preset not in entry.effect.cells:
            continue
        cell = entry.effect.cells[preset]
        whole = table(cell.table)
        spec = whole.cut([cell.row], [cell.column])
        where = (cell.row, cell.column)
        chosen = tuned.load(whole, preset)
        own = chosen[where].values if where in chosen else {}
        switched = TunedValues({**own, **entry.effect.overrides}, f"ledger entry {entry.id}")
        default = plan(spec, preset, seeds, extra, chosen)
        if default[where].state != "ok":
            raise ConfigError(
                f"ledger entry {entry.id}, preset {preset}: {cell.table}, {cell.row}, {cell.column}: "
                f"{default[where].state}."
            )
        found.append(Pair(entry, cell, spec, default, plan(spec, preset, seeds, extra, {where: switched})))
    return found


def measure(pair: Pair, preset: str, index: RunIndex) -> dict[str, Any]:
    """One line of the CSV from what is on disk; numbers as a table shows them (percent where it does)."""
    where = (pair.cell.row, pair.cell.column)
    default, switched = (
        collect(pair.spec, preset, cells, index).cells[where] for cells in (pair.default, pair.switched)
    )
    seeds = sorted(default.values.keys() & switched.values.keys())
    each = [switched.values[seed] - default.values[seed] for seed in seeds]
    diverged = [
        f"{name} {len(cell.troubles[RunState.DIVERGED])} of {len(cell.runs)}"
        for name, cell in (("default", default), ("switched", switched))
        if RunState.DIVERGED in cell.troubles
    ]
    runs = [run for cells in (pair.default, pair.switched) for run in cells[where].runs]
    return {
        **dict(zip(COLUMNS[:5], key_of(pair.entry, preset) or (), strict=True)),
        "metric": pair.spec.metric,
        **{f"default_{part}": _number(default.summary, part) for part in ("mean", "sd", "n")},
        **{f"switched_{part}": _number(switched.summary, part) for part in ("mean", "sd", "n")},
        "difference": f"{sum(each) / len(each):.6f}" if each else "",
        "differences": " ".join(f"{value:+.4f}" for value in each),
        "seeds": " ".join(map(str, seeds)),
        "diverged": ", ".join(diverged),
        "commit": _commits(index.results, [run.key for run in runs]),
    }


def _number(summary: Summary | None, part: str) -> str:
    if summary is None:
        return "0" if part == "n" else ""
    value = {"mean": summary.mean, "sd": summary.std, "n": summary.n}[part]
    return "" if value is None else str(value) if part == "n" else f"{value:.6f}"


def _commits(results: Results, keys: Sequence[str]) -> str:
    """Commits of the runs, with a + where files had been changed since."""
    found = set()
    for key in keys:
        meta = read_json(results.run(key).path / "meta.json") or {}
        if meta.get("commit"):
            found.add(meta["commit"][:9] + ("+" if meta.get("dirty") else ""))
    return " ".join(sorted(found))


def read(preset: str, folder: Path = EFFECTS_FOLDER) -> dict[tuple[str, ...], dict[str, str]]:
    """Measured lines of a preset by what they are about; empty without a file."""
    path = folder / f"{preset}.csv"
    if not path.is_file():
        return {}
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"measured effects {path} cannot be read: {error}") from error
    if tuple(frame.columns) != COLUMNS:
        raise ConfigError(f"measured effects {path}: came columns {', '.join(frame.columns)}; measure again.")
    return {tuple(line[name] for name in COLUMNS[:5]): line for line in frame.to_dict("records")}


def as_csv(
    chapters: Sequence[Chapter],
    preset: str,
    old: Mapping[tuple[str, ...], Any],
    new: Sequence[Mapping[str, Any]],
) -> bytes:
    """The file: ``new`` lines in place of ``old`` ones, in the order of the ledger; lines of other entries go."""
    lines = {**old, **{tuple(line[name] for name in COLUMNS[:5]): line for line in new}}
    wanted = [key_of(entry, preset) for chapter in chapters for entry in chapter.entries]
    frame = pd.DataFrame([lines[key] for key in wanted if key in lines], columns=list(COLUMNS))
    stream = io.StringIO()
    frame.to_csv(stream, index=False, lineterminator="\n")
    return stream.getvalue().encode()
