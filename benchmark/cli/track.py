"""``python -m benchmark track``: send to W&B what was not sent yet of a results folder."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmark.cli.launching import tracked_runs
from benchmark.cli.options import TrackingOptions, parse, tracking_settings
from benchmark.config.compose import group_names
from benchmark.errors import ConfigError
from benchmark.experiments.plan import Cells
from benchmark.experiments.selection import ResultsOptions, TableQuery, plan_cells, whole_tables
from benchmark.experiments.spec import TableSpec
from benchmark.runs.folder import ResultsFolder
from benchmark.tracking import Sender, TrackedRun


class TrackOptions(TrackingOptions, ResultsOptions):
    """What is sent, and where."""


def main(words: Sequence[str]) -> int:
    """Send all runs, tables and figures of the folder; exit code 0, or 1 if W&B failed."""
    options = parse(words, "track", TrackOptions)
    settings = tracking_settings(options, "wandb")
    if not settings.active:
        raise ConfigError(
            "track: tracking is off, or tracking.mode or the variable WANDB_MODE is disabled; expected "
            "tracking=wandb and tracking.mode=online or offline."
        )
    results = ResultsFolder(options.results).existing()
    root = results.root
    tracked = {key.partition("/")[0]: run for key, run in tracked_runs(_plans(root)).items()}
    runs = [
        replace(tracked.get(key.partition("/")[0], TrackedRun(key)), key=key) for key in results.run_keys()
    ]
    sender = Sender(settings, root)
    print(f"{sender.send_runs(runs)} runs, {sender.send_tables()} tables and figures sent")
    return int(sender.failed)


def _plans(root: Path) -> Iterator[tuple[TableSpec, Cells]]:
    """All tables in all their presets, for the names of the tables that have a run."""
    for spec in whole_tables(TableQuery()):
        for preset in group_names("preset"):
            try:
                spec.check_preset(preset)
                yield spec, plan_cells(spec, spec, TableQuery(preset=preset, results=root))
            except ConfigError:
                continue  # The table does not have this preset.
