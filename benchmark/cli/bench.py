"""``python -m benchmark bench``: speed and memory beside a bare PyTorch loop."""

import importlib
import tempfile
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from benchmark.cli.options import parse
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.selection import CommandOptions

PARTS = {
    "speed": "speed",
    "steps": "speed",
    "stack": "speed",
    "kernels": "kernels",
    "memory": "speed",
    "planning": "speed",
    "peers": "peers",
}
"""Part -> module of `benchmark.bench` that has a function of its name. ``peers`` is measured only if it is named."""


class BenchOptions(CommandOptions):
    """What is measured instead of the parts."""

    device: Literal["none", "cpu", "cuda"] = Field("none", description="the device whose suite is measured")
    size: Literal["full", "mini"] = Field("full", description="size of that suite; mini shows that it runs")


def main(words: Sequence[str]) -> int:
    """Print the measurements of the named parts, or of all, or the suite of a device; exit code 0."""
    parts = [word for word in words if "=" not in word and not word.startswith("-")]
    for part in parts:
        if part not in PARTS:
            raise ConfigError(wrong("bench", part, f"one of: {', '.join(PARTS)}", known=PARTS))
    options = parse([word for word in words if word not in parts], "bench", BenchOptions)
    has_suite = options.device != "none"
    if options.size == "mini" and not has_suite:
        raise ConfigError(wrong("size", "mini", "device=cpu or device=cuda beside it"))
    if parts and has_suite:
        raise ConfigError(wrong("bench", parts[0], f"no part beside device={options.device}"))
    from benchmark.bench import speed, suite

    print(speed.describe(options.device if has_suite else "cpu"), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if has_suite:
            suite.main(folder, options.device, options.size)
            return 0
        for part in parts or [part for part in PARTS if part != "peers"]:
            getattr(importlib.import_module(f"benchmark.bench.{PARTS[part]}"), part)(folder)
    return 0
