"""The words of a command: their meanings for ``--help``, and the options that they set."""

import shutil
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, Field, PositiveInt

from benchmark.config.compose import load_group
from benchmark.config.files import load_yaml
from benchmark.config.schema import Device, PathsConfig, RuntimeConfig, declared
from benchmark.errors import ConfigError, nearest, shorten, validate, wrong
from benchmark.experiments.selection import CommandOptions, FileName, RunQuery
from benchmark.launch.settings import LocalSettings, SlurmSettings
from benchmark.tracking import TrackingSettings

Given = TypeVar("Given", bound=CommandOptions)


class TrackingOptions(CommandOptions):
    """Whether runs, tables and figures are sent to W&B."""

    tracking: FileName | None = Field(
        None, title="off|wandb", description="where runs, tables and figures are sent; if left out: nowhere"
    )
    tracking_settings: Mapping[str, Any] = Field({}, title="VALUE", description="a setting of tracking")


class LauncherOptions(CommandOptions):
    """Where runs are carried out."""

    launcher: FileName = Field(
        "local", title="local|inline|slurm|FILE of conf/launcher", description="where runs are carried out"
    )
    launcher_settings: Mapping[str, Any] = Field(
        {}, title="VALUE", description="a setting of the launcher, on top of those in its file"
    )
    device: Device = declared(RuntimeConfig, "device")
    data: Path | None = declared(PathsConfig, "data")


class LaunchOptions(LauncherOptions, TrackingOptions):
    """How runs are carried out and tracked."""

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
        if isinstance(launcher_settings(self), SlurmSettings):
            require_slurm()
        tracking_settings(self)


class PresetOptions(LaunchOptions, RunQuery):
    """Which runs of a preset are carried out, and where what comes of them is written."""

    out: Path | None = Field(
        None, description="folder of the files that are written; if left out: one in the results folder"
    )


class OutOption(CommandOptions):
    """Where something is written."""

    out: Path | None = Field(None, description="folder of the files that are written")


class ValuesOption(CommandOptions):
    """Where values are read from in place of runs."""

    values: Path | None = Field(
        None, description="folder of written tables; their CSV takes the place of runs, and nothing is run"
    )


class Word(NamedTuple):
    """One word that a command takes. ``default`` is empty if leaving the word out has a meaning of its own."""

    field: str
    accepts: str
    default: str
    meaning: str


def accepts(part: Mapping[str, Any]) -> str:
    """The values that a part of a JSON schema allows: ``a|b``, or words such as ``integer ≥ 1 or null``."""
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(accepts(other) for other in part["anyOf"]))
    if "enum" in part:
        return "|".join(map(str, part["enum"]))
    kinds = {"integer": "integer", "number": "number", "string": "text", "boolean": "true|false"}
    kinds |= {"null": "null", "array": "list", "object": "mapping"}
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = " and ".join(f"{sign} {part[key]:.15g}" for key, sign in bounds.items() if key in part)
    kind = "FOLDER" if part.get("format") == "path" else kinds[part["type"]]
    return f"{kind} {limits}".strip()


def words_of(kind: type[BaseModel]) -> dict[str, Word]:
    """The words of an options class."""
    words = {}
    properties = kind.model_json_schema()["properties"]
    for name, field in kind.model_fields.items():
        if field.exclude:
            continue
        key, values = name, field.title or accepts(properties[name]).removesuffix(" or null")
        if field.annotation is bool:
            key, values = f"--{name}", ""
        elif typing.get_origin(field.annotation) is Mapping:
            key = f"{name.removesuffix('_settings').replace('_', '.')}.KEY"
        default = "" if field.default in (None, False, "", {}) else str(field.default)
        words[key] = Word(name, values, default, field.description or "")
    return words


def parse(words: Sequence[str], command: str, kind: type[Given]) -> Given:
    """The options that ``words`` of the command line set; ``--help`` prints them and ends the process.

    Args:
        words: ``key=value`` words and flags. ``key=`` without a value is ignored.
        command: Its name, for messages.
        kind: Options that all have defaults.

    Raises:
        ConfigError: A word that the command does not take, or a value that is not allowed.
    """
    options = words_of(kind)
    if {"--help", "-h"} & set(words):
        print(f"usage: python -m benchmark {command} [key=value ...]\n")
        for key, shown in options.items():
            default = f"; default: {shown.default}" if shown.default else ""
            print(f"  {_form(key, shown)}\n      {shown.meaning}{default}")
        raise SystemExit(0)
    values: dict[str, Any] = {}
    keys: set[str] = set()
    for word in words:
        key, equals, text = word.partition("=")
        group, _, rest = key.rpartition(".")
        option = options.get(key) or options.get(f"{group}.KEY")
        if option is None or bool(equals) == key.startswith("--"):
            forms = ", ".join(_form(*item) for item in options.items()) or "none"
            raise ConfigError(
                f"{command}: got {shorten(word)}; expected one of: {forms}.{nearest(key, options)}"
            )
        if key in keys:
            raise ConfigError(f"{command}: {key} is given twice.")
        keys.add(key)
        if not equals:
            values[option.field] = True
        elif text and key in options:
            values[option.field] = text
        elif text:
            values.setdefault(option.field, {})[rest] = _yaml_value(text, key)
    given = validate(kind, values)
    given.check()
    return given


def _form(key: str, option: Word) -> str:
    """An option as it is written: ``key=VALUE`` or ``--flag``."""
    return f"{key}={option.accepts}" if option.accepts else key


def _yaml_value(text: str, key: str) -> Any:
    """What YAML reads in the value of a word; `ConfigError` if it cannot."""
    try:
        return load_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(wrong(key, text, "a value in YAML")) from error


def require_slurm() -> None:
    """Raise `ConfigError` if there is no SLURM on this machine."""
    if shutil.which("sbatch") is None:
        expected = "local or inline: there is no `sbatch` here. On a cluster use a login node"
        raise ConfigError(wrong("launcher", "slurm", expected, where="with launcher=local"))


def group_settings(group: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of ``conf/<group>/<name>.yaml``, with those of the command line on top.

    A file of another name than its kind (``name:`` in it) holds what differs from the file of its kind.
    """
    if "name" in given:
        raise ConfigError(f"{group}.name: cannot be set. {group}=NAME chooses a file of conf/{group}.")
    settings = load_group(group, name)
    return {**load_group(group, settings["name"]), **settings, **given}


def launcher_settings(options: LauncherOptions) -> LocalSettings | SlurmSettings:
    """Settings of the launcher."""
    values = group_settings("launcher", options.launcher, options.launcher_settings)
    if values["name"] == "slurm":
        return SlurmSettings.of(values)
    where = f" Set it in conf/launcher/{options.launcher}.yaml or with launcher.KEY=VALUE."
    return validate(LocalSettings, values, "launcher.", after=where)


def tracking_settings(options: TrackingOptions, default: str = "off") -> TrackingSettings:
    """``conf/tracking/<name>.yaml`` with ``tracking.KEY=VALUE`` on top; `ConfigError` for what is not allowed."""
    given, name = options.tracking_settings, options.tracking or default
    if given and name == "off":
        raise ConfigError(
            f"tracking.{next(iter(given))}: tracking is off. Add tracking=wandb, or leave it out."
        )
    where = " Set it in conf/tracking/wandb.yaml or with tracking.KEY=VALUE."
    return validate(TrackingSettings, group_settings("tracking", name, given), "tracking.", after=where)
