"""The client's learning rate as a pure function of the round."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from benchmark.errors import ConfigError, wrong


def _cosine(t: int, rounds: int, final: float = 0.0) -> float:
    return final + (1 - final) * (1 + math.cos(math.pi * t / max(1, rounds))) / 2


SCHEDULES: dict[str, tuple[tuple[str, ...], Callable[..., float]]] = {
    "constant": ((), lambda t, rounds: 1.0),
    "step": (("every", "gamma"), lambda t, rounds, every, gamma: gamma ** (t // every)),
    "exponential": (("gamma",), lambda t, rounds, gamma: gamma**t),
    "cosine": (("final",), _cosine),
}
"""Schedule -> (its parameters, the factor of the rate in round t). All parameters but ``final`` are required."""


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
    given = {key: value for key, value in schedule.items() if key != "name"}
    allowed, factor = SCHEDULES[name]
    for key, value in given.items():
        if key not in allowed:
            expected = f"one of {', '.join(allowed)}" if allowed else f"no parameters, as {name} has none"
            raise ConfigError(wrong("train.schedule", key, expected, known=allowed))
        if not isinstance(value, int | float) or value < 0 or (key == "every" and value < 1):
            raise ConfigError(wrong(f"train.schedule.{key}", value, "a positive number"))
    missing = [key for key in allowed if key not in given and key != "final"]
    if missing:
        raise ConfigError(f"train.schedule: {name} also needs {', '.join(missing)}.")
    return lambda t: lr * factor(t, rounds, **given)
