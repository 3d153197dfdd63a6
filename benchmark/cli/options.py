"""The words of a command: their meanings for ``--help``, and the options that they set."""

import typing
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel

from benchmark.config.files import load_yaml
from benchmark.errors import ConfigError, nearest, shorten, wrong
from benchmark.experiments.parts import SETTINGS
from benchmark.paths import conf_file


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


def words_of(kind: type[BaseModel]) -> dict[str, tuple[str, str]]:
    """The words that set the options of a class: ``seeds``, ``launcher.KEY`` or ``--verbose``.

    Each has the name of its option, and the whole word as help and messages show it: ``seeds=integer > 0``.
    """
    words = {}
    properties = kind.model_json_schema()["properties"]
    for name, field in kind.model_fields.items():
        if field.exclude:
            continue
        values = field.title or accepts(properties[name]).removesuffix(" or null")
        if field.annotation is bool:
            words[f"--{name}"] = name, f"--{name}"
        elif typing.get_origin(field.annotation) is Mapping:
            key = f"{name.removesuffix('_settings').replace('_', '.')}.KEY"
            words[key] = name, f"{key}={values}"
        else:
            word = name.removesuffix("_")  # after a keyword of Python
            words[word] = name, f"{word}={values}"
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
        for name, form in options.values():
            field = kind.model_fields[name]
            default = "" if field.default in (None, False, "", {}) else f"; default: {field.default}"
            print(f"  {form}\n      {field.description or ''}{default}")
        raise SystemExit(0)
    values: dict[str, Any] = {}
    keys = [_key(word) for word in argv]
    groups = [option.removesuffix("KEY") for option in options if option.endswith(".KEY")]
    for key, word in zip(keys, argv, strict=True):
        equals, text = word[len(key) :][:1], word[len(key) :][1:]
        group = next((group for group in groups if key.startswith(group)), "")
        name, form = options.get(key) or options.get(f"{group}KEY") or ("", "")
        if not name or bool(equals) != ("=" in form):
            if "row.KEY" in options and key.partition(".")[0] in SETTINGS:
                expected = f"row.KEY.{word} or column.KEY.{word}, with the key of a row or column"
                raise ConfigError(wrong(command, word, expected))
            if "name" in options and conf_file("table", word) is not None:
                raise ConfigError(wrong(command, word, f"name={word}"))
            forms = ", ".join(form for _, form in options.values()) or "none"
            raise ConfigError(
                f"{command}: got {shorten(word)}; expected one of: {forms}.{nearest(key, options)}"
            )
        if keys.count(key) > 1:
            raise ConfigError(f"{command}: {key} is given twice.")
        if not equals:
            values[name] = True
        elif text and key in options:
            values[name] = text
        elif text:
            values.setdefault(name, {})[key.removeprefix(group)] = _yaml_value(text, key)
    return values


def _key(word: str) -> str:
    """What stands before ``=``. The key of a row or column may have one itself, so that there the last one counts."""
    return word.rpartition("=")[0] if word.startswith(("row.", "column.")) else word.partition("=")[0]


def _yaml_value(text: str, key: str) -> Any:
    """What YAML reads in the value of a word; `ConfigError` if it cannot."""
    try:
        return load_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(wrong(key, text, "a value in YAML")) from error
