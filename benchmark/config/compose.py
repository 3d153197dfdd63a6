"""A run's plain configuration, composed from conf/.

The files are Hydra's. `compose` reads them in a millisecond, for the thousands of runs of a table or sweep, where Hydra
takes 50 ms. A test compares the two.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any, Literal

from benchmark.config.files import read_yaml
from benchmark.config.merge import merge
from benchmark.config.schema import GROUPS, RunConfig, defaults
from benchmark.errors import ConfigError, nearest, validate, wrong
from benchmark.paths import CONF, conf_file, conf_files, unset
from datasets.core.registry import with_options

CHOICES = (*GROUPS, "preset")
"""Keys that choose a file of the folder of their name."""

OPEN = ("partition", "model", "method")
"""Groups whose parameters are those of what was chosen, and not known here."""

LAUNCHED = ("launcher", "workers", "tracking")
"""Keys beside those of a configuration."""

SHORT = {"results": "paths.results", "data": "paths.data"} | {
    key: f"runtime.{key}" for key in ("device", "threads", "cuda_graphs", "stale")
}
"""Options of other commands that are keys of a run's configuration."""


def group_names(group: str) -> list[str]:
    """Names of the files of a configuration group."""
    return list(conf_files(group))


@cache
def _read(path: Path) -> dict[str, Any]:
    return read_yaml(path, "configuration")


def load_group(group: str, name: str) -> dict[str, Any]:
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


def _extended(group: str, name: str, above: Sequence[str] = ()) -> dict[str, Any]:
    """The content of a file, on top of the files of its group that it names under ``defaults``.

    ``above`` are the files that extend it.
    """
    path = conf_file(group, name)
    if path is None:
        names = group_names(group)
        where = f"conf/{group}/{unset() if group in GROUPS else ''}"
        raise ConfigError(wrong(group, name, f"one of {', '.join(names)} ({where})", known=names))
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
    config = merge(config, content)
    config.pop("defaults", None)
    return config


def _apply(config: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a layer, in which a group may be given by the name of its file, alone or under ``name``."""
    config = dict(config)
    for key, value in layer.items():
        if key in GROUPS and isinstance(value, str):
            value = {"name": value}
        if key in GROUPS and isinstance(value, Mapping) and "name" in value:
            config[key] = load_group(key, str(value["name"]))
            value = {name: of_name for name, of_name in value.items() if name != "name"}
        config = merge(config, {key: value})
    return config


def compose(preset: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
    """The plain configuration of conf/config.yaml with a preset and layers of settings on top, in that order."""
    values = load_group("preset", preset)
    names: dict[str, str] = {}
    for item in [*_read(CONF / "config.yaml")["defaults"], *values.pop("defaults", [])]:
        if isinstance(item, Mapping):
            names |= {key.removeprefix("override /"): name for key, name in item.items()}
    groups = {group: load_group(group, names[group]) for group in GROUPS}
    others = {key: value for key, value in defaults().items() if key not in GROUPS}
    return reduce(_apply, layers, merge(merge(groups, others), values))


def configured(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The plain configuration of single settings, by their dotted keys.

    ``method: fedprox`` chooses a file, ``train.lr: 0.1`` sets a key, ``+KEY`` adds it, ``~KEY`` removes it. Files are
    chosen first, the others are set in their order. Parameters of what was chosen (``model.stride``) need no plus: a
    wrong one is refused by what takes them.

    Raises:
        ConfigError: An unknown key or name (with the nearest).
    """
    settings = {SHORT.get(key, key): value for key, value in settings.items()}
    files = {key: str(value) for key, value in settings.items() if key in CHOICES}
    config, options = compose(files.pop("preset", "quick"), files), dict[str, Any]()
    for given, value in settings.items():
        key = given.lstrip("+~")
        path, _, last = key.rpartition(".")
        if given in CHOICES:
            continue
        if given.startswith("~"):
            config = without(config, key)
        elif path == "dataset.options":
            options[last] = value
        else:
            takes_more: Literal["", "key"] = "key" if key.partition(".")[0] in OPEN else ""
            config = set_value(config, key, value, new="path" if given.startswith("+") else takes_more)
    return with_dataset_options(config, options)[0] if options else config


def set_value(
    config: Mapping[str, Any], key: str, value: Any, new: Literal["", "key", "path"] = ""
) -> dict[str, Any]:
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
    return _put(config, parts, value)


def _put(node: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """``node`` with a value at ``path``. Another ``name`` alone leaves the parameters beside it, as with Hydra."""
    first, *rest = path
    return {**node, first: _put(node.get(first) or {}, rest, value)} if rest else merge(node, {first: value})


def without(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """``config`` without the setting of a dotted key. `ConfigError` if it has no such key."""
    changed = copy.deepcopy(dict(config))
    node: Any = changed
    *parents, last = key.split(".")
    for part in parents:
        node = _child(config, node, part, key)
    _child(config, node, last, key)
    del node[last]
    return changed


def _child(config: Mapping[str, Any], node: Any, part: str, key: str) -> Any:
    """The value called ``part`` of a mapping in ``config``, on the way to the dotted ``key``."""
    if isinstance(node, Mapping) and part in node:
        return node[part]
    keys = [*_paths(config), *CHOICES, *LAUNCHED]
    parent = key.rpartition(".")[0]
    siblings = [name for name in keys if name.rpartition(".")[0] == parent]
    expected = siblings or list(config)
    is_near = not siblings or nearest(part, [name.rpartition(".")[2] for name in siblings])
    near = nearest(key, siblings or keys) if is_near else ""
    hint = "`run` adds one with + before the key, where a rule takes it."
    # A rule that is added would make another method of this one.
    if key.startswith("method.") and part != key.rpartition(".")[2]:
        hint = f"This method has no {part}; method=NAME chooses one that has."
    raise ConfigError(
        f"{key}: unknown key; expected one of: {', '.join(dict.fromkeys(expected))}.{near} {hint}"
    )


def _paths(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of all keys, ``train`` and ``train.lr``."""
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{key}.")


def with_dataset_options(
    plain: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
    """A configuration with other options of its data set, and those that differ: key -> (value before, new value).

    An option need not be in the data set's file. One that has its value already changes nothing. Errors as `get` and
    `parse` of ``datasets.core.registry``.
    """
    dataset, changed = with_options(plain["dataset"], given)
    return {**plain, "dataset": dataset}, changed


def with_selection(plain: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration in which the selection ``auto`` has become the method's own or uniform."""
    method, selection = plain.get("method"), plain.get("selection")
    if not isinstance(method, Mapping) or not isinstance(selection, Mapping):
        raise ConfigError(
            f"method, selection: got {method!r}, {selection!r}; expected files of conf/method and conf/selection."
        )
    is_auto = selection.get("name") == "auto"
    return {**plain, "selection": (method.get("selection") or {"name": "uniform"}) if is_auto else selection}


def resolve(plain: Mapping[str, Any]) -> RunConfig:
    """Validate a composed configuration.

    Raises :class:`ConfigError` with one message that names every wrong key, its value and what is expected.
    """
    return validate(RunConfig, with_selection(plain), after=" Set it on the command line or in conf/.")
