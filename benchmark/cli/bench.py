"""``python -m benchmark bench``: speed and memory; ``bench data``: a large data set."""

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
class DataOptions:
    """A large data set of so many images."""

    images: int = 25_000


PARTS: dict[str, type] = {"speed": SpeedOptions, "data": DataOptions}


def main(words: Sequence[str]) -> int:
    """Print the measurements of `benchmark.bench.speed`, or of another one of `PARTS`; exit code 0."""
    named = bool(words) and "=" not in words[0] and not words[0].startswith("-")
    part = words[0] if named else "speed"
    if part not in PARTS:
        raise ConfigError(wrong("bench", part, "nothing, or data", known=PARTS))
    options: Any = parse(words[named:], f"bench {part}", PARTS[part])
    import_module(f"benchmark.bench.{part}").main(**vars(options))
    return 0
