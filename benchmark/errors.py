"""Errors for the user: their classes, and the one form of their messages.

Every message has the same shape: ``key: got VALUE; expected WHAT. Did you mean 'x'? Set it in FILE or with key=value.``
The command line prints it and exits with code 2. This module imports nothing of ours, and every package may import it.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)

LONGEST = 80
"""Characters of a value in a message. Longer values are cut."""


class UserError(ValueError):
    """A mistake of the user. The message says what was given, what is expected, and where to set it."""


class ConfigError(UserError):
    """A setting that does not exist or has a wrong value."""


class StorageError(ConfigError):
    """The results folder cannot be used: locked by another process, another format, damaged, or the disk is full."""


def wrong(key: str, got: Any, expected: str, *, known: Iterable[str] = (), where: str = "") -> str:
    """The message about a wrong setting.

    Args:
        key: Name of the setting.
        got: Its value.
        expected: What is expected instead, without a full stop.
        known: Names among which the nearest to ``got`` is suggested.
        where: Where to set it: a file, or ``key=value`` on the command line.
    """
    text = f"{key}: got {shorten(got)}; expected {expected}.{nearest(str(got), known)}"
    return f"{text} Set it {where}." if where else text


def shorten(value: Any) -> str:
    """``repr(value)``, cut to `LONGEST` characters."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def nearest(name: str, allowed: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the name in ``allowed`` that is most like ``name``, or an empty string."""
    match = difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""


def format_validation_error(
    error: ValidationError, model: type[BaseModel], prefix: str = "", whole: str = "settings"
) -> str:
    """One sentence for each wrong key that pydantic found.

    Args:
        error: What pydantic raised.
        model: The model that was validated. Its keys are suggested for an unknown one.
        prefix: Written before each key.
        whole: What to call the settings if the error belongs to no single key.
    """
    lines = []
    for item in error.errors():
        key = prefix + ".".join(str(part) for part in item["loc"]) if item["loc"] else whole
        said = str(item["msg"]).removeprefix("Value error, ").rstrip(".")
        if item["type"] == "extra_forbidden":
            allowed = _keys_at(model, item["loc"][:-1])
            name = str(item["loc"][-1])
            there = ", ".join(allowed) or "none"
            lines.append(f"{key}: unknown key; expected one of: {there}.{nearest(name, allowed)}")
        elif item["type"] == "value_error":  # raised by a validator of ours, which names the key where it can
            lines.append(f"{said}." if said.startswith(key) else f"{key}: {said}.")
        elif item["type"] == "missing":
            lines.append(f"{key}: missing. {_sentence(said)}")
        else:
            lines.append(f"{key}: got {shorten(item['input'])}; {said[:1].lower()}{said[1:]}.")
    return " ".join(dict.fromkeys(lines))


def validate(model: type[Model], values: Mapping[str, Any], file: str) -> Model:
    """Settings of ``conf/<file>`` as a model; `ConfigError`, which names the key, if they do not fit."""
    group = file.partition("/")[0]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        message = format_validation_error(error, model, f"{group}.")
        raise ConfigError(f"{message} Set it in conf/{file} or with {group}.KEY=VALUE.") from error


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _keys_at(model: type[BaseModel], path: Iterable[str | int]) -> list[str]:
    """The keys of the model that ``path`` leads to; none if it leads to no model."""
    found: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, str):  # a number is a place in a list of such models
            field = found.model_fields.get(part) if found is not None else None
            found = _model_in(field.annotation) if field is not None else None
    return list(found.model_fields) if found is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The first pydantic model in an annotation like ``dict[str, Model]``, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)
