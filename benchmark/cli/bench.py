"""``python -m benchmark bench``: speed and memory beside a bare PyTorch loop."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.cli.options import parse


@dataclass(frozen=True)
class BenchOptions:
    """There is nothing to choose."""


def main(words: Sequence[str]) -> int:
    """Print the measurements of `benchmark.bench.speed`; exit code 0."""
    parse(words, "bench", BenchOptions)
    from benchmark.bench import speed

    speed.main()
    return 0
