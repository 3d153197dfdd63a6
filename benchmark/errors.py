"""Errors for the user: their classes, and the one form of their messages.

Every message has the same shape: ``key: got VALUE; expected WHAT. Did you mean 'x'? Set it in FILE or with key=value.``
The command line prints it and exits with code 2. This module imports nothing of ours, and every package may import it.
"""

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")
Made = TypeVar("Made")

LONGEST = 80
"""Characters of a value in a message. Longer values are cut."""


class UserError(ValueError):
    """A mistake of the user. The message says what was given, what is expected, and where to set it."""


class ConfigError(UserError):
    """A setting that does not exist or has a wrong value."""


class StorageError(ConfigError):
    """The results folder cannot be used: another format, damaged, or the disk is full."""


class Stopped(KeyboardInterrupt):
    """A command was stopped. The message says where, unless that was said. The same command goes on."""


class NothingToDraw(UserError):
    """No run that a figure shows is done. It is left out, and the other figures are drawn."""


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


def usable(
    items: Iterable[Item], make: Callable[[Item], Made], needed: Callable[[Item], bool] = lambda item: False
) -> list[Made]:
    """What ``make`` makes of each item. A `UserError` is raised if the item is ``needed``, or if nothing is left.

    Otherwise it is printed as a warning.
    """
    made, errors = [], []
    for item in items:
        try:
            made.append(make(item))
        except UserError as error:
            if needed(item):
                raise
            errors.append(error)
    if errors and not made:
        raise errors[0]
    for why in errors:
        print(f"warning: left out: {why}", file=sys.stderr)
    return made


def shorten(value: Any) -> str:
    """``repr(value)``, cut to `LONGEST` characters."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def printable(text: str) -> str:
    """``text`` with a question mark for each character that a terminal would obey instead of showing it."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def nearest(name: str, allowed: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the name in ``allowed`` that is most like ``name``, or an empty string."""
    match = difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""


def validate(
    model: type[Model],
    values: Mapping[str, Any],
    prefix: str = "",
    whole: str = "settings",
    *,
    before: str = "",
    after: str = "",
    kind: type[Exception] = ConfigError,
) -> Model:
    """The values as a model; an error with one sentence for each wrong key if they do not fit.

    Args:
        model: Its keys are suggested for an unknown one.
        values: Plain values.
        prefix: Written before each key.
        whole: What to call the values if an error belongs to no single key.
        before: Written before the sentences.
        after: Written after them.
        kind: Class of the error.
    """
    try:
        return model.model_validate({str(key): value for key, value in values.items()})
    except ValidationError as error:
        found = error.errors()
        below = {item["loc"][:length] for item in found for length in range(len(item["loc"]))}
        items = [item for item in found if item["type"] != "too_short" or item["loc"] not in below]
        sentences = dict.fromkeys(_sentence(item, model, prefix, whole) for item in items)
        raise kind(f"{before}{' '.join(sentences)}{after}") from error


def ended(text: str) -> str:
    """A text with a full stop, unless it ends in a question."""
    return text if text.endswith("?") else f"{text}."


def _sentence(item: Mapping[str, Any], model: type[BaseModel], prefix: str, whole: str) -> str:
    """What is wrong about one key, from an item of pydantic's list of errors."""
    key = prefix + ".".join(str(part) for part in item["loc"]) if item["loc"] else whole
    said = str(item["msg"]).removeprefix("Value error, ").replace("valid tuple", "list").rstrip(".")
    said = re.sub(r"valid dictionary( or instance of \w+)?", "mapping", said)
    if item["type"] == "extra_forbidden":
        allowed = _keys_at(model, item["loc"][:-1])
        there = ", ".join(allowed) or "none"
        return f"{key}: unknown key; expected one of: {there}.{nearest(str(item['loc'][-1]), allowed)}"
    if item["type"] == "value_error":  # raised by a validator of ours, which names the key where it can
        return ended(said if said.startswith(key) else f"{key}: {said}")
    if item["type"] == "missing":
        return f"{key}: missing; it has no default."
    expected = said.removeprefix("Input should be ").partition(", unable to parse")[0]
    if expected == said:
        return f"{key}: got {shorten(item['input'])}; {said[:1].lower()}{said[1:]}."
    if expected.startswith(("greater", "less")):
        expected = f"a number {expected}"
    names = re.findall("'([^']*)'", expected) if item["type"] == "literal_error" else []
    return wrong(key, item["input"], expected, known=names)


def _keys_at(model: type[BaseModel], path: Iterable[str | int]) -> list[str]:
    """The keys of the model that ``path`` leads to; none if it leads to no model."""
    inner: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, str) and inner is not None:  # a number is a place in a list of such models
            inner = _model_in(inner.model_fields[part].annotation) if part in inner.model_fields else None
    return [] if inner is None else list(inner.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The first pydantic model in an annotation like ``dict[str, Model]``, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
