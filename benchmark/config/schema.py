"""A run's configuration: typed, validated, with an identity (its hash)."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from benchmark.config.schedules import learning_rate
from benchmark.errors import ConfigError

if TYPE_CHECKING:
    from methods.core.method import Method

GROUPS = ("dataset", "partition", "model", "method", "selection")
IDENTITY = (*GROUPS, "train", "evaluation", "precision")
FORMAT = 2
"""Version of what a run writes; part of its identity."""

DEVICES = r"^(auto|cpu|cuda(:\d+)?)$"
"""Names of devices."""


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
                f"train: got epochs={self.epochs} and steps={self.steps}; expected one number and one null."
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

    device: str = Field(default="auto", pattern=DEVICES)
    threads: PositiveInt = 1
    checkpoint_every: PositiveInt = 10
    keep_checkpoint: bool = False
    stale: Literal["rerun", "keep"] = "rerun"


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
        if plain["model"].get("start"):  # its name carries its content, and its folder changes nothing
            plain["model"]["start"] = PurePath(plain["model"]["start"]).name
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
        """The method's rules.

        Raises:
            MethodError: What does not exist or does not fit together.
            ConfigError: The method needs data that this run does not hold out.
        """
        from methods.core.method import build  # imports torch, which reading results does not need

        method = build(self.method, self.selection)
        if method.prediction.needs_validation and not self.evaluation.validation:
            raise ConfigError(
                f"evaluation.validation: got 0, but prediction {method.prediction.key!r} of method {method.name!r} "
                "chooses on a validation split. Set it to the share of every client's training data to hold out, "
                "0.1 say."
            )
        return method
