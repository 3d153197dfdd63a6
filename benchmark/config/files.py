"""YAML files, read into plain or validated settings."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from benchmark.errors import ConfigError, Model, StorageError, validate
from benchmark.paths import ROOT


# The loader in C is ten times as fast, if PyYAML was built with it.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses a mapping that has a key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1}: the key {key.value!r} is given twice")
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def load_yaml(text: str) -> Any:
    """What a YAML text says. Raises `yaml.YAMLError`, `RecursionError` or ValueError."""
    return yaml.load(text, _Loader)


def shown_path(path: Path) -> str:
    """A path for captions and messages: relative to the project, or else its last three parts."""
    whole = path.resolve()
    return "/".join(whole.relative_to(ROOT).parts if whole.is_relative_to(ROOT) else whole.parts[-3:])


class FileModel(BaseModel):
    """What a file or the command line holds, or a part of it. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """The mapping in a YAML file; `ConfigError`, which calls the file ``what``, if there is none."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError, yaml.YAMLError) as error:
        # A ValueError is about an impossible date, or bytes.
        raise ConfigError(f"{what} file {path} cannot be read: {' '.join(str(error).split())}.") from error
    except OSError as error:  # The file may be good, so it does not count as damaged.
        raise StorageError(f"{what} file {path} cannot be read ({error.strerror}).") from error
    if not isinstance(content, dict):
        kind = "nothing" if content is None else type(content).__name__
        raise ConfigError(f"{what} file {path}: got {kind}; expected a mapping.")
    return content


def read_model(model: type[Model], path: Path, what: str) -> Model:
    """A YAML file as a model; `ConfigError`, naming file and key, if it does not fit."""
    return validate(model, read_yaml(path, what), whole=what, before=f"{what} file {path}: ")
