"""``python -m benchmark list``: the methods, data sets, tables ... that there are."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

from rich.table import Table as TextTable

from benchmark.config.compose import group_names, load_group
from benchmark.errors import ConfigError, UserError, wrong
from benchmark.experiments.figures import find_figures
from benchmark.experiments.tables import find_specs
from benchmark.papers.registry import ANALYSES
from benchmark.paths import conf_files
from benchmark.registry import broken_files
from benchmark.reports.render.console import TextConsole

KINDS = tuple("methods datasets partitions selections tables figures analyses models rules".split())


def described(group: str, name: str) -> str:
    """The comment at the top of a configuration file, as one line; `ConfigError` if the file is broken."""
    load_group(group, name)
    lines = []
    for line in conf_files(group)[name].read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @"):
            lines.append(line.lstrip("# "))
    return " ".join(lines)


def _text(describe: Callable[[], str]) -> str:
    """A description, or what is wrong with what it is about."""
    try:
        return describe()
    except UserError as error:
        return str(error)


def main(words: Sequence[str]) -> int:
    """Print what there is of the named kinds, or of all; exit code 0."""
    for word in words:
        if word not in KINDS:
            raise ConfigError(wrong("list", word, f"one of: {', '.join(KINDS)}", known=KINDS))
    console = TextConsole()
    for kind in words or KINDS:
        view = TextTable("name", "what it is", title=kind)
        for name, text in _entries(kind):
            view.add_row(name, text)
        console.print(view)
    return 0


def _entries(kind: str) -> list[tuple[str, str]]:
    if kind == "rules":
        from methods.core import method

        for text in broken_files("methods").values():
            print(f"warning: {text}", file=sys.stderr)
        return [
            (f"{slot}: {name}", _text(partial(method.describe, slot, name)))
            for slot in method.registered
            for name in method.names(slot)
        ]
    if kind == "tables":
        return [(spec.name, spec.title) for spec in find_specs()]
    if kind == "figures":
        return [(figure.name, figure.title) for figure in find_figures()]
    if kind == "analyses":
        return [(analysis.name, analysis.summary) for analysis in ANALYSES]
    group = kind.rstrip("s")
    return [(name, _text(partial(described, group, name))) for name in group_names(group)]
