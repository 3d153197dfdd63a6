"""What the command line says about tracking, and which runs are tracked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from benchmark.cli.options import LaunchOptions, TrackingOptions, group_settings, launcher_kind
from benchmark.config.compose import load_group
from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells
from benchmark.experiments.spec import TableSpec
from benchmark.tracking.process import tracking
from benchmark.tracking.settings import TrackedRun, TrackingSettings


def settings_of(options: TrackingOptions, default: str = "off") -> TrackingSettings:
    """``conf/tracking/<name>.yaml`` with ``tracking.KEY=VALUE`` on top; `ConfigError` for what is not allowed."""
    given, name = options.tracking_settings, options.tracking or default
    settings = group_settings("tracking", name, given, known=load_group("tracking", "wandb"))
    if given and settings["name"] == "off":
        raise ConfigError(
            f"tracking.{next(iter(given))}: tracking is off. Add tracking=wandb, or leave it out."
        )
    return TrackingSettings.of(settings)


def tracked_runs(plans: Iterable[tuple[TableSpec, Cells]], prefix: str = "") -> list[TrackedRun]:
    """The runs of tables, each once: grouped by the first table that has it, tagged with all.

    ``prefix`` is written before the name of the group.
    """
    tables: dict[str, dict[str, None]] = {}
    for spec, cells in plans:
        for cell in cells.values():
            for run in cell.runs:
                tables.setdefault(run.key, {}).update({spec.name: None, spec.paper: None})
    return [TrackedRun(key, prefix + next(iter(names)), tuple(names)) for key, names in tables.items()]


def start(
    options: LaunchOptions, root: Path, plans: Iterable[tuple[TableSpec, Cells]], prefix: str = ""
) -> contextlib.AbstractContextManager[None]:
    """Track the runs of a command. On a cluster the jobs track them, and only tables and figures are sent here."""
    settings = settings_of(options)
    elsewhere = not settings.active or launcher_kind(options) == "slurm"
    return tracking(settings, root, [] if elsewhere else tracked_runs(plans, prefix))
