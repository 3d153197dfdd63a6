"""YAML files, read into plain or validated settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from benchmark.errors import ConfigError, Model, StorageError, validate

MOST_VALUES = 1_000_000
"""Values in a YAML text. With aliases of aliases a few lines may stand for more than any memory holds."""


# The loader in C is ten times as fast, if PyYAML was built with it.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses a text of too many values, and a mapping that has a key twice."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _values(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(f"more than {MOST_VALUES:,} values, with those that aliases repeat")
        return node


def _values(node: yaml.Node, counted: dict[int, int]) -> int:
    """How many values a node has, with those that aliases repeat. ``counted``: numbers of nodes by their id."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in counted:
        counted[id(node)] = MOST_VALUES + 1  # An alias of a node that it is in has no end.
        inner = node.value
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            inner = [each for pair in node.value for each in pair]
        counted[id(node)] = 1 + sum(_values(each, counted) for each in inner)
    return counted[id(node)]


def _check_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        if key.value in seen:
            raise yaml.YAMLError(f"line {key.start_mark.line + 1}: the key {key.value!r} is given twice")
        seen.add(key.value)


def load_yaml(text: str) -> Any:
    """What a YAML text of the user says. Raises `yaml.YAMLError`, `RecursionError` or ValueError."""
    return yaml.load(text, _Loader)


class FileModel(BaseModel):
    """What a file holds, or a part of it. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """The mapping in a YAML file; `ConfigError`, which calls the file ``what``, if there is none."""
    try:
        node = load_yaml(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError, yaml.YAMLError) as error:
        # A ValueError is about an impossible date, or bytes.
        raise ConfigError(f"{what} file {path} cannot be read: {' '.join(str(error).split())}.") from error
    except OSError as error:  # The file may be good, so it does not count as damaged.
        raise StorageError(f"{what} file {path} cannot be read ({error.strerror}).") from error
    if not isinstance(node, Mapping):
        found = "nothing" if node is None else type(node).__name__
        raise ConfigError(f"{what} file {path}: got {found}; expected a mapping.")
    return dict(node)


def read_model(model: type[Model], path: Path, what: str) -> Model:
    """A YAML file as a model; `ConfigError`, naming file and key, if it does not fit."""
    return validate(model, read_yaml(path, what), whole=what, before=f"{what} file {path}: ")
