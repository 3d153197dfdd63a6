"""``python -m benchmark analyse NAME key=value ...``: an analysis of a paper, printed and written to files."""

from collections.abc import Sequence
from typing import Any

from benchmark.cli.options import OutOption, parse
from benchmark.papers.registry import find


def main(words: Sequence[str]) -> int:
    """Compute, print, write; exit code 0."""
    analysis = find(words[0] if words and "=" not in words[0] else "")
    kind: Any = type("AnalyseOptions", (OutOption, analysis.options), {})
    options = parse(words[1:], f"analyse {analysis.name}", kind)
    from benchmark.reports import write

    table = analysis.compute(options)
    write.show(table, with_notes=True)
    preset = getattr(options, "preset", "quick")
    print(write.write(table, options.out or options.results / "tables" / preset))
    return 0
