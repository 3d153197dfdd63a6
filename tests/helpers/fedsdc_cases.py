"""The configuration that tests of FedSDC start from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmark.config.compose import load_group


def fedsdc(
    name: str = "fedsdc", prediction: Mapping[str, Any] | None = None, **client: Any
) -> dict[str, Any]:
    """conf/method/<name>.yaml with these values of the client rule and the prediction on top."""
    config = load_group("method", name)
    config["client"]["fedsdc"] |= client
    config["prediction"] |= prediction or {}
    return config
