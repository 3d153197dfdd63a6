"""A run's configuration: composed from conf/, typed and validated, with an identity.

Hydra composes the same files for the command line (``python -m benchmark run``); :func:`compose` does it here for the
thousands of runs of a table, in microseconds instead of tens of milliseconds each. A test holds the two together.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from benchmark.engine.schedules import learning_rate
from benchmark.errors import ConfigError, nearest
from benchmark.runs.nested import merge

if TYPE_CHECKING:
    from methods.method import Method

CONF = Path(__file__).resolve().parents[2] / "conf"
GROUPS = ("dataset", "partition", "model", "method", "selection")
IDENTITY = (*GROUPS, "train", "evaluation", "precision")
FORMAT = 2
"""Version of what a run writes; part of its identity."""


class _Node(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DatasetConfig(_Node):
    """Which data, and how many samples per class of them (null: all).

    ``rest``: what the training samples are that no client gets. ``test``: test data beside the data set's own.
    """

    name: str
    options: dict[str, Any] = {}
    train_per_class: PositiveInt | None = None
    test_per_class: PositiveInt | None = None
    rest: Literal["unused", "test"] = "unused"


class NamedConfig(_Node):
    """A name and the parameters that it understands; checked by the registry that knows the name."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """All but the name."""
        return dict(self.model_extra or {})


class PartitionConfig(NamedConfig):
    """How the data are split among clients; ``seed`` null means the run's."""

    seed: int | None = None


class TrainConfig(_Node):
    """Budget and client optimizer; the meaning of each key stands in conf/config.yaml."""

    rounds: PositiveInt
    epochs: PositiveInt | None = 1
    steps: PositiveInt | None = None
    batch_size: PositiveInt
    lr: PositiveFloat
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: NonNegativeFloat = 0.0
    schedule: dict[str, Any] = {"name": "constant"}
    clients_per_round: PositiveInt | None = None
    first_round_full: bool = False
    buffers: Literal["average", "local", "frozen"] = "average"
    clip: PositiveFloat | None = None
    drop_last: bool = False
    augment: Literal[
        "none", "crop_flip", "reflect_crop_flip",
        "cifar100", "retina", "covid_fl", "blood", "ham10000", "isic2019", "waterbirds",
    ] = "none"  # fmt: skip

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if (self.epochs is None) == (self.steps is None):
            raise ConfigError(
                f"train: came epochs={self.epochs} and steps={self.steps}; set exactly one of them, the other to null."
            )
        learning_rate(self.lr, self.rounds, self.schedule)
        return self


class EvaluationConfig(_Node):
    """When and on what a run is evaluated."""

    every: PositiveInt = 5
    batch_size: PositiveInt = 512
    validation: float = Field(default=0.0, ge=0, lt=1)
    measures: tuple[Literal["eigenvalue_spread"], ...] = ()


class PrecisionConfig(_Node):
    """Number formats and compilation; they change bits, so they are part of the identity."""

    amp: bool = False
    channels_last: bool = True
    compile: bool = False


class RuntimeConfig(_Node):
    """Where and how a run is carried out; no part of its identity."""

    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    threads: PositiveInt = 1
    checkpoint_every: PositiveInt = 10
    keep_checkpoint: bool = False


class PathsConfig(_Node):
    """Folders; no part of the identity."""

    data: str | None = None
    cache: str | None = None
    weights: str | None = None
    results: str = "results"


class RunConfig(_Node):
    """All that decides a run."""

    dataset: DatasetConfig
    partition: PartitionConfig
    model: NamedConfig
    method: dict[str, Any]
    selection: dict[str, Any]
    train: TrainConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    precision: PrecisionConfig = PrecisionConfig()
    seed: int = Field(default=0, ge=0)
    preset: str = ""
    runtime: RuntimeConfig = RuntimeConfig()
    paths: PathsConfig = PathsConfig()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the hash covers: everything but seed, paths, runtime and labels."""
        plain = self.model_dump(mode="json", include=set(IDENTITY))
        plain["method"] = {
            key: value
            for key, value in plain["method"].items()
            if key not in ("name", "label", "selection", "tables")
        }
        if plain["dataset"]["rest"] == "unused":  # runs from before there was this key keep their hash
            del plain["dataset"]["rest"]
        return {"format": FORMAT, **plain}

    @cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits of the identity."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:12]

    @cached_property
    def label(self) -> str:
        """Readable part of the folder's name."""
        original = self.dataset.options.get("stands_for")
        data = f"{self.dataset.name}_{original}" if original else self.dataset.name
        parts = (data, self.partition.name, self.method.get("name", "method"), self.selection["name"])
        return "-".join(
            "".join(c if c.isalnum() or c in "+_" else "_" for c in str(part).lower()) for part in parts
        )

    @property
    def name(self) -> str:
        """Folder of this configuration, without the seed."""
        return f"{self.label}-{self.hash}"

    @property
    def key(self) -> str:
        """Folder of this run below ``results/runs``."""
        return f"{self.name}/seed{self.seed}"

    def build_method(self) -> Method:
        """The method's rules; MethodError for what does not exist or does not fit together."""
        from methods.method import build  # imports torch, which reading results does not need

        method = build(self.method, self.selection)
        self.check_method(method)
        return method

    def check_method(self, method: Method) -> None:
        """Raise :class:`ConfigError` if ``method`` needs data that this run does not hold out."""
        if method.prediction.needs_validation and not self.evaluation.validation:
            raise ConfigError(
                f"evaluation.validation: came 0, but prediction {method.prediction.key!r} of method {method.name!r} "
                "chooses on a validation split. Set it to the share of every client's training data to hold out, "
                "0.1 say."
            )


# Composition ---------------------------------------------------------------------------------------------------


def group_names(group: str) -> list[str]:
    """Names of the files of a configuration group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@cache
def _read(path: Path) -> dict[str, Any]:
    with path.open() as stream:
        return yaml.safe_load(stream) or {}


def load_group(group: str, name: str) -> dict[str, Any]:
    """A copy of ``conf/<group>/<name>.yaml``; ConfigError, with the nearest name, if there is none."""
    path = CONF / group / f"{name}.yaml"
    if not path.is_file():
        known = group_names(group)
        raise ConfigError(
            f"{group}: came {name!r}.{nearest(name, known)} Allowed: {', '.join(known)} (conf/{group}/)."
        )
    return copy.deepcopy(_read(path))


def _apply(config: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge overrides in which a group may be given by the name of its file, alone or under ``name``."""
    for key, value in over.items():
        if key in GROUPS and isinstance(value, str):
            config = {**config, key: load_group(key, value)}
        elif key in GROUPS and isinstance(value, Mapping) and "name" in value:
            rest = {k: v for k, v in value.items() if k != "name"}
            config = {**config, key: merge(load_group(key, str(value["name"])), rest)}
        else:
            config = merge(config, {key: value})
    return config


def _preset(name: str) -> tuple[dict[str, str], dict[str, Any]]:
    """(groups that a preset chooses, its values)."""
    content = load_group("preset", name)
    groups = {}
    for item in content.pop("defaults", []):
        for key, choice in item.items():
            groups[key.removeprefix("override /")] = choice
    return groups, content


def compose(preset: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
    """The plain configuration of conf/config.yaml with a preset and layers of overrides on top, in that order."""
    config = copy.deepcopy(_read(CONF / "config.yaml"))
    config.pop("hydra", None)
    defaults: dict[str, str] = {}
    for item in config.pop("defaults"):
        if isinstance(item, dict):
            defaults |= item
    groups, values = _preset(preset)
    for group in GROUPS:
        config[group] = load_group(group, groups.get(group, defaults[group]))
    config = merge(config, values)
    for layer in layers:
        config = _apply(config, layer)
    return config


def resolve(plain: Mapping[str, Any]) -> RunConfig:
    """Validate a composed configuration.

    The selection ``auto`` becomes the method's own or uniform. Raises :class:`ConfigError` with one message that names
    every wrong key, what came and what is allowed.
    """
    values = {key: value for key, value in plain.items() if key not in ("launcher", "tracking")}
    method, selection = values.get("method"), values.get("selection")
    if not isinstance(method, Mapping) or not isinstance(selection, Mapping):
        raise ConfigError(
            f"method, selection: came {method!r}, {selection!r}; choose a file of conf/method and conf/selection."
        )
    if selection.get("name") == "auto":
        values["selection"] = dict(method.get("selection") or {"name": "uniform"})
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error


def _allowed_at(path: tuple[Any, ...]) -> list[str]:
    node: Any = RunConfig
    for part in path:
        field = getattr(node, "model_fields", {}).get(part)
        node = field.annotation if field else None
    return list(getattr(node, "model_fields", {}))


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            allowed = _allowed_at(tuple(item["loc"][:-1]))
            lines.append(
                f"{key}: unknown key.{nearest(str(item['loc'][-1]), allowed)} Allowed: {', '.join(allowed)}"
            )
        elif item["type"] == "value_error":
            lines.append(str(item["msg"]).removeprefix("Value error, ").rstrip("."))
        else:
            lines.append(f"{key}: came {item['input']!r}; {item['msg']}")
    return "; ".join(lines) + ". Set it on the command line or in conf/."
