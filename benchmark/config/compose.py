"""A run's plain configuration, composed from conf/.

The files are Hydra's. `compose` reads them in a millisecond, for the thousands of runs of a table or sweep, where Hydra
takes 50 ms. A test compares the two.
"""

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmark.config.files import read_yaml
from benchmark.config.merge import merge
from benchmark.config.schema import GROUPS, RunConfig
from benchmark.errors import ConfigError, validate, wrong
from benchmark.paths import CONF


def group_names(group: str) -> list[str]:
    """Names of the files of a configuration group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@cache
def _read(path: Path) -> dict[str, Any]:
    return read_yaml(path, "configuration")


def load_group(group: str, name: str) -> dict[str, Any]:
    """The settings of ``conf/<group>/<name>.yaml``; ConfigError, with the nearest name, if there is no such file.

    As for Hydra, they lie on top of what conf/config.yaml has under the name of the group. The name in the file of a
    method or preset is that of the file; in the other groups it says which data set, scheme, model ... is meant.
    """
    base: dict[str, Any] = _read(CONF / "config.yaml").get(group, {})
    content = _extended(group, name)
    key = "preset" if group == "preset" else "name"
    own = group in ("method", "preset")
    if not isinstance(content.get(key), str) or (own and content[key] != name):
        expected = f"{name!r}, the name of the file" if own else "a name"
        raise ConfigError(wrong(f"{CONF / group / name}.yaml: {key}", content.get(key), expected))
    return copy.deepcopy(merge(base, content))


def _extended(group: str, name: str, above: Sequence[str] = ()) -> dict[str, Any]:
    """The content of a file, on top of the files of its group that it names under ``defaults``.

    ``above`` are the files that extend it.
    """
    path = CONF / group / f"{name}.yaml"
    if not path.is_file():
        known = group_names(group)
        raise ConfigError(wrong(group, name, f"one of {', '.join(known)} (conf/{group}/)", known=known))
    content = _read(path)
    parents = content.get("defaults", [])
    kind, what = (dict, "`override /GROUP: NAME`") if group == "preset" else (str, f"files of conf/{group}")
    if not isinstance(parents, list) or not all(isinstance(parent, kind) for parent in parents):
        raise ConfigError(wrong(f"{path}: defaults", parents, f"a list of {what}"))
    if group == "preset":  # Its list chooses files of other groups.
        return content
    config: dict[str, Any] = {}
    for parent in parents:
        if parent in (*above, name):
            raise ConfigError(wrong(f"{path}: defaults", parent, "a file that does not extend this one"))
        config = merge(config, _extended(group, parent, (*above, name)))
    return merge(config, {key: value for key, value in content.items() if key != "defaults"})


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


def compose(preset: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
    """The plain configuration of conf/config.yaml with a preset and layers of overrides on top, in that order."""
    config, values = copy.deepcopy(_read(CONF / "config.yaml")), load_group("preset", preset)
    chosen: dict[str, str] = {}
    for item in [*config.pop("defaults"), *values.pop("defaults", [])]:
        if isinstance(item, dict):
            chosen |= {key.removeprefix("override /"): name for key, name in item.items()}
    for group in GROUPS:
        config[group] = load_group(group, chosen[group])
    config = merge(config, values)
    for layer in layers:
        config = _apply(config, layer)
    return config


def resolve(plain: Mapping[str, Any]) -> RunConfig:
    """Validate a composed configuration.

    The selection ``auto`` becomes the method's own or uniform. Raises :class:`ConfigError` with one message that names
    every wrong key, its value and what is expected.
    """
    values = {key: value for key, value in plain.items() if key not in ("launcher", "tracking")}
    method, selection = values.get("method"), values.get("selection")
    if not isinstance(method, Mapping) or not isinstance(selection, Mapping):
        raise ConfigError(
            f"method, selection: got {method!r}, {selection!r}; expected files of conf/method and conf/selection."
        )
    if selection.get("name") == "auto":
        values["selection"] = dict(method.get("selection") or {"name": "uniform"})
    return validate(RunConfig, values, after=" Set it on the command line or in conf/.")
