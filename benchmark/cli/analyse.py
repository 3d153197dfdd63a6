"""``python -m benchmark analyse NAME key=value ...``: an analysis of a paper, printed and written to files."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.analyses.registry import find
from benchmark.cli.options import parse


def main(words: Sequence[str]) -> int:
    """Compute, print, write; exit code 0."""
    chosen = find(words[0] if words and "=" not in words[0] else "")
    out = ("out", Path | None, dataclasses.field(default=None))
    kind = dataclasses.make_dataclass("AnalyseOptions", [out], bases=(chosen.options,), frozen=True)
    options: Any = parse(words[1:], f"analyse {chosen.name}", kind)
    from benchmark.reports.render import terminal
    from benchmark.reports.write import write

    table = chosen.compute(options)
    print(terminal.render(table), end="")
    preset = getattr(options, "preset", "quick")
    print(write(table, options.out or options.results / "tables" / preset))
    return 0
