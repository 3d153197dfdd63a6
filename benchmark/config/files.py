"""YAML files of the user, read into validated models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from benchmark.errors import ConfigError, format_validation_error

Model = TypeVar("Model", bound=BaseModel)

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads the project's many tables in a fifth of the time, where PyYAML was built with libyaml."""


class FileModel(BaseModel):
    """What a file holds, or a part of it. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """The mapping in a YAML file; `ConfigError`, which calls the file ``what``, if there is none."""
    try:
        node = yaml.load(path.read_text(encoding="utf-8"), LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{what} file {path} cannot be read: {' '.join(str(error).split())}.") from error
    if not isinstance(node, Mapping):
        raise ConfigError(f"{what} file {path}: got {type(node).__name__}; expected a mapping.")
    return dict(node)


def validate(model: type[Model], node: Mapping[str, Any], path: Path, what: str) -> Model:
    """The content of a file as a model; `ConfigError`, naming file and key, if it does not fit."""
    try:
        return model.model_validate(node)
    except ValidationError as error:
        message = format_validation_error(error, model, whole=what)
        raise ConfigError(f"{what} file {path}: {message}") from error
