"""The client's learning rate as a pure function of the round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from benchmark.errors import ConfigError, wrong


def _constant(lr: float, rounds: int) -> Callable[[int], float]:
    return lambda t: lr


def _step(lr: float, rounds: int, *, every: int, gamma: float) -> Callable[[int], float]:
    return lambda t: lr * gamma ** (t // every)


def _exponential(lr: float, rounds: int, *, gamma: float) -> Callable[[int], float]:
    return lambda t: lr * gamma**t


def _cosine(lr: float, rounds: int, *, final: float = 0.0) -> Callable[[int], float]:
    return lambda t: lr * (final + (1 - final) * (1 + math.cos(math.pi * t / max(1, rounds))) / 2)


Make = Callable[..., Callable[[int], float]]
SCHEDULES: dict[str, tuple[Make, tuple[str, ...], tuple[str, ...]]] = {
    "constant": (_constant, (), ()),
    "step": (_step, ("every", "gamma"), ()),
    "exponential": (_exponential, ("gamma",), ()),
    "cosine": (_cosine, (), ("final",)),
}
"""Name -> function, required and optional parameters."""


def learning_rate(lr: float, rounds: int, schedule: Mapping[str, Any]) -> Callable[[int], float]:
    """Rate of round t (from 0) for ``schedule`` = {name, parameters}.

    ``step`` multiplies by ``gamma`` after each ``every`` rounds, ``exponential`` by ``gamma`` after each round,
    ``cosine`` falls from lr to ``final`` * lr. Raises :class:`ConfigError` for an unknown name or wrong parameters.
    """
    name = str(schedule.get("name", "constant"))
    if name not in SCHEDULES:
        raise ConfigError(
            wrong("train.schedule.name", name, f"one of {', '.join(SCHEDULES)}", known=SCHEDULES)
        )
    make, required, optional = SCHEDULES[name]
    given = {key: value for key, value in schedule.items() if key != "name"}
    allowed = (*required, *optional)
    for key, value in given.items():
        if key not in allowed:
            expected = f"one of {', '.join(allowed)}" if allowed else f"no parameters, as {name} has none"
            raise ConfigError(wrong("train.schedule", key, expected, known=allowed))
        if not isinstance(value, int | float) or value < 0 or (key == "every" and value < 1):
            raise ConfigError(wrong(f"train.schedule.{key}", value, "a positive number"))
    missing = [key for key in required if key not in given]
    if missing:
        raise ConfigError(f"train.schedule: {name} also needs {', '.join(missing)}.")
    return make(lr, rounds, **given)
