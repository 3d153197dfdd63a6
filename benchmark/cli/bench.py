"""``python -m benchmark bench``: speed and memory; parts of it: ``scale``, ``transforms``, ``data``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmark.cli.arguments import positive, read
from benchmark.errors import ConfigError, nearest


def main(words: Sequence[str]) -> int:
    """Print speed and memory beside a bare PyTorch loop; or one of `PARTS`."""
    if words and "=" not in words[0]:
        if words[0] not in PARTS:
            raise ConfigError(
                f"bench: came {words[0]!r}.{nearest(words[0], PARTS)} Allowed: nothing, "
                "scale [runs=100000] [per_task=10], transforms [device=cpu|cuda], data [images=25000]."
            )
        PARTS[words[0]](words[1:])
        return 0
    from benchmark.bench.speed import main as speed

    read(words, {}, "bench")
    speed()
    return 0


def _scale(words: Sequence[str]) -> None:
    from benchmark.bench.scale import main as scale

    values = read(words, {"runs": "NUMBER", "per_task": "NUMBER"}, "bench scale")
    scale(positive(values, "runs") or 100_000, positive(values, "per_task") or 10)


def _transforms(words: Sequence[str]) -> None:
    from benchmark.bench.transforms import main as transforms

    device = read(words, {"device": "cpu|cuda"}, "bench transforms").get("device", "auto")
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device: came {device!r}. Allowed: cpu, cuda.")
    transforms(device)


def _data(words: Sequence[str]) -> None:
    from benchmark.bench.data import main as data

    data(positive(read(words, {"images": "NUMBER"}, "bench data"), "images") or 25_000)


PARTS: dict[str, Callable[[Sequence[str]], None]] = {
    "scale": _scale,
    "transforms": _transforms,
    "data": _data,
}
