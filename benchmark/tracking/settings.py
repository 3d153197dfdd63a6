"""Settings of tracking, and the runs that are tracked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmark.errors import ConfigError, format_validation_error

MODES = ("online", "offline", "disabled")
"""From the loudest to the quietest."""


class TrackingSettings(BaseModel):
    """``conf/tracking/*.yaml``, which describes each key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["off", "wandb"] = "off"
    mode: Literal["online", "offline", "disabled"] = "online"
    project: str = Field(default="fedtables", pattern=r"^[^/\\#?%:]+$")
    entity: str | None = None
    tags: tuple[str, ...] = ()
    init_timeout: float = Field(default=20.0, gt=0)
    poll: float = Field(default=10.0, gt=0)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TrackingSettings:
        """Validate plain values. Raises `ConfigError`, which names the key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            message = format_validation_error(error, cls, "tracking.")
            raise ConfigError(
                f"{message} Set it in conf/tracking/wandb.yaml or with tracking.KEY=VALUE."
            ) from error

    @property
    def quietest(self) -> str:
        """The mode, or that of the variable ``WANDB_MODE`` if it is quieter."""
        asked = os.environ.get("WANDB_MODE", "")
        return max(self.mode, asked, key=lambda mode: MODES.index(mode) if mode in MODES else -1)

    @property
    def active(self) -> bool:
        """Whether anything is sent or written."""
        return self.name != "off" and self.quietest != "disabled"

    @property
    def destination(self) -> str:
        """Where runs go. What was sent to one destination still has to be sent to another one."""
        return f"{self.quietest} {self.entity or ''}/{self.project}"


@dataclass(frozen=True)
class TrackedRun:
    """A run: its key below ``results/runs``, the first table that has it, and tags."""

    key: str
    group: str = ""
    tags: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id at W&B: the hash of the configuration and the seed."""
        name, _, seed = self.key.partition("/")
        return f"{name.rpartition('-')[2]}-{seed}"
