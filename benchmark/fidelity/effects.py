"""The measured effect of a switch: a cell of a table as it is, and the same with the switch, over the same seeds."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells, TunedValues, plan
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tuning import TunedFolder
from benchmark.fidelity.ledger import Chapter, LedgerEntry, entries_of, table
from benchmark.paths import ROOT
from benchmark.reports.collect import collect
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState

EFFECTS_FOLDER = ROOT / "results" / "fidelity"
"""Where measured effects are committed, one CSV per preset."""

KEY = ("id", "table", "row", "column", "overrides")
"""Columns that say what a measured line is about."""

COLUMNS = (
    *KEY,
    *("metric", "default_mean", "default_sd", "default_n", "switched_mean", "switched_sd", "switched_n"),
    *("difference", "differences", "seeds", "diverged", "commit"),
)


class Pair(NamedTuple):
    """The two cells of an entry: ``spec`` is cut to the cell."""

    entry: LedgerEntry
    spec: TableSpec
    default: Cells
    switched: Cells


def key_of(entry: LedgerEntry, preset: str) -> tuple[str, ...] | None:
    """What a measured line must match to be about this entry; None if nothing is measured in the preset."""
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
    """The cells to run in ``preset``. A cell with tuned hyper-parameters keeps them on both sides."""
    planned = []
    for entry in entries_of(chapters):
        if entry.effect is None or preset not in entry.effect.cells:
            continue
        cell = entry.effect.cells[preset]
        whole, where = table(cell.table), (cell.row, cell.column)
        spec = whole.cut([cell.row], [cell.column])
        values = tuned.load(whole, preset)
        of_cell = values[where].values if where in values else {}
        switched = TunedValues({**of_cell, **entry.effect.overrides}, f"ledger entry {entry.id}")
        default = plan(spec, preset, seeds, extra, values)
        if default[where].state != "ok":
            name = f"{cell.table}, {cell.row}, {cell.column}"
            raise ConfigError(f"ledger entry {entry.id}, preset {preset}: {name}: {default[where].state}.")
        planned.append(Pair(entry, spec, default, plan(spec, preset, seeds, extra, {where: switched})))
    return planned


def measure(pair: Pair, preset: str, index: RunIndex) -> dict[str, Any]:
    """One line of the CSV from what is on disk, in the unit that a table prints."""
    line: dict[str, Any] = dict(zip(KEY, key_of(pair.entry, preset) or (), strict=True))
    line["metric"] = pair.spec.metric
    values, keys, diverged = [], [], []
    for name, cells in (("default", pair.default), ("switched", pair.switched)):
        (cell,) = collect(pair.spec, preset, cells, index).cells.values()
        mean, sd = (cell.summary.mean, cell.summary.std) if cell.summary else (None, None)
        line |= {f"{name}_mean": _number(mean), f"{name}_sd": _number(sd), f"{name}_n": str(len(cell.values))}
        if RunState.DIVERGED in cell.troubles:
            diverged.append(f"{name} {len(cell.troubles[RunState.DIVERGED])} of {len(cell.runs)}")
        values.append(cell.values)
        keys += [run.key for planned in cells.values() for run in planned.runs]
    default, switched = values
    seeds = sorted(default.keys() & switched.keys())
    differences = [switched[seed] - default[seed] for seed in seeds]
    return line | {
        "difference": _number(sum(differences) / len(differences) if differences else None),
        "differences": " ".join(f"{value:+.4f}" for value in differences),
        "seeds": " ".join(map(str, seeds)),
        "diverged": ", ".join(diverged),
        "commit": _commits(index, keys),
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _commits(index: RunIndex, keys: Sequence[str]) -> str:
    """Commits of the runs, with a + where files had been changed since."""
    made = [result.made for key in keys if (result := index.result(key))]
    commits = {one["commit"][:9] + "+" * one["dirty"] for one in made if one["commit"]}
    return " ".join(sorted(commits))


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
        raise ConfigError(f"measured effects {path}: expected columns {', '.join(COLUMNS)}. Measure again.")
    return {tuple(line[name] for name in KEY): line for line in frame.to_dict("records")}


def as_csv(
    chapters: Sequence[Chapter],
    preset: str,
    old: Mapping[tuple[str, ...], Mapping[str, Any]],
    new: Sequence[Mapping[str, Any]],
) -> bytes:
    """The file: ``old`` lines, replaced by ``new`` ones, in the order of the ledger; without lines of no entry."""
    lines = {**old, **{tuple(line[name] for name in KEY): line for line in new}}
    wanted = [key_of(entry, preset) for entry in entries_of(chapters)]
    frame = pd.DataFrame([lines[key] for key in wanted if key in lines], columns=list(COLUMNS))
    return frame.to_csv(index=False, lineterminator="\n").encode()
