"""Learning rates over rounds, and mistakes in their settings."""

from __future__ import annotations

from typing import Any

import pytest

from benchmark.config.schedules import learning_rate
from benchmark.errors import ConfigError


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ({}, [0.8, 0.8, 0.8, 0.8, 0.8]),
        ({"name": "constant"}, [0.8, 0.8, 0.8, 0.8, 0.8]),
        ({"name": "step", "every": 2, "gamma": 0.5}, [0.8, 0.8, 0.4, 0.4, 0.2]),
        ({"name": "exponential", "gamma": 0.5}, [0.8, 0.4, 0.2, 0.1, 0.05]),
        ({"name": "cosine"}, [0.8, 0.4 + 0.2 * 2**0.5, 0.4, 0.4 - 0.2 * 2**0.5, 0.0]),
        ({"name": "cosine", "final": 0.5}, [0.8, 0.6 + 0.1 * 2**0.5, 0.6, 0.6 - 0.1 * 2**0.5, 0.4]),
    ],
)
def test_schedules(schedule: dict[str, Any], rates: list[float]) -> None:
    rate = learning_rate(0.8, 4, schedule)
    assert [rate(t) for t in range(5)] == pytest.approx(rates, abs=1e-15)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"name": "cosin"}, r"train\.schedule\.name: got 'cosin'.*constant.*'cosine'\?"),
        ({"name": "step", "every": 2}, r"train\.schedule: step also needs gamma"),
        ({"name": "step", "every": 0, "gamma": 0.5}, r"train\.schedule\.every: got 0"),
        ({"name": "exponential", "gama": 0.5}, r"train\.schedule: got 'gama'.*'gamma'\?"),
        ({"name": "exponential", "gamma": -1}, r"train\.schedule\.gamma: got -1"),
        ({"name": "constant", "gamma": 1}, r"train\.schedule: got 'gamma'"),
    ],
)
def test_schedule_mistakes(schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        learning_rate(0.8, 4, schedule)
