"""Options that several commands share, beside those that select tables: `benchmark.experiments.selection`."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, PositiveInt

from benchmark.config.compose import load_group
from benchmark.config.schema import Device, PathsConfig, RuntimeConfig, declared
from benchmark.errors import ConfigError, validate, wrong
from benchmark.experiments.selection import CommandOptions, FileName
from benchmark.launch.settings import LocalSettings, SlurmSettings
from benchmark.tracking import TrackingSettings

Given = TypeVar("Given", bound=CommandOptions)


class TrackingOptions(CommandOptions):
    """Whether runs, tables and figures are sent to W&B."""

    tracking: FileName | None = Field(
        None, title="off|wandb", description="where runs, tables and figures are sent; if left out: nowhere"
    )
    tracking_settings: Mapping[str, Any] = Field({}, title="VALUE", description="a setting of tracking")


class LaunchOptions(TrackingOptions):
    """Where and how runs are carried out and tracked."""

    launcher: FileName = Field(
        "local", title="local|inline|slurm|FILE of conf/launcher", description="where runs are carried out"
    )
    launcher_settings: Mapping[str, Any] = Field(
        {}, title="VALUE", description="a setting of the launcher, on top of those in its file"
    )
    device: Device = declared(RuntimeConfig, "device")
    data: Path | None = declared(PathsConfig, "data")
    workers: PositiveInt | None = declared(LocalSettings, "workers")
    threads: PositiveInt | None = Field(
        None, description="threads of a run; the same number gives the same bits; if left out: 1"
    )
    cuda_graphs: bool | None = Field(
        None, description="whether local steps on a GPU are recorded as CUDA graphs; if left out: false"
    )
    verbose: bool = Field(False, description="a line for every run that has ended")

    def check(self) -> None:
        """Refuse wrong settings."""
        is_slurm = isinstance(launcher_settings(self.launcher, self.launcher_settings), SlurmSettings)
        if is_slurm and shutil.which("sbatch") is None:
            expected = "local or inline: there is no `sbatch` here. On a cluster use a login node"
            raise ConfigError(wrong("launcher", "slurm", expected, where="with launcher=local"))
        tracking_settings(self)


def checked(kind: type[Given], values: Mapping[str, Any]) -> Given:
    """The values as options, without those that are None and so have their default.

    `ConfigError` for one that does not exist, is not allowed, or does not fit another.
    """
    options = validate(kind, {key: value for key, value in values.items() if value is not None})
    options.check()
    return options


def group_settings(group: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of ``conf/<group>/<name>.yaml``, with those that were ``given`` on top.

    A file of another name than its kind (``name:`` in it) holds what differs from the file of its kind.
    """
    if "name" in given:
        raise ConfigError(f"{group}.name: cannot be set. {group}=NAME chooses a file of conf/{group}.")
    settings = load_group(group, name)
    return {**load_group(group, settings["name"]), **settings, **given}


def launcher_settings(name: str, given: Mapping[str, Any]) -> LocalSettings | SlurmSettings:
    """``conf/launcher/<name>.yaml`` with ``launcher.KEY=VALUE`` on top; `ConfigError` for what is not allowed."""
    values = group_settings("launcher", name, given)
    kind: type[LocalSettings | SlurmSettings] = SlurmSettings if values["name"] == "slurm" else LocalSettings
    where = f" Set it in conf/launcher/{name}.yaml or with launcher.KEY=VALUE."
    return validate(kind, values, "launcher.", "launcher", after=where)


def tracking_settings(options: TrackingOptions, default: str = "off") -> TrackingSettings:
    """``conf/tracking/<name>.yaml`` with ``tracking.KEY=VALUE`` on top; `ConfigError` for what is not allowed."""
    given, name = options.tracking_settings, options.tracking or default
    if given and name == "off":
        raise ConfigError(
            f"tracking.{next(iter(given))}: tracking is off. Add tracking=wandb, or leave it out."
        )
    where = " Set it in conf/tracking/wandb.yaml or with tracking.KEY=VALUE."
    return validate(TrackingSettings, group_settings("tracking", name, given), "tracking.", after=where)
