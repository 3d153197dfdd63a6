"""``key=value`` words of the command line, checked against what a command knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from benchmark.config.compose import load_group
from benchmark.errors import ConfigError, nearest


def read(words: Sequence[str], known: Mapping[str, str], command: str) -> dict[str, str]:
    """``{key: value}``; ConfigError for anything that is not ``key=value`` with a known key, or comes twice.

    ``known`` maps a key to what it accepts, for the message.
    """
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{command}: came {word!r}; expected key=value. {_keys(known)}")
        if key not in known and f"{key.partition('.')[0]}.KEY" not in known:
            raise ConfigError(f"{command}: unknown key {key!r}.{nearest(key, known)} {_keys(known)}")
        if key in values:
            raise ConfigError(f"{command}: {key} is given twice.")
        if value:
            values[key] = value
    return values


def flags(words: Sequence[str], known: Mapping[str, str], command: str) -> tuple[set[str], list[str]]:
    """(the words that begin with ``--``, the others); ConfigError for one that is not ``known`` {flag: meaning}."""
    chosen = {word for word in words if word.startswith("--")}
    for word in sorted(chosen - set(known)):
        there = ", ".join(f"{flag} ({meaning})" for flag, meaning in known.items())
        raise ConfigError(f"{command}: came {word}.{nearest(word, known)} Allowed: {there}.")
    return chosen, [word for word in words if word not in chosen]


def settings_of_group(
    group: str, values: Mapping[str, str], default: str, known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """``conf/<group>/<choice>.yaml`` with ``<group>.KEY=VALUE`` of the command line on top.

    A file of another name than its kind has what differs from the file of its kind.

    Args:
        group: Folder of conf/, and the word that chooses a file of it.
        values: Words of the command line.
        default: The file where no word chooses one.
        known: The settings that may be given; default those of the chosen file.

    Raises:
        ConfigError: No such file or setting (with the nearest), or a value that is no YAML.
    """
    chosen = load_group(group, values.get(group, default))
    settings = load_group(group, chosen["name"]) | chosen
    known = settings if known is None else known
    allowed = [key for key in known if key != "name"]
    for word, text in values.items():
        key = word.removeprefix(f"{group}.")
        if key == word:
            continue
        if key not in allowed:
            there = ", ".join(f"{group}.{other}" for other in allowed)
            raise ConfigError(
                f"{word}: no such setting.{nearest(key, allowed)} Allowed: {there} (conf/{group}/{known['name']}.yaml)."
            )
        settings[key] = value_of(text, word)
    return settings


def value_of(text: str, key: str) -> Any:
    """What YAML reads in the value of a word; `ConfigError` if it cannot."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{key}: cannot read {text!r}: {' '.join(str(error).split())}") from error


def _keys(known: Mapping[str, str]) -> str:
    return "Allowed: " + ", ".join(f"{key}={what}" for key, what in known.items()) + "."


def preset_of(values: Mapping[str, str]) -> str:
    """The preset asked for; `ConfigError` if there is none of that name."""
    preset = values.get("preset", "quick")
    load_group("preset", preset)  # refuses an unknown one
    return preset


def launcher_kind(values: Mapping[str, str]) -> str:
    """inline, local or slurm: what the chosen file of conf/launcher is for; `ConfigError` if there is none."""
    return str(load_group("launcher", values.get("launcher", "local"))["name"])


def positive(values: Mapping[str, str], key: str) -> int | None:
    """A whole number of at least 1, or None if the key is not given."""
    if key not in values:
        return None
    try:
        number = int(values[key])
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"{key}: came {values[key]!r}; it must be a whole number of at least 1.")
    return number
