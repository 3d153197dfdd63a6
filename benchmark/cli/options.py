"""The words of a command: their meanings for ``--help``, and the options that they set."""

import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel

from benchmark.config.files import load_yaml
from benchmark.errors import ConfigError, nearest, shorten, wrong


class Word(NamedTuple):
    """One word that a command takes. ``default`` is empty if leaving the word out has a meaning of its own."""

    field: str
    accepts: str
    default: str
    meaning: str


def accepts(part: Mapping[str, Any]) -> str:
    """The values that a part of a JSON schema allows: ``a|b``, or words such as ``integer ≥ 1 or null``."""
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(accepts(other) for other in part["anyOf"]))
    if "enum" in part:
        return "|".join(map(str, part["enum"]))
    kinds = {"integer": "integer", "number": "number", "string": "text", "boolean": "true|false"}
    kinds |= {"null": "null", "array": "list", "object": "mapping"}
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = " and ".join(f"{sign} {part[key]:.15g}" for key, sign in bounds.items() if key in part)
    kind = "FOLDER" if part.get("format") == "path" else kinds[part["type"]]
    return f"{kind} {limits}".strip()


def words_of(kind: type[BaseModel]) -> dict[str, Word]:
    """The words of an options class."""
    words = {}
    properties = kind.model_json_schema()["properties"]
    for name, field in kind.model_fields.items():
        if field.exclude:
            continue
        key, values = name, field.title or accepts(properties[name]).removesuffix(" or null")
        if field.annotation is bool:
            key, values = f"--{name}", ""
        elif typing.get_origin(field.annotation) is Mapping:
            key = f"{name.removesuffix('_settings').replace('_', '.')}.KEY"
        default = "" if field.default in (None, False, "", {}) else str(field.default)
        words[key] = Word(name, values, default, field.description or "")
    return words


def parse(
    argv: Sequence[str], command: str, kind: type[BaseModel], words: str = "[key=value ...]"
) -> dict[str, Any]:
    """The options that the words of a command line set, by their names; ``--help`` prints them and ends the process.

    Args:
        argv: ``key=value`` words and flags. ``key=`` without a value is ignored.
        command: Its name, for messages.
        kind: The options.
        words: What the command takes, for ``--help``.

    Raises:
        ConfigError: A word that the command does not take, or that is given twice.
    """
    options = words_of(kind)
    if {"--help", "-h"} & set(argv):
        print(f"usage: python -m benchmark {command} {words}\n")
        for key, shown in options.items():
            default = f"; default: {shown.default}" if shown.default else ""
            print(f"  {_form(key, shown)}\n      {shown.meaning}{default}")
        raise SystemExit(0)
    values: dict[str, Any] = {}
    keys: set[str] = set()
    for word in argv:
        key, equals, text = word.partition("=")
        group, _, rest = key.rpartition(".")
        option = options.get(key) or options.get(f"{group}.KEY")
        if option is None or bool(equals) == key.startswith("--"):
            forms = ", ".join(_form(*item) for item in options.items()) or "none"
            raise ConfigError(
                f"{command}: got {shorten(word)}; expected one of: {forms}.{nearest(key, options)}"
            )
        if key in keys:
            raise ConfigError(f"{command}: {key} is given twice.")
        keys.add(key)
        if not equals:
            values[option.field] = True
        elif text and key in options:
            values[option.field] = text
        elif text:
            values.setdefault(option.field, {})[rest] = _yaml_value(text, key)
    return values


def _form(key: str, option: Word) -> str:
    """An option as it is written: ``key=VALUE`` or ``--flag``."""
    return f"{key}={option.accepts}" if option.accepts else key


def _yaml_value(text: str, key: str) -> Any:
    """What YAML reads in the value of a word; `ConfigError` if it cannot."""
    try:
        return load_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(wrong(key, text, "a value in YAML")) from error
