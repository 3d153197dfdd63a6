"""``python -m benchmark bench``: speed and memory; parts of it: ``scale``, ``data``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmark.cli.options import parse
from benchmark.errors import ConfigError, wrong


@dataclass(frozen=True)
class SpeedOptions:
    """Speed and memory beside a bare PyTorch loop. There is nothing to choose."""


@dataclass(frozen=True)
class ScaleOptions:
    """What many runs cost before the first one starts: how many, and how many share a task of the cluster."""

    runs: int = 100_000
    per_task: int = 10


@dataclass(frozen=True)
class DataOptions:
    """A large data set of so many images."""

    images: int = 25_000


PARTS: dict[str, type] = {"scale": ScaleOptions, "data": DataOptions}


def main(words: Sequence[str]) -> int:
    """Print the measurements of `benchmark.bench.speed`, or of one of `PARTS`; exit code 0."""
    part = words[0] if words and "=" not in words[0] and not words[0].startswith("-") else "speed"
    if part != "speed" and part not in PARTS:
        raise ConfigError(wrong("bench", part, f"nothing, or one of: {', '.join(PARTS)}", known=PARTS))
    rest = words if part == "speed" else words[1:]
    options: Any = parse(rest, f"bench {part}", PARTS.get(part, SpeedOptions))
    import_module(f"benchmark.bench.{part}").main(**vars(options))
    return 0
