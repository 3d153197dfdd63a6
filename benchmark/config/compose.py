"""A run's plain configuration, composed from conf/. Each of its values knows the file and line that set it.

The files are Hydra's. `compose` reads them in a millisecond, for the thousands of runs of a table or sweep, where Hydra
takes 50 ms. A test compares the two.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from benchmark.config.files import read_yaml
from benchmark.config.merge import Settings, explain, merge, sources_of
from benchmark.config.schema import GROUPS, RunConfig, defaults
from benchmark.errors import ConfigError, nearest, validate, wrong
from benchmark.paths import CONF, conf_file, conf_files
from datasets.core.registry import with_options

COMMAND_LINE = "command line"
LAUNCHED = ("launcher", "workers", "tracking")
"""Keys beside those of a configuration."""

CHOICES = (*GROUPS, "preset")
"""Keys that choose a file of the folder of their name."""


def group_names(group: str) -> list[str]:
    """Names of the files of a configuration group."""
    return list(conf_files(group))


@cache
def _read(path: Path) -> Settings:
    return read_yaml(path, "configuration")


def load_group(group: str, name: str) -> Settings:
    """The settings of ``conf/<group>/<name>.yaml``; ConfigError, with the nearest name, if there is no such file.

    They lie on top of the defaults of the schema and, as for Hydra, of what conf/config.yaml has under the name of the
    group. The name in the file of a method or preset is that of the file; in the other groups it says which data set,
    scheme, model ... is meant.
    """
    base = merge(defaults().get(group, {}), _read(CONF / "config.yaml").get(group, {}))
    content = _extended(group, name)
    key = "preset" if group == "preset" else "name"
    has_file_name = group in ("method", "preset")
    if not isinstance(content.get(key), str) or (has_file_name and content[key] != name):
        expected = f"{name!r}, the name of the file" if has_file_name else "a name"
        raise ConfigError(wrong(f"{conf_file(group, name)}: {key}", content.get(key), expected))
    return copy.deepcopy(merge({} if group == "preset" else base, content))


def _extended(group: str, name: str, above: Sequence[str] = ()) -> Settings:
    """The content of a file, on top of the files of its group that it names under ``defaults``.

    ``above`` are the files that extend it.
    """
    path = conf_file(group, name)
    if path is None:
        names = group_names(group)
        raise ConfigError(wrong(group, name, f"one of {', '.join(names)} (conf/{group}/)", known=names))
    content = _read(path)
    parents = content.get("defaults", [])
    kind, what = (dict, "`override /GROUP: NAME`") if group == "preset" else (str, f"files of conf/{group}")
    if not isinstance(parents, list) or not all(isinstance(parent, kind) for parent in parents):
        raise ConfigError(wrong(f"{path}: defaults", parents, f"a list of {what}"))
    if group == "preset":  # Its list chooses files of other groups.
        return content
    config = Settings()
    for parent in parents:
        if parent in (*above, name):
            raise ConfigError(wrong(f"{path}: defaults", parent, "a file that does not extend this one"))
        config = merge(config, _extended(group, parent, (*above, name)))
    config = merge(config, content)
    config.pop("defaults", None)
    return config


def _apply(config: Settings, layer: Mapping[str, Any], source: str) -> Settings:
    """Merge a layer, in which a group may be given by the name of its file, alone or under ``name``."""
    for key, value in layer.items():
        if key in GROUPS and isinstance(value, str):
            value = Settings({"name": value}, {"name": sources_of(layer).get(key, source)})
        if key in GROUPS and isinstance(value, Mapping) and "name" in value:
            config = Settings(config, config.sources)
            config[key] = load_group(key, str(value["name"]))
            config.sources[key] = sources_of(value).get("name", source)
            value = Settings(value, sources_of(value))
            del value["name"]
        config = merge(config, {key: value}, source)
    return config


def compose(preset: str, *layers: Mapping[str, Any], source: str = "") -> Settings:
    """The plain configuration of conf/config.yaml with a preset and layers of overrides on top, in that order.

    ``source`` is that of the layers whose values do not know theirs.
    """
    values = load_group("preset", preset)
    names = Settings()
    for item in [*_read(CONF / "config.yaml")["defaults"], *values.pop("defaults", [])]:
        for key, name in item.items() if isinstance(item, Settings) else ():
            group = key.removeprefix("override /")
            names[group], names.sources[group] = name, item.sources[key]
    groups = Settings({group: load_group(group, names[group]) for group in GROUPS}, names.sources)
    others = {key: value for key, value in defaults().items() if key not in GROUPS}
    config = merge(merge(groups, others, "default"), values)
    for layer in layers:
        config = _apply(config, layer, source)
    return config


def set_value(
    config: Settings, key: str, value: Any, source: str, new: Literal["", "key", "path"] = ""
) -> Settings:
    """``config`` with the setting of a dotted key.

    ``new`` says what need not be there: nothing, the key in the last mapping, or the mappings on the way to it as well.
    `ConfigError` for anything else that is not there.
    """
    node: Any = config
    parts = key.split(".")
    for place, part in enumerate(parts, start=1):
        is_missing = node is None or (isinstance(node, Mapping) and part not in node)
        if is_missing and (new == "path" or (new == "key" and place == len(parts))):
            break
        node = _child(config, node, part, key)
    return _put(config, parts, value, source)


def _put(node: Mapping[str, Any], path: Sequence[str], value: Any, source: str) -> Settings:
    """``node`` with a value at ``path``. Another ``name`` alone leaves the parameters beside it, as with Hydra."""
    first, *rest = path
    if not rest:
        return merge(node, {first: value}, source)
    changed = Settings(node, sources_of(node))
    changed[first] = _put(node.get(first) or {}, rest, value, source)
    return changed


def without(config: Settings, key: str) -> Settings:
    """``config`` without the setting of a dotted key. `ConfigError` if it has no such key."""
    node: Any = (config := copy.deepcopy(config))
    *parents, last = key.split(".")
    for part in parents:
        node = _child(config, node, part, key)
    _child(config, node, last, key)
    del node[last]
    return config


def _child(config: Settings, node: Any, part: str, key: str) -> Any:
    """The value called ``part`` of a mapping in ``config``, on the way to the dotted ``key``."""
    if isinstance(node, Mapping) and part in node:
        return node[part]
    keys = [*_paths(config), *CHOICES, *LAUNCHED]
    parent = key.rpartition(".")[0]
    expected = [name for name in keys if name.rpartition(".")[0] == parent] or list(config)
    raise ConfigError(
        f"{key}: unknown key; expected one of: {', '.join(dict.fromkeys(expected))}.{nearest(key, keys)} "
        "`run` adds one with + before the key, where a rule takes it."
    )


def with_dataset_options(
    plain: Settings, given: Mapping[str, Any]
) -> tuple[Settings, dict[str, tuple[Any, Any]]]:
    """A configuration with other options of its data set, and those that differ: key -> (value before, new value).

    An option need not be in the data set's file. One that has its value already changes nothing. Errors as `get` and
    `parse` of ``datasets.core.registry``.
    """
    dataset, changed = with_options(plain["dataset"], given)
    before = plain["dataset"]
    options = Settings(dataset["options"], sources_of(before["options"]))
    options.sources |= dict.fromkeys(changed, COMMAND_LINE)
    config = Settings(plain, plain.sources)
    config["dataset"] = Settings(dataset | {"options": options}, sources_of(before))
    return config, changed


def _paths(node: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The paths of all keys, ``train`` and ``train.lr``."""
    paths = []
    for key, value in node.items():
        paths.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            paths += _paths(value, f"{prefix}{key}.")
    return paths


def with_selection(plain: Mapping[str, Any]) -> Settings:
    """A configuration in which the selection ``auto`` has become the method's own or uniform."""
    method, selection = plain.get("method"), plain.get("selection")
    if not isinstance(method, Mapping) or not isinstance(selection, Mapping):
        raise ConfigError(
            f"method, selection: got {method!r}, {selection!r}; expected files of conf/method and conf/selection."
        )
    config = Settings(plain, sources_of(plain))
    if selection.get("name") == "auto":
        uniform = Settings({"name": "uniform"}, sources_of(selection))
        config["selection"] = method.get("selection") or uniform
    return config


def resolve(plain: Mapping[str, Any]) -> RunConfig:
    """Validate a composed configuration.

    Raises :class:`ConfigError` with one message that names every wrong key, its value and what is expected.
    """
    values = {
        key: value for key, value in with_selection(plain).items() if key not in ("launcher", "tracking")
    }
    return validate(RunConfig, values, after=" Set it on the command line or in conf/.")


def as_yaml(settings: Mapping[str, Any], comments: Mapping[str, str], prefix: str = "") -> Iterator[str]:
    """Lines of YAML with a comment behind each value that has one. ``comments``: dotted key -> text."""
    indent = "  " * prefix.count(".")
    for key, value in settings.items():
        comment = f"  # {comments[prefix + key]}" if comments.get(prefix + key) else ""
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:{comment}"
            yield from as_yaml(value, comments, f"{prefix}{key}.")
        else:
            text = yaml.safe_dump([value], default_flow_style=True, width=math.inf).strip()[1:-1]
            yield f"{indent}{key}: {text}{comment}"


def explained_yaml(plain: Mapping[str, Any]) -> str:
    """A configuration as YAML; the comment behind each value says what set it."""
    config = with_selection(plain)
    files = {group: f"chosen: {source}" for group in GROUPS if (source := config.sources.get(group))}
    return "\n".join(as_yaml(config, files | {setting.key: setting.source for setting in explain(config)}))
