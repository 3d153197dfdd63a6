"""``python -m benchmark bench``."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.commands.arguments import read


def main(words: Sequence[str]) -> int:
    """Print speed and memory beside a bare PyTorch loop."""
    from benchmark.bench import main as run

    read(words, {}, "bench")
    run()
    return 0
