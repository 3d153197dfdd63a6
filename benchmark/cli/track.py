"""``python -m benchmark track``: send to W&B what is not sent yet of a results folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmark.cli.options import TrackingOptions, convert, parse, read
from benchmark.cli.planning import table_query
from benchmark.cli.tracking import SUFFIXES, publication, settings_of, tracked_runs
from benchmark.config.compose import group_names
from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells
from benchmark.experiments.selection import plan_cells, whole_tables
from benchmark.experiments.spec import TableSpec
from benchmark.runs.store import Results
from benchmark.tracking.publishing import is_published
from benchmark.tracking.settings import Note, Publication, TrackedRun, TrackingSettings, say, tracking, unsent

TRACK_OPTIONS = {
    "paper": "fedld|fedsdc|feddiverse|fedmr",
    "table": "NUMBER",
    "name": "FILE of conf/table",
    "preset": "quick|small|paper",
    "seeds": "NUMBER",
    "results": "FOLDER",
    "tuned": "FOLDER|off",
}
CHOICES = ("paper", "table", "name", "seeds")
"""Words that choose tables: without one of them all that lies in the folder is sent."""


def main(words: Sequence[str]) -> int:
    """Send what is left; exit code 0, or 1 if not everything could be sent."""
    values = read(words, {**TRACK_OPTIONS, "tracking": "off|wandb", "tracking.KEY": "VALUE"}, "track")
    tracked = [word for word in words if word.startswith("tracking")]
    settings = settings_of(parse(tracked, "track", TrackingOptions), "wandb")
    if not settings.active:
        raise ConfigError(
            "track: nothing can be sent: tracking is off, or tracking.mode or the variable WANDB_MODE says disabled. "
            "Set tracking=wandb and tracking.mode=online or offline."
        )
    root = Path(values.get("results", "results"))
    results = Results(root).existing()
    plans = _plans(values)
    runs = _runs(values, results, plans)
    items = _publications(values, root, plans)
    begun = unsent(settings, root, runs)
    fresh = [item for item in items if not is_published(settings, root, item)]
    if begun or fresh:
        with tracking(settings, root, begun, patience=None) as tracker:
            for item in fresh:
                tracker.publish(item)
    return _report(settings, root, begun, fresh)


def _report(
    settings: TrackingSettings, root: Path, runs: Sequence[TrackedRun], items: Sequence[Publication]
) -> int:
    left = unsent(settings, root, runs)
    kept = [item for item in items if not is_published(settings, root, item)]
    print(f"{len(runs) - len(left)} runs, {len(items) - len(kept)} tables and figures sent")
    if kept:
        say(f"not sent: {', '.join(f'{item.kind} {item.name} ({item.preset})' for item in kept)}")
    return 1 if left or kept else 0


def _plans(values: Mapping[str, str]) -> list[tuple[str, TableSpec, Cells]]:
    """(preset, table, its runs) of what is chosen; of all presets, unless one is."""
    presets = [convert("preset", values["preset"], str)] if "preset" in values else group_names("preset")
    found, first = [], None
    query = table_query(values)
    for spec in whole_tables(query):
        for preset in presets:
            try:
                spec.check_preset(preset)
                found.append((preset, spec, plan_cells(spec, spec, replace(query, preset=preset))))
            except ConfigError as error:
                first = first or error
    if not found and first is not None:
        raise first
    return found


def _runs(
    values: Mapping[str, str], results: Results, plans: Sequence[tuple[str, TableSpec, Cells]]
) -> list[TrackedRun]:
    """Planned runs that there are; where no table is chosen, every other run of the folder too."""
    runs = {run.key: run for run in tracked_runs((spec, cells) for _, spec, cells in plans)}
    there = {
        f"{path.parent.parent.name}/{path.parent.name}"
        for path in sorted((results.root / "runs").glob("*/seed*/status.json"))
    }
    found = {key: run for key, run in runs.items() if key in there}
    if "preset" not in values and not any(word in values for word in CHOICES):
        for key in sorted(there - runs.keys()):
            note = Note.read(results.run(key).path)
            found[key] = TrackedRun(key, note.group, note.tags) if note is not None else TrackedRun(key)
    return list(found.values())


def _publications(
    values: Mapping[str, str], root: Path, plans: Sequence[tuple[str, TableSpec, Cells]]
) -> list[Publication]:
    """Tables that were written of what is chosen; where no table is chosen, every table and figure of the folder."""
    if any(word in values for word in CHOICES):
        wanted = [publication("table", s.name, p, root / "tables" / p, [s.paper]) for p, s, _ in plans]
        return [item for item in wanted if item.files]
    found = []
    for kind in SUFFIXES:
        folders = sorted((root / f"{kind}s").glob(values.get("preset", "*")))
        for folder in folders:
            for path in sorted(folder.glob("*.csv")):
                found.append(publication(kind, path.stem, folder.name, folder))
    return found
