"""Finds rules by name: every module of the package ``methods`` registers its rules with a decorator.

A new algorithm is one new file; nothing else is edited. Two rules with the same name fail at import.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import methods
from benchmark.errors import validate, wrong
from methods.core.errors import MethodError
from methods.core.rules import Rule

R = TypeVar("R", bound=type[Rule])

SLOTS = ("client", "weights", "direction", "optimizer", "post", "prediction", "selection")

_rules: dict[str, dict[str, type[Rule]]] = {slot: {} for slot in SLOTS}


def register(slot: str, name: str) -> Callable[[R], R]:
    """Class decorator: make a rule available in ``slot`` under ``name``."""

    def decorate(cls: R) -> R:
        if name in _rules[slot]:
            raise RuntimeError(
                f"two {slot} rules are called {name!r}: {_rules[slot][name].__module__} and {cls.__module__}"
            )
        cls.key = name
        _rules[slot][name] = cls
        return cls

    return decorate


@cache
def _import_all() -> None:
    for module in pkgutil.walk_packages(methods.__path__, "methods."):
        importlib.import_module(module.name)


def names(slot: str) -> list[str]:
    """Sorted names of the rules registered in ``slot``."""
    _import_all()
    return sorted(_rules[slot])


def describe(slot: str, name: str) -> str:
    """First line of the docstring of a registered rule."""
    _import_all()
    return (_rules[slot][name].__doc__ or "").strip().splitlines()[0]


def make(slot: str, name: str, parameters: Mapping[str, Any], where: str) -> Any:
    """Build the rule ``name`` of ``slot`` with ``parameters``.

    ``where`` is the configuration path, for the message. Raises :class:`MethodError` for an unknown name, an
    unknown or missing parameter, or a value out of range.
    """
    _import_all()
    if name not in _rules[slot]:
        known = names(slot)
        raise MethodError(wrong(where, name, f"the name of a {slot} rule: {', '.join(known)}", known=known))
    return validate(_rules[slot][name], parameters, f"{where}.", where, kind=MethodError)
