"""The hooks of a rule against those of its base class: their names, and the types of what they return."""

import functools
import inspect
import re
from collections.abc import Callable
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from torch import Tensor

from benchmark.errors import UserError, nearest, wrong
from methods.core.contexts import Batch, ClientContext, Loss, State

PLACES = {"ascend": 1, "broadcast": 0, "direction": 0, "step": 0, "apply": 0}
"""Hooks that return a vector [d], and the place of the argument [..., d] that it must fit."""

STATE = "dict of tensors, numbers, texts, and dicts and lists of them"


class MethodError(UserError):
    """A mistake in how a method is written, named, configured or combined; the message is meant for the user."""


def check_hooks(cls: type[BaseModel], vocabulary: str) -> None:
    """Refuse public names of a rule that are no hook, and check what its hooks return.

    The public names of the classes in the module ``vocabulary`` are the hooks.
    """
    names = {name for base in cls.__mro__[1:] for name in dir(base)}
    fields = cls.model_fields
    for name in [name for name in (*vars(cls), *fields) if not name.startswith("_")]:
        if name not in names and name not in fields:
            hooks = [hook for hook in sorted(names) if hook[0] != "_" and not hasattr(BaseModel, hook)]
            raise MethodError(
                f"{cls.__name__}.{name}: no such hook; expected one of {', '.join(hooks)}, or a name that begins "
                f"with an underscore.{nearest(name, hooks)}"
            )
        hooks_of = (vars(base) for base in cls.__mro__ if base.__module__ == vocabulary)
        hook = next(
            (hooks[name] for hooks in hooks_of if name in hooks and not hasattr(BaseModel, name)), None
        )
        override: Any = fields[name] if name in fields else vars(cls)[name]
        if hook is not None and inspect.isfunction(hook) != inspect.isfunction(override):
            expected = "a function" if inspect.isfunction(hook) else "a value or a property"
            raise MethodError(wrong(f"{cls.__name__}.{name}", override, expected))
        if inspect.isfunction(hook):
            _check_arguments(f"{cls.__name__}.{name}", override, hook)
            setattr(cls, name, checked(override, hook))


def _check_arguments(name: str, override: Callable[..., Any], hook: Callable[..., Any]) -> None:
    """Refuse a hook that cannot be called with the arguments of the one that it overrides."""
    arguments = inspect.signature(hook).parameters
    try:
        inspect.signature(override).bind(*arguments)
    except TypeError as error:
        given = ", ".join(inspect.signature(override).parameters)
        raise MethodError(f"{name}: takes ({given}); expected ({', '.join(arguments)}).") from error


def checked(hook: Callable[..., Any], base: Callable[..., Any]) -> Callable[..., Any]:
    """A rule's hook, which raises `MethodError` where it returns what its ``base``, the hook it overrides, does not."""
    hint, about = base.__annotations__["return"], (base.__doc__ or "").partition("\n")[0]
    quick = hint if isinstance(hint, type) else type(hint)  # of the hooks that are called in every step

    is_loss, place = base.__name__ == "loss", PLACES.get(base.__name__)

    @functools.wraps(hook)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        value = hook(self, *args, **kwargs)
        fault = "" if type(value) is quick else problem(value, hint)
        if fault:
            fault = f"{fault}; expected {words(hint)}"
        elif is_loss:
            fault = loss_problem(value, *args, **kwargs)
        elif place is not None:
            fault = vector_problem(value, args[place])
        if fault:
            where = f"{hook.__module__.replace('.', '/')}.py: {base.__name__} of rule {self.key!r}"
            raise MethodError(f"{where}: returned {fault}. {base.__name__}: {about}")
        return value

    return call


def loss_problem(loss: Loss, ctx: ClientContext, batch: Batch) -> str:
    """What is wrong with an extra loss: it is no scalar, or on another device than the batch; nothing if it fits."""
    extra = loss.extra
    if isinstance(extra, Tensor):
        if extra.ndim == 0 and extra.device == batch.y.device:
            return ""
        got = f"a tensor of shape {list(extra.shape)} on {extra.device}"
    elif isinstance(extra, int | float):
        return ""
    else:
        got = _named(extra)
    device = batch.y.device
    return f"Loss with extra: {got}; expected a number, or a tensor of shape [] on {device}, as .mean() gives"


def vector_problem(value: Tensor | tuple[Tensor, State] | None, model: Tensor) -> str:
    """What is wrong with a vector [d] beside ``model`` [..., d]: its length or its device; nothing if it fits."""
    vector = value[0] if isinstance(value, tuple) else value
    shape = model.shape[-1:]
    if vector is None or (vector.shape == shape and vector.device == model.device):
        return ""
    got = f"a tensor of shape {list(vector.shape)} on {vector.device}"
    return f"{got}; expected one of shape {list(shape)} on {model.device}"


def problem(value: Any, hint: Any) -> str:
    """What ``value`` is instead of a ``hint``; nothing if it is one."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is State:
        return _unsavable(value, "") if isinstance(value, dict) else _named(value)
    if origin is UnionType:
        faults = [problem(value, part) for part in parts]
        return faults[0] if all(faults) else ""
    if origin is tuple and isinstance(value, tuple):
        parts = parts[:1] * len(value) if parts[-1] is ... else parts
        if len(value) != len(parts):
            return _named(value)
        faults = [problem(item, part) for item, part in zip(value, parts, strict=True)]
        return next((f"tuple with item {n}: {text}" for n, text in enumerate(faults, 1) if text), "")
    if origin is dict and isinstance(value, dict):
        faults = [
            f"dict with [{key!r}]: {text}" for key, item in value.items() if (text := problem(item, parts[1]))
        ]
        return faults[0] if faults else ""
    fits = hint in (Any, bool) or (
        value is None if hint in (None, type(None)) else isinstance(value, origin or hint)
    )
    return "" if fits else _named(value)


def _unsavable(value: Any, place: str) -> str:
    """What in a state a checkpoint cannot store, with the path to it; nothing if there is nothing."""
    if isinstance(value, Tensor) or type(value) in (bool, int, float, str, type(None)):
        return ""
    if type(value) is dict:
        items = [(f"[{key!r}]", part) for key, item in value.items() for part in (key, item)]
    elif type(value) in (list, tuple):
        items = [(f"[{number}]", item) for number, item in enumerate(value)]
    else:
        return f"dict with {place}: {_named(value)}" if place else _named(value)
    return next((text for key, item in items if (text := _unsavable(item, place + key))), "")


def _named(value: Any) -> str:
    """The type of a value, item by item for a tuple."""
    if type(value) is tuple:
        return f"({', '.join(map(_named, value))})"
    return "None" if value is None else type(value).__name__


def words(hint: Any) -> str:
    """The type as the hook's signature writes it."""
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    return re.sub(r"\w+\.(?=\w)", "", text.replace(str(State), STATE))  # without the names of modules
