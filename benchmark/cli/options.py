"""Options of the commands: the fields of a dataclass are the ``key=value`` words that a command takes.

``Annotated[str, "PATTERN*,..."]`` says what help and messages call the values; with None the field is no word. A field
of type bool is a flag: ``watch: bool = False`` is set by ``--watch``. A field ``GROUP_settings`` that is a mapping
takes the words ``GROUP.KEY=VALUE``, with VALUE in YAML, and ``dataset_options`` takes ``dataset.options.KEY=VALUE``.
What a word means stands under ``Attributes:`` in the docstring of the class.
"""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import yaml

from benchmark.config.compose import load_group
from benchmark.config.files import load_yaml
from benchmark.config.schema import DEVICES
from benchmark.errors import ConfigError, nearest, validate, wrong
from benchmark.launch.slurm.queue import SlurmQueue
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.tracking import TrackingSettings

Options = TypeVar("Options")

ACCEPTS = {
    "paper": "fedld|fedsdc|feddiverse|fedmr",
    "name": "FILE of conf/table",
    "preset": "quick|small|paper",
    "rows": "KEY,PATTERN*,...",
    "columns": "KEY,PATTERN*,...",
    "tuned": "FOLDER|off",
    "device": "auto|cpu|cuda",
    "dataset_options": "VALUE of the data sets of all cells",
}
"""What options of these names accept, for messages and help. For the others it follows from the type."""

TYPES = {int: "NUMBER", float: "NUMBER", Path: "FOLDER", str: "TEXT", bool: ""}


@dataclass(frozen=True, kw_only=True)
class TrackingOptions:
    """Whether runs, tables and figures are sent to W&B.

    Attributes:
        tracking: Where runs, tables and figures are sent. If left out: nowhere; ``track`` sends them to W&B.
        tracking_settings: A setting of tracking.
    """

    tracking: Annotated[str | None, "off|wandb"] = None
    tracking_settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LaunchOptions(TrackingOptions):
    """How runs are carried out and tracked.

    Attributes:
        launcher: Where runs are carried out.
        launcher_settings: A setting of the launcher, on top of those in its file.
        workers: Processes of the local launcher. If left out: one per GPU, without a GPU one per core.
        threads: Threads of a run; the same number gives the same bits. If left out: 1.
        device: Device of the runs.
        data: Folder of the raw data. If left out: what the variable FEDTABLES_DATA names, or ``data``.
        verbose: Print a line for every run that has ended.
    """

    launcher: Annotated[str, "local|inline|slurm|FILE of conf/launcher"] = "local"
    launcher_settings: Mapping[str, Any] = field(default_factory=dict)
    workers: int | None = None
    threads: int | None = None
    device: str = "auto"
    data: Path | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        """Refuse settings of launcher and tracking now, before anything slow is imported."""
        launcher = launcher_settings(self)
        if launcher["name"] == "slurm":
            SlurmSettings.of(launcher)
            SlurmQueue.require()
        tracking_settings(self)


@dataclass(frozen=True, kw_only=True)
class PresetOptions(LaunchOptions):
    """Which runs of a preset are carried out, and where what comes of them is written.

    Attributes:
        preset: Data, model and budget.
        seeds: Number of seeds. If left out: as many as the table or figure says.
        results: The results folder.
        tuned: Folder of tuned values, or ``off``. If left out: those of the results folder, then those of the project.
        stale: Whether finished runs whose method's code has changed since are carried out again, or used and marked.
        out: Folder of the files that are written. If left out: one in the results folder.
    """

    preset: str = "quick"
    seeds: int | None = None
    results: Path = Path("results")
    tuned: str | None = None
    stale: Literal["rerun", "keep"] = "rerun"
    out: Path | None = None


class Word(NamedTuple):
    """One word that a command takes. ``default`` is empty if leaving the word out has a meaning of its own."""

    field: str
    type: Any
    accepts: str
    default: str
    meaning: str


def parse(words: Sequence[str], command: str, kind: type[Options]) -> Options:
    """The options that ``words`` of the command line set; ``--help`` prints them and ends the process.

    Args:
        words: ``key=value`` words and flags. ``key=`` without a value is ignored.
        command: Its name, for messages.
        kind: A dataclass whose fields all have defaults.

    Raises:
        ConfigError: A word that the command does not take, or a value of another type.
    """
    known = words_of(kind)
    if {"--help", "-h"} & set(words):
        print(f"usage: python -m benchmark {command} [key=value ...]\n")
        for key, word in known.items():
            default = f" Default: {word.default}." if word.default else ""
            print(f"  {key}={word.accepts}" if word.accepts else f"  {key}")
            print(f"      {word.meaning.replace('``', '')}{default}")
        raise SystemExit(0)
    flags = [word for word in words if word.startswith("--")]
    for flag in flags:
        if flag not in known:
            allowed = [word for word in known if word.startswith("--")]
            raise ConfigError(wrong(command, flag, f"a flag: {', '.join(allowed) or 'none'}", known=allowed))
    values: dict[str, Any] = {known[flag].field: True for flag in flags}
    accepted = {key: word.accepts for key, word in known.items() if not key.startswith("--")}
    for key, text in read([word for word in words if word not in flags], accepted, command).items():
        group, _, rest = key.rpartition(".")
        if key in known:
            values[known[key].field] = convert(key, text, known[key].type)
        else:
            values.setdefault(known[f"{group}.KEY"].field, {})[rest] = yaml_value(text, key)
    return kind(**values)


def read(words: Sequence[str], known: Mapping[str, str], command: str) -> dict[str, str]:
    """``{key: text}`` of ``key=text`` words.

    Args:
        words: Words of the command line.
        known: What each key accepts, for the message. ``GROUP.KEY`` stands for every key of a group.
        command: Its name, for messages.

    Raises:
        ConfigError: A word of another form, an unknown key, or a key that is given twice.
    """
    values: dict[str, str] = {}
    allowed = ", ".join(f"{key}={accepts}" for key, accepts in known.items()) or "none"
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(wrong(command, word, f"key=value, with a key of: {allowed}"))
        if key not in known and f"{key.rpartition('.')[0]}.KEY" not in known:
            raise ConfigError(
                f"{command}: unknown key {key!r}; expected one of: {allowed}.{nearest(key, known)}"
            )
        if key in values:
            raise ConfigError(f"{command}: {key} is given twice.")
        if text:
            values[key] = text
    return values


def convert(key: str, text: str, hint: Any) -> Any:
    """The value of an option from its text. Whole numbers are at least 1. `ConfigError` if it does not fit."""
    if typing.get_origin(hint) is Literal:
        choices = [str(choice) for choice in typing.get_args(hint)]
        if text not in choices:
            raise ConfigError(wrong(key, text, f"one of: {', '.join(choices)}", known=choices))
        return text
    if key in ("preset", "launcher", "tracking"):
        load_group(key, text)  # refuses an unknown name
    if key == "device" and not re.fullmatch(DEVICES, text):
        raise ConfigError(wrong(key, text, "auto, cpu, cuda or cuda:NUMBER", known=("auto", "cpu", "cuda")))
    try:
        value = hint(text)
    except ValueError:
        value = None
    if value is None or (hint is int and value < 1):
        raise ConfigError(wrong(key, text, "a whole number of at least 1" if hint is int else "a number"))
    return value


def group_settings(group: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of ``conf/<group>/<name>.yaml``, with those of the command line on top.

    A file of another name than its kind (``name:`` in it) holds what differs from the file of its kind.

    Args:
        group: Folder of conf/.
        name: Name of the file.
        given: ``{KEY: VALUE}`` of the words ``GROUP.KEY=VALUE``.

    Raises:
        ConfigError: No such file or setting (with the nearest).
    """
    chosen = load_group(group, name)
    settings = load_group(group, chosen["name"]) | chosen
    allowed = [key for key in settings if key != "name"]
    for key in given:
        if key not in allowed:
            raise ConfigError(
                f"{group}.{key}: no such setting; expected one of: {', '.join(allowed)} "
                f"(conf/{group}/{settings['name']}.yaml).{nearest(key, allowed)}"
            )
    return {**settings, **given}


def launcher_settings(options: LaunchOptions) -> dict[str, Any]:
    """Settings of the launcher. ``name`` is its kind: ``inline``, ``local`` or ``slurm``."""
    return group_settings("launcher", options.launcher, options.launcher_settings)


def tracking_settings(options: TrackingOptions, default: str = "off") -> TrackingSettings:
    """``conf/tracking/<name>.yaml`` with ``tracking.KEY=VALUE`` on top; `ConfigError` for what is not allowed."""
    given, name = options.tracking_settings, options.tracking or default
    if given and name == "off":
        raise ConfigError(
            f"tracking.{next(iter(given))}: tracking is off. Add tracking=wandb, or leave it out."
        )
    where = " Set it in conf/tracking/wandb.yaml or with tracking.KEY=VALUE."
    return validate(TrackingSettings, group_settings("tracking", name, given), "tracking.", after=where)


def yaml_value(text: str, key: str) -> Any:
    """What YAML reads in the value of a word; `ConfigError` if it cannot."""
    try:
        return load_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(wrong(key, text, "a value in YAML")) from error


def words_of(kind: type) -> dict[str, Word]:
    """The words of an options class."""
    found = {}
    defaults = {each.name: each.default for each in dataclasses.fields(kind)}
    meanings = _meanings(kind)
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        accepts = ACCEPTS.get(name)
        if typing.get_origin(hint) is Annotated:
            hint, accepts = typing.get_args(hint)
            if accepts is None:
                continue
        if typing.get_origin(hint) is types.UnionType:
            hint = next(other for other in typing.get_args(hint) if other is not type(None))
        key = f"--{name}" if hint is bool else name
        if typing.get_origin(hint) is Mapping:
            group = name.removesuffix("_settings").replace("_", ".")
            key, accepts = f"{group}.KEY", accepts or f"VALUE of conf/{group}"
        elif typing.get_origin(hint) is Literal:
            accepts = "|".join(typing.get_args(hint))
        default = defaults[name]
        shown = "" if default in (None, False, "", dataclasses.MISSING) else str(default)
        found[key] = Word(name, hint, accepts or TYPES[hint], shown, meanings.get(name, ""))
    return found


def _meanings(kind: type) -> dict[str, str]:
    """What the fields of an options class mean, by the docstrings of its bases and its own."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")[2]
        entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
        found |= {name: " ".join(text.split()) for name, text in entries}
    return found
