"""``key=value`` words of the command line, checked against what a command knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmark.errors import ConfigError, nearest
from benchmark.runs.config import load_group


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
