"""What the command line says about tracking, and how runs, tables and figures are described to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from benchmark.cli.launching import launcher_kind
from benchmark.cli.options import LaunchOptions, TrackingOptions, group_settings
from benchmark.config.compose import load_group
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells
from benchmark.experiments.spec import TableSpec
from benchmark.tracking.settings import Kind, Publication, TrackedRun, Tracker, TrackingSettings, tracking

SUFFIXES: dict[Kind, tuple[str, ...]] = {"table": ("csv", "tex", "md"), "figure": ("png", "pdf", "csv", "md")}
"""Files of what is published."""


def settings_of(options: TrackingOptions, default: str = "off") -> TrackingSettings:
    """``conf/tracking/<name>.yaml`` with ``tracking.KEY=VALUE`` on top; `ConfigError` for what is not allowed."""
    given, name = options.tracking_settings, options.tracking or default
    settings = group_settings("tracking", name, given, known=load_group("tracking", "wandb"))
    if given and settings["name"] == "off":
        raise ConfigError(
            f"tracking.{next(iter(given))}: tracking is off. Add tracking=wandb, or leave it out."
        )
    return TrackingSettings.of(settings)


def tags_of(run: RunConfig) -> tuple[str, ...]:
    """Tags that follow from the configuration: preset, method, data set, selection."""
    original = run.dataset.options.get("stands_for")
    names = (run.preset, run.method.get("name"), original or run.dataset.name, run.selection.get("name"))
    return tuple(str(name) for name in names if name)


def tracked_runs(plans: Iterable[tuple[TableSpec, Cells]], prefix: str = "") -> list[TrackedRun]:
    """The runs of tables, each once: grouped by the first table that has it, tagged with all.

    ``prefix`` comes before the name of a group.
    """
    tables: dict[str, dict[str, None]] = {}
    runs: dict[str, RunConfig] = {}
    for spec, cells in plans:
        for cell in cells.values():
            for run in cell.runs:
                runs[run.key] = run
                tables.setdefault(run.key, {}).update({spec.name: None, spec.paper: None})
    return [
        TrackedRun(key, prefix + next(iter(tables[key])), tuple(dict.fromkeys((*tables[key], *tags_of(run)))))
        for key, run in runs.items()
    ]


def publication(kind: Kind, name: str, preset: str, folder: Path, tags: Iterable[str] = ()) -> Publication:
    """A table or figure that was written into ``folder``, with the files that it has there."""
    paths = [folder / f"{name}.{suffix}" for suffix in SUFFIXES[kind]]
    files = tuple(str(path.absolute()) for path in paths if path.exists())
    return Publication(kind, name, preset, files, tuple(tags))


def start(
    options: LaunchOptions, root: Path, plans: Iterable[tuple[TableSpec, Cells]], prefix: str = ""
) -> contextlib.AbstractContextManager[Tracker]:
    """Track the runs of a command that carries them out (`benchmark.tracking.settings.tracking`).

    On a cluster the jobs track them, where they run; what is published here is sent from here.
    """
    settings = settings_of(options)
    elsewhere = not settings.active or launcher_kind(options) == "slurm"
    return tracking(settings, root, [] if elsewhere else tracked_runs(plans, prefix))
