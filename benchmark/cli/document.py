"""``python -m benchmark document``: write docs/methods.md, the table of methods, from their files, or check it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import methods
from benchmark.cli.options import parse
from benchmark.config.compose import group_names, load_group
from benchmark.paths import ROOT
from benchmark.runs.files import write_atomically
from methods.core.rules import Rule

PAGE = ROOT / "docs" / "methods.md"
GOLDEN = ROOT / "tests" / "golden"
HEADING = """# Methods

<!-- Written by: python -m benchmark document -->

Each method is one file. The last column says how its code is checked:

- *golden*: compared with stored outputs of public reference code.
- *toy*: compared with its paper's update rule on quadratic clients whose optimum is known, with full and partial
  participation, with and without momentum (`tests/methods/test_toy.py`).
- *by hand*: compared with values that were computed by hand.

A new method is one Python file and one YAML file: see [CONTRIBUTING.md](../CONTRIBUTING.md).

"""
HEAD = ("method", "paper", "file", "what it changes", "in `conf/`", "checked against")


@dataclass(frozen=True)
class DocumentOptions:
    """Options of the command."""

    out: Annotated[Path, "FILE"] = PAGE


class Algorithm(NamedTuple):
    """A module of ``methods`` that holds an algorithm of its own: one line of the table."""

    name: str
    title: str
    link: str
    path: str
    changes: tuple[str, ...]
    configured: tuple[str, ...]
    checks: str


def main(words: Sequence[str]) -> int:
    """Write the page; ``check``: exit code 1 if it is out of date."""
    checking = bool(words) and words[0] == "check"
    path = parse(words[checking:], "document [check]", DocumentOptions).out
    new = HEADING + table(algorithms()) + "\n"
    if not checking:
        write_atomically(path, new.encode())
        print(path)
    elif not path.exists() or path.read_text(encoding="utf-8") != new:
        print(f"{path}: out of date; write it with: python -m benchmark document", file=sys.stderr)
        return 1
    return 0


def table(found: Sequence[Algorithm]) -> str:
    """The Markdown of the table."""
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for one in found:
        paper = f"[{one.title}]({one.link})" if one.link else one.title
        names = ", ".join(f"`{name}`" for name in one.configured)
        cells = (one.name, paper, f"`{one.path}`", " ".join(one.changes), names, one.checks)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def algorithms() -> list[Algorithm]:
    """All modules with registered rules and a paper; methods first, then selections, each by name."""
    found = [one for module in _modules() if (one := _algorithm(module)) is not None]
    return sorted(found, key=lambda one: ("selection" in one.path, one.name.lower()))


def _modules() -> Iterator[ModuleType]:
    for module in pkgutil.walk_packages(methods.__path__, "methods."):
        if not module.ispkg:
            yield importlib.import_module(module.name)


def _algorithm(module: ModuleType) -> Algorithm | None:
    rules = [
        item
        for item in vars(module).values()
        if inspect.isclass(item)
        and issubclass(item, Rule)
        and item.key
        and item.__module__ == module.__name__
    ]
    text = module.__doc__ or ""
    configured = tuple(_configured(module, rules))
    if not rules or not configured:
        return None
    name, _, title = text.strip().splitlines()[0].partition(":")
    link = re.search(r"https://\S+", text)
    path = Path(str(module.__file__)).relative_to(ROOT).as_posix()
    changes = tuple(dict.fromkeys((rule.__doc__ or "").strip().splitlines()[0] for rule in rules))
    return Algorithm(
        name, (title or name).strip().rstrip("."), link[0].rstrip(",") if link else "", path, changes, configured,
        _checks(module, configured),
    )  # fmt: skip


def _configured(module: ModuleType, rules: Sequence[type[Rule]]) -> list[str]:
    """Files of conf/method and conf/selection that are named after the module or use a rule of it and no other's."""
    stem, own = module.__name__.rpartition(".")[2], {rule.key for rule in rules}
    if ".selection." in module.__name__:
        return [n for n in group_names("selection") if load_group("selection", n).get("name") in own]
    found = []
    for name in group_names("method"):
        used = _used(load_group("method", name))
        if name == stem or (used & own and used <= own | SHARED):
            found.append(name)
    return found


SHARED = frozenset({"personal", "global", "size", "uniform", "mean", "add", "none", "momentum", "drift"})
"""Rules that do not make a method: neutral ones, and those that several methods share."""


def _used(config: Mapping[str, Any]) -> set[str]:
    """Keys of all rules of a method's configuration that are not shared."""
    slots = [*(config.get("server") or {}).values(), config.get("prediction") or {}]
    return ({*(config.get("client") or {})} | {str(slot.get("name")) for slot in slots}) - SHARED


def _checks(module: ModuleType, configured: Sequence[str]) -> str:
    """golden: outputs of public code are stored for it; toy: quadratic clients (test_toy.py); by hand otherwise."""
    stem = module.__name__.rpartition(".")[2]
    stored = [
        path.stem
        for path in sorted(GOLDEN.rglob("*.npz"))
        if any(re.fullmatch(rf"{re.escape(name)}(_.*)?", path.stem) for name in {stem, *configured})
    ]
    if ".selection." in module.__name__:
        return "golden" if stored else "by hand"
    return "golden, toy" if stored else "toy, by hand"
