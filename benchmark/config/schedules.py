"""The client's learning rate as a pure function of the round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from benchmark.errors import ConfigError, nearest


def _constant(lr: float, rounds: int) -> Callable[[int], float]:
    return lambda t: lr


def _step(lr: float, rounds: int, *, every: int, gamma: float) -> Callable[[int], float]:
    return lambda t: lr * gamma ** (t // every)


def _exponential(lr: float, rounds: int, *, gamma: float) -> Callable[[int], float]:
    return lambda t: lr * gamma**t


def _cosine(lr: float, rounds: int, *, final: float = 0.0) -> Callable[[int], float]:
    return lambda t: lr * (final + (1 - final) * (1 + math.cos(math.pi * t / max(1, rounds))) / 2)


SCHEDULES: dict[str, tuple[Callable[..., Callable[[int], float]], tuple[str, ...]]] = {
    "constant": (_constant, ()),
    "step": (_step, ("every", "gamma")),
    "exponential": (_exponential, ("gamma",)),
    "cosine": (_cosine, ("final",)),
}


def learning_rate(lr: float, rounds: int, schedule: Mapping[str, Any]) -> Callable[[int], float]:
    """Rate of round t (from 0) for ``schedule`` = {name, parameters}.

    ``step`` multiplies by ``gamma`` after each ``every`` rounds, ``exponential`` by ``gamma`` after each round,
    ``cosine`` falls from lr to ``final`` * lr. Raises :class:`ConfigError` for an unknown name or wrong parameters.
    """
    name = str(schedule.get("name", "constant"))
    if name not in SCHEDULES:
        raise ConfigError(
            f"train.schedule.name: came {name!r}.{nearest(name, SCHEDULES)} Allowed: {', '.join(SCHEDULES)}."
        )
    make, allowed = SCHEDULES[name]
    given = {key: value for key, value in schedule.items() if key != "name"}
    for key, value in given.items():
        if key not in allowed:
            raise ConfigError(
                f"train.schedule.{key}: unknown parameter of {name}.{nearest(key, allowed)} "
                f"Allowed: {', '.join(allowed) or 'it has none'}."
            )
        if not isinstance(value, int | float) or value < 0 or (key == "every" and value < 1):
            raise ConfigError(f"train.schedule.{key}: came {value!r}; it must be a positive number.")
    missing = {"step": {"every", "gamma"}, "exponential": {"gamma"}}.get(name, set()) - set(given)
    if missing:
        raise ConfigError(f"train.schedule: {name} also needs {', '.join(sorted(missing))}.")
    return make(lr, rounds, **given)
