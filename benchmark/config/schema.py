"""A run's configuration: typed, validated, with an identity (its hash)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic.fields import FieldInfo

from benchmark.config.schedules import learning_rate
from benchmark.errors import ConfigError, wrong
from benchmark.metrics import RECORDED

GROUPS = ("dataset", "partition", "model", "method", "selection")
IDENTITY = (*GROUPS, "train", "evaluation", "precision")
HASHED_UNLESS_DEFAULT: tuple[tuple[str, str], ...] = (("train", "optimizer"), ("evaluation", "metrics"))
"""Keys (group, key) left out of the hash while they have their default. Add every new key: no old hash moves."""


def _is_device(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise ValueError(f"got {name!r}; expected auto, cpu, cuda or cuda:NUMBER")
    return name


def _own_metrics(names: tuple[str, ...]) -> tuple[str, ...]:
    """In one order and without those that are always recorded: asking for these makes no other run."""
    return tuple(sorted(set(names) - set(RECORDED)))


Device = Annotated[str, AfterValidator(_is_device)]


class _Node(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DatasetConfig(_Node):
    """Which data, and how many of them."""

    name: str = Field(description="name of the data set")
    options: dict[str, Any] = Field({}, description="options of the data set")
    train_per_class: PositiveInt | None = Field(None, description="training samples of each class; null: all")
    test_per_class: PositiveInt | None = Field(None, description="test samples of each class; null: all")
    rest: Literal["unused", "test"] = Field(
        "unused",
        description="use of the training samples that no client has: unused, or test data beside the test set",
    )


class NamedConfig(_Node):
    """A name and the parameters that it understands; checked by the registry that knows the name."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """All but the name."""
        return dict(self.model_extra or {})


class PartitionConfig(NamedConfig):
    """How the data are split among clients."""

    seed: int | None = Field(
        None, description="seed of the split; null: the run's seed; a number: the same split for all seeds"
    )


class LossConfig(_Node):
    """The classification loss of local training: the mean of weights[y] (1 - p_y)^gamma (-log p_y)."""

    gamma: NonNegativeFloat = Field(
        0.0, description="exponent of the focal loss (Lin et al. 2017); 0: cross-entropy"
    )
    weights: tuple[PositiveFloat, ...] | None = Field(
        None, description="weight of each class; the mean is not divided by them; null: 1"
    )


class TrainConfig(_Node):
    """Budget and optimizer of local training."""

    rounds: PositiveInt = Field(10, description="communication rounds")
    epochs: PositiveInt | None = Field(1, description="local epochs E; null if steps is set")
    steps: PositiveInt | None = Field(
        None, description="local steps in a round, instead of epochs; null if epochs is set"
    )
    batch_size: PositiveInt = Field(32, description="samples in a local step")
    optimizer: Literal["sgd", "adam", "adamw"] = Field(
        "sgd",
        description="the clients' optimizer; its state starts at zero in every round. adam and adamw have the betas "
        "0.9 and 0.999 and eps 1e-8",
    )
    lr: PositiveFloat = Field(0.05, description="learning rate of the clients")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd")
    weight_decay: NonNegativeFloat = Field(
        0.0, description="weight decay of the clients: in the gradient, with adamw beside it"
    )
    schedule: dict[str, Any] = Field(
        {"name": "constant"},
        description="name: constant, step {every, gamma}, exponential {gamma} or cosine {final}",
    )
    clients_per_round: PositiveInt | None = Field(
        None, description="clients that take part in a round; null: all"
    )
    first_round_full: bool = Field(
        False, description="whether all clients take part in round 0, with every selection"
    )
    buffers: Literal["average", "local", "frozen"] = Field(
        "average",
        description="the clients' BatchNorm statistics: averaged by the server, kept by each client, or not changed",
    )
    clip: PositiveFloat | None = Field(None, description="largest norm of a gradient; null: no limit")
    loss: LossConfig = LossConfig()
    drop_last: bool = Field(
        False, description="whether the last batch of an epoch is left out if it is short"
    )
    augment: Literal[
        "none", "crop_flip", "reflect_crop_flip",
        "cifar100", "retina", "covid_fl", "blood", "ham10000", "isic2019", "waterbirds",
    ] = Field(
        "none",
        description="random changes of training images. A name of a data set: what the authors of its paper did. If "
        "images are cropped or resized, test images get the same size",
    )  # fmt: skip

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

    every: PositiveInt = Field(
        5, description="rounds between two evaluations; the last round is always evaluated"
    )
    batch_size: PositiveInt = Field(
        512, description="most images in a batch; a batch of large images is limited to 64 MiB"
    )
    validation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of each client's training data that is held out to choose hyper-parameters and rounds",
    )
    measures: tuple[Literal["eigenvalue_spread", "clients"], ...] = Field(
        (),
        description="further measures to record at each evaluation: eigenvalue_spread (FedMR, Table 7), clients "
        "(accuracies of clients, each on its own validation samples)",
    )
    metrics: Annotated[tuple[str, ...], AfterValidator(_own_metrics)] = Field(
        (),
        description="metrics of your repository to record at each evaluation; those of FedTables are always recorded",
    )
    unseen: float = Field(
        0.0, ge=0, lt=1, description="share of clients that never take part; their accuracies are recorded"
    )

    @model_validator(mode="after")
    def _consistent(self) -> EvaluationConfig:
        if "clients" in self.measures and not self.validation:
            expected = (
                "a number > 0 and < 1, as evaluation.measures has clients: 0.1 holds out 10 % of each client"
            )
            raise ConfigError(wrong("evaluation.validation", self.validation, expected))
        return self


class PrecisionConfig(_Node):
    """Number formats; they change bits, so they are part of the identity."""

    amp: bool = Field(False, description="bf16 autocast")
    tf32: bool = Field(
        False, description="TF32 in convolutions and products on a GPU: faster, with 10 bits after the point"
    )
    channels_last: bool = Field(True, description="memory format of images; the faster one on CPU")


class RuntimeConfig(_Node):
    """Where and how a run is carried out; no part of its identity."""

    device: Device = Field("auto", description="auto (cuda if there is one), cpu, cuda or cuda:NUMBER")
    threads: PositiveInt = Field(1, description="torch threads of a run; the same number gives the same bits")
    checkpoint_every: PositiveInt = Field(10, description="rounds between two checkpoints")
    keep_checkpoint: bool = Field(False, description="whether the last state of a finished run is kept")
    client_state: Literal["host", "device"] | None = Field(
        None,
        description="where a run on a GPU keeps the clients' states between rounds: device (the GPU's memory) or host "
        "(pinned memory of the host); null: device if all of them need at most a quarter of the GPU's memory",
    )
    cuda_graphs: bool = Field(
        False,
        description="whether local steps on a GPU are recorded as CUDA graphs: faster, with the same bits. A step must "
        "not wait for the GPU, and must not draw or count on the host",
    )
    stale: Literal["rerun", "keep"] = Field(
        "rerun",
        description="what happens to a finished run whose method's code has changed since: carried out again, or used "
        "and marked",
    )


class PathsConfig(_Node):
    """Folders; no part of the identity."""

    data: str | None = Field(None, description="raw files; null: FEDTABLES_DATA, else data/")
    cache: str | None = Field(
        None, description="prepared arrays; null: FEDTABLES_CACHE, else .cache/datasets"
    )
    weights: str | None = Field(
        None, description="trained weights of models; null: FEDTABLES_WEIGHTS, else torch.hub's folder"
    )
    results: str = Field("results", description="runs, tables and figures")


class RunConfig(_Node):
    """All that decides a run. Every setting is declared here, once: type, default, unit and meaning."""

    dataset: DatasetConfig
    partition: PartitionConfig
    model: NamedConfig
    method: dict[str, Any]
    selection: dict[str, Any]
    train: TrainConfig = TrainConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    precision: PrecisionConfig = PrecisionConfig()
    seed: int = Field(0, ge=0, description="seed of all random numbers")
    preset: str = Field("", description="data, model and budget: a file of conf/preset")
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
        for group, key in HASHED_UNLESS_DEFAULT:
            config = getattr(self, group)
            if getattr(config, key) == type(config).model_fields[key].default:
                del plain[group][key]
        if plain["model"].get("start"):  # its name carries its content, and its folder changes nothing
            plain["model"]["start"] = PurePath(plain["model"]["start"]).name
        return plain

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


def defaults(model: type[BaseModel] = RunConfig) -> dict[str, Any]:
    """The defaults of a schema, nested."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            values[name] = defaults(field.annotation)
        elif not field.is_required():
            values[name] = field.default
    return values


def declared_settings(
    model: type[BaseModel] = RunConfig, prefix: str = ""
) -> Iterator[tuple[str, FieldInfo, dict[str, Any]]]:
    """Every setting that a schema declares with a meaning: dotted key, field, its part of the JSON schema."""
    properties = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from declared_settings(field.annotation, f"{prefix}{name}.")
        elif field.description:
            yield prefix + name, field, properties[name]


def declared(model: type[BaseModel], key: str) -> Any:
    """The field of a setting, for an option of a command that sets it."""
    return model.model_fields[key]
