"""The configurations that the words of ``run`` describe, in Hydra's override grammar.

``GROUP=NAME`` chooses a file of ``conf/GROUP``, ``KEY=VALUE`` sets a key, ``+KEY=VALUE`` adds it, ``~KEY`` removes it.
``dataset.options.KEY=VALUE`` sets any option that the data set has.
With ``-m`` the values ``a,b``, ``range(0,3)`` and ``glob(fed*)`` are swept, and every combination is one configuration.
Hydra parses the words. `benchmark.config.compose` composes the files, as for tables, so that both give equal runs.
"""

import copy
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from benchmark.config.compose import compose, group_names, resolve
from benchmark.config.merge import merge
from benchmark.config.schema import GROUPS, RunConfig
from benchmark.errors import ConfigError, UserError, nearest, wrong

CHOICES = (*GROUPS, "preset")
"""Keys that choose a file of the folder of their name."""

_KEY = re.compile(r"\$\{[^${}:]*\}")
"""The value of another key. What else begins with ``${`` is a call, which may read the environment."""


class _Files:
    """Tells Hydra's ``glob()`` which files a group has."""

    def get_group_options(self, group: str, results_filter: object = None) -> list[str]:
        """Names of the files."""
        return group_names(group)


def configurations(words: Sequence[str], many: bool) -> list[RunConfig]:
    """The configurations of all combinations, in the order of the words; the last word changes fastest.

    Args:
        words: Overrides of the command line. The last one of a key counts.
        many: Whether sweeps are allowed.

    Raises:
        ConfigError: An unknown key or name (with the nearest), or a value that is not allowed.
    """
    found = []
    axes = _axes(words, many)
    for overrides in itertools.product(*axes):
        swept = " ".join(
            str(override.input_line) for override, axis in zip(overrides, axes, strict=True) if len(axis) > 1
        )
        try:
            found.append(resolve(_composed(overrides)))
        except UserError as error:
            raise ConfigError(f"{swept}: {error}" if swept else str(error)) from error
    return found


def plain_configuration(words: Sequence[str]) -> dict[str, Any]:
    """The configuration of one run before it is validated."""
    return _composed([override for axis in _axes(words, many=False) for override in axis])


def _axes(words: Sequence[str], many: bool) -> list[list[Override]]:
    """One list for each key: an override for each of its values."""
    last = {override.get_key_element(): override for override in _parse(words)}
    return [_values(override, many) for override in last.values()]


def _parse(words: Iterable[str]) -> list[Override]:
    parser = OverridesParser.create(_Files())  # type: ignore[arg-type]
    overrides = []
    for word in words:
        try:
            overrides += parser.parse_overrides([word])
        except HydraException as error:
            expected = "KEY=VALUE; a value with special characters is written in quotes, KEY=\"'VALUE'\""
            raise ConfigError(wrong("run", word, expected)) from error
    for override in overrides:
        if override.package is not None:
            expected = f"{override.key_or_group}=VALUE, without a package"
            raise ConfigError(wrong("run", override.input_line, expected))
        if "${" in _KEY.sub("", str(override.input_line)):
            expected = "no call such as ${oc.env:NAME}, only keys such as ${train.lr}"
            raise ConfigError(wrong("run", override.input_line, expected))
    return overrides


def _values(override: Override, many: bool) -> list[Override]:
    """An override for each value of a sweep, or the override itself."""
    key, word = override.get_key_element(), override.input_line
    if not override.is_sweep_override():
        return [override]
    if not override.is_discrete_sweep():
        raise ConfigError(wrong(key, word, "a list of values: a,b,c or range(0,3)"))
    texts = list(override.sweep_string_iterator())
    if not many:
        values = ",".join(texts)
        raise ConfigError(
            wrong(key, values, f"one value; with -m there is one run for each. A list is written [{values}]")
        )
    if not texts:
        raise ConfigError(wrong(key, word, "a pattern that fits a name", known=group_names(key)))
    return _parse(f"{key}={text}" for text in texts)


def _composed(overrides: Sequence[Override]) -> dict[str, Any]:
    """The plain configuration of conf/ with overrides: choices of files first, then the others in their order."""
    chosen, changes = {}, []
    for override in overrides:
        if override.key_or_group in CHOICES and override.type is OverrideType.CHANGE:
            chosen[override.key_or_group] = str(override.value())
        else:
            changes.append(override)
    config = compose(chosen.pop("preset", "quick"), chosen)
    for override in changes:
        if not _sets_option(override):
            _apply(config, override)
    before = copy.deepcopy(config.get("dataset"))
    options = [override for override in changes if _sets_option(override)]
    for override in options:
        _apply(config, override)
    if any("${" in str(override.input_line) for override in overrides):
        try:
            config = OmegaConf.to_container(OmegaConf.create(config), resolve=True)  # type: ignore[assignment]
        except OmegaConfBaseException as error:
            raise ConfigError(f"run: {_first_line(error)}.") from error
    if options:
        from datasets.core.registry import with_options  # imports all builders

        data, own = config["dataset"], (before or {}).get("options") or {}
        given = {key: data["options"][key] for key in (each.key_or_group.split(".")[2] for each in options)}
        config["dataset"], _ = with_options({**data, "options": own}, given)
    return config


def _sets_option(override: Override) -> bool:
    """Whether an override sets one option of the data set, which need not be in its file."""
    return override.key_or_group.startswith("dataset.options.") and override.type is not OverrideType.DEL


def _apply(config: dict[str, Any], override: Override) -> None:
    """Set, add or remove one key in place."""
    *parents, last = override.key_or_group.split(".")
    adds = override.type in (OverrideType.ADD, OverrideType.FORCE_ADD) or _sets_option(override)
    node: Any = config
    for part in parents:
        if adds and node.get(part) is None:
            node[part] = {}
        node = node.get(part)
        if not isinstance(node, dict):
            raise _unknown(config, override.key_or_group)
    if not adds and last not in node:
        raise _unknown(config, override.key_or_group)
    if override.type is OverrideType.DEL:
        del node[last]
    else:
        node[last] = merge({last: node.get(last)}, {last: override.value()})[last]


def _unknown(config: Mapping[str, Any], key: str) -> ConfigError:
    keys = [*_paths(config), *CHOICES, "launcher", "workers", "tracking"]
    parent = key.rpartition(".")[0]
    there = [known for known in keys if known.rpartition(".")[0] == parent] or list(config)
    return ConfigError(
        f"{key}: unknown key; expected one of: {', '.join(dict.fromkeys(there))}.{nearest(key, keys)} "
        f"Put + before a key to add one where a rule takes it."
    )


def _paths(node: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The paths of all keys, ``train`` and ``train.lr``."""
    found = []
    for key, value in node.items():
        found.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            found += _paths(value, f"{prefix}{key}.")
    return found


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
