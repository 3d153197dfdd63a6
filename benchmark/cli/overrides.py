"""The configurations that the words of ``run`` describe, in Hydra's override grammar.

``GROUP=NAME`` chooses a file of ``conf/GROUP``, ``KEY=VALUE`` sets a key, ``+KEY=VALUE`` adds it, ``~KEY`` removes it.
With ``-m`` the values ``a,b``, ``range(0,3)`` and ``glob(fed*)`` are swept, and every combination is one configuration.
Hydra parses the words. `benchmark.config.compose` composes the files, as for tables, so that both give equal runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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


class Change(NamedTuple):
    """One override with one value, and the word that says it."""

    override: Override
    value: Any
    word: str

    @property
    def key(self) -> str:
        """The group, or the path of the key."""
        return self.override.key_or_group

    @property
    def chooses(self) -> bool:
        """Whether it chooses a file."""
        return self.key in CHOICES and self.override.type is OverrideType.CHANGE


class _Files:
    """Tells Hydra's ``glob()`` which files a group has."""

    def get_group_options(self, group: str, results_filter: object = None) -> list[str]:
        """Names of the files."""
        return group_names(group)


def configurations(words: Sequence[str], many: bool) -> dict[str, RunConfig]:
    """The configurations by the swept words of each: ``{"method=fedavg seed=0": ...}``.

    Args:
        words: Overrides of the command line.
        many: Whether sweeps are allowed.

    Raises:
        ConfigError: An unknown key or name (with the nearest), or a value that is not allowed.
    """
    found = {}
    axes = [_changes(override, many) for override in _parse(words)]
    for changes in itertools.product(*axes):
        swept = " ".join(change.word for change, axis in zip(changes, axes, strict=True) if len(axis) > 1)
        try:
            found[swept] = resolve(composed(changes))
        except UserError as error:
            raise ConfigError(f"{swept}: {error}" if swept else str(error)) from error
    return found


def composed(changes: Sequence[Change]) -> dict[str, Any]:
    """The plain configuration of conf/ with these changes: choices of files first, then the others in their order."""
    chosen = {change.key: str(change.value) for change in changes if change.chooses}
    config = compose(chosen.pop("preset", "quick"), chosen)
    for change in changes:
        if not change.chooses:
            _apply(config, change)
    if any("${" in change.word for change in changes):
        try:
            config = OmegaConf.to_container(OmegaConf.create(config), resolve=True)  # type: ignore[assignment]
        except OmegaConfBaseException as error:
            raise ConfigError(f"run: {_first_line(error)}.") from error
    return config


def parse(words: Sequence[str]) -> list[Change]:
    """The changes that the words of one run say."""
    return [change for override in _parse(words) for change in _changes(override, many=False)]


def _parse(words: Sequence[str]) -> list[Override]:
    """One override for each key. The last one counts."""
    try:
        parser = OverridesParser.create(_Files())  # type: ignore[arg-type]
        overrides = parser.parse_overrides(list(words))
    except HydraException as error:
        raise ConfigError(f"run: cannot read the command line: {_first_line(error)}") from error
    return list({override.get_key_element(): override for override in overrides}.values())


def _changes(override: Override, many: bool) -> list[Change]:
    """One change for each value of an override."""
    key, word = override.get_key_element(), str(override.input_line)
    if override.package is not None:
        raise ConfigError(wrong("run", word, f"{override.key_or_group}=VALUE, without a package"))
    if not override.is_sweep_override():
        return [Change(override, override.value(), word)]
    if not override.is_discrete_sweep():
        raise ConfigError(wrong(key, word, "a list of values: a,b,c or range(0,3)"))
    words = [f"{key}={text}" for text in override.sweep_string_iterator()]
    if not many:
        values = ",".join(choice.partition("=")[2] for choice in words)
        raise ConfigError(
            wrong(key, values, f"one value; with -m there is one run for each. A list is written [{values}]")
        )
    if not words:
        raise ConfigError(wrong(key, word, "a pattern that fits a name", known=group_names(key)))
    return [change for choice in _parse_each(words) for change in _changes(choice, many)]


def _parse_each(words: Iterable[str]) -> list[Override]:
    return [override for word in words for override in _parse([word])]


def _apply(config: dict[str, Any], change: Change) -> None:
    """Set, add or remove one key in place."""
    *parents, last = change.key.split(".")
    kind = change.override.type
    adds = kind in (OverrideType.ADD, OverrideType.FORCE_ADD)
    node: Any = config
    for part in parents:
        if adds and node.get(part) is None:
            node[part] = {}
        node = node.get(part)
        if not isinstance(node, dict):
            raise _unknown(config, change.key)
    if not adds and last not in node:
        raise _unknown(config, change.key)
    if kind is OverrideType.DEL:
        del node[last]
    else:
        node[last] = merge({last: node.get(last)}, {last: change.value})[last]


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
