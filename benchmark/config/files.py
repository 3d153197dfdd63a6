"""YAML files, read into plain or validated settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from benchmark.errors import ConfigError, Model, validate

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C is ten times as fast, if PyYAML was built with it."""


class FileModel(BaseModel):
    """What a file holds, or a part of it. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """The mapping in a YAML file; `ConfigError`, which calls the file ``what``, if there is none."""
    try:
        node = yaml.load(path.read_text(encoding="utf-8"), LOADER)
    except (
        OSError,
        ValueError,
        RecursionError,
        yaml.YAMLError,
    ) as error:  # also an impossible date, or bytes
        raise ConfigError(f"{what} file {path} cannot be read: {' '.join(str(error).split())}.") from error
    if not isinstance(node, Mapping):
        found = "nothing" if node is None else type(node).__name__
        raise ConfigError(f"{what} file {path}: got {found}; expected a mapping.")
    return dict(node)


def read_model(model: type[Model], path: Path, what: str) -> Model:
    """A YAML file as a model; `ConfigError`, naming file and key, if it does not fit."""
    return validate(model, read_yaml(path, what), whole=what, before=f"{what} file {path}: ")
