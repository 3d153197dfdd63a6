"""``python -m benchmark bench``: speed and memory; ``bench scale``: what very many runs cost before they start."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.commands.arguments import positive, read
from benchmark.errors import ConfigError


def main(words: Sequence[str]) -> int:
    """Print speed and memory beside a bare PyTorch loop, or the costs of a plan of very many runs."""
    if words and "=" not in words[0]:
        if words[0] != "scale":
            raise ConfigError(
                f"bench: came {words[0]!r}. Allowed: nothing, or scale [runs=100000] [per_task=10]."
            )
        from benchmark.scale import main as scale

        values = read(words[1:], {"runs": "NUMBER", "per_task": "NUMBER"}, "bench scale")
        scale(positive(values, "runs") or 100_000, positive(values, "per_task") or 10)
        return 0
    from benchmark.bench import main as speed

    read(words, {}, "bench")
    speed()
    return 0
