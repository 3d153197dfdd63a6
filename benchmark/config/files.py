"""YAML files, read into plain or validated settings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from benchmark.config.merge import Settings
from benchmark.errors import ConfigError, Model, StorageError, validate
from benchmark.paths import ROOT

MOST_VALUES = 1_000_000
"""Values in a YAML text. With aliases of aliases a few lines may stand for more than any memory holds."""


# The loader in C is ten times as fast, if PyYAML was built with it.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses a text of too many values, and a mapping that has a key twice. Mappings become `Settings`."""

    file = ""

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
        children = node.value
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            children = [child for pair in node.value for child in pair]
        counted[id(node)] = 1 + sum(_values(child, counted) for child in children)
    return counted[id(node)]


def _check_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        if key.value in seen:
            raise yaml.YAMLError(f"line {key.start_mark.line + 1}: the key {key.value!r} is given twice")
        seen.add(key.value)


def _settings(loader: _Loader, node: yaml.MappingNode) -> Iterator[Settings]:
    """A mapping with file and line of each key. It is filled later, since an alias in it may stand for itself."""
    settings = Settings()
    yield settings
    settings.update(loader.construct_mapping(node))
    if loader.file:
        lines = {str(key.value): key.start_mark.line + 1 for key, _ in node.value}
        settings.sources = {key: f"{loader.file}:{line}" for key, line in lines.items()}


_Loader.add_constructor("tag:yaml.org,2002:map", _settings)
yaml.SafeDumper.add_representer(Settings, yaml.SafeDumper.represent_dict)


def load_yaml(text: str, file: str = "") -> Any:
    """What a YAML text says, as it stands in ``file``. Raises `yaml.YAMLError`, `RecursionError` or ValueError."""
    loader = _Loader(text)
    loader.file = file
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def shown_path(path: Path) -> str:
    """A path for captions and messages: relative to the project, or else its last three parts."""
    whole = path.resolve()
    return "/".join(whole.relative_to(ROOT).parts if whole.is_relative_to(ROOT) else whole.parts[-3:])


class FileModel(BaseModel):
    """What a file or the command line holds, or a part of it. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_yaml(path: Path, what: str) -> Settings:
    """The mapping in a YAML file; `ConfigError`, which calls the file ``what``, if there is none."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"), shown_path(path))
    except (FileNotFoundError, ValueError, RecursionError, yaml.YAMLError) as error:
        # A ValueError is about an impossible date, or bytes.
        raise ConfigError(f"{what} file {path} cannot be read: {' '.join(str(error).split())}.") from error
    except OSError as error:  # The file may be good, so it does not count as damaged.
        raise StorageError(f"{what} file {path} cannot be read ({error.strerror}).") from error
    if not isinstance(content, Settings):
        kind = "nothing" if content is None else type(content).__name__
        raise ConfigError(f"{what} file {path}: got {kind}; expected a mapping.")
    return content


def read_model(model: type[Model], path: Path, what: str) -> Model:
    """A YAML file as a model; `ConfigError`, naming file and key, if it does not fit."""
    return validate(model, read_yaml(path, what), whole=what, before=f"{what} file {path}: ")
