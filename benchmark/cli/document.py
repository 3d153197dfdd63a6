"""``python -m benchmark document``: write docs/methods.md, the table of methods, from their files, or check it."""

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import methods
from benchmark.cli.options import parse
from benchmark.config.compose import group_names, load_group
from benchmark.paths import ROOT
from benchmark.runs.files import write_with_folder

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
class PageOptions:
    """Options of a command that writes a page. None: its place in docs/."""

    out: Annotated[Path | None, "FILE"] = None


class Algorithm(NamedTuple):
    """A module of ``methods`` that holds an algorithm of its own: one line of the table."""

    name: str
    paper: str
    path: str
    changes: str
    configured: tuple[str, ...]
    checks: str


def main(words: Sequence[str]) -> int:
    """Write the page; ``check``: exit code 1 if it is out of date."""
    return page(words, "document", PAGE, lambda: HEADING + table(algorithms()) + "\n")


def page(words: Sequence[str], command: str, place: Path, content: Callable[[], str]) -> int:
    """The command ``COMMAND [check] [out=FILE]``: write a page, or check it; exit code 1 if it is outdated."""
    checking = bool(words) and words[0] == "check"
    path = parse(words[checking:], f"{command} [check]", PageOptions).out or place
    new = content().encode()
    if not checking:
        write_with_folder(path, new)
        print(path)
    elif not path.is_file() or path.read_bytes() != new:
        state = "out of date" if path.is_file() else "missing"
        print(f"{path}: {state}; write it with: python -m benchmark {command}", file=sys.stderr)
        return 1
    else:
        print(f"{path}: up to date")
    return 0


def table(found: Sequence[Algorithm]) -> str:
    """The Markdown of the table."""
    rows = [HEAD]
    for one in found:
        names = ", ".join(f"`{name}`" for name in one.configured)
        rows.append((one.name, one.paper, f"`{one.path}`", one.changes, names, one.checks))
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(HEAD) + "|", *lines[1:]])


def algorithms() -> list[Algorithm]:
    """All modules with registered rules and a paper; methods first, then selections, each by name."""
    names = [entry.name for entry in pkgutil.walk_packages(methods.__path__, "methods.") if not entry.ispkg]
    found = [one for name in names if (one := _algorithm(importlib.import_module(name))) is not None]
    return sorted(found, key=lambda one: ("selection" in one.path, one.name.lower()))


def _algorithm(module: ModuleType) -> Algorithm | None:
    from methods.core.rules import Rule

    classes = [item for item in vars(module).values() if inspect.isclass(item)]
    own = [item for item in classes if issubclass(item, Rule) and item.__module__ == module.__name__]
    rules = [item for item in own if not inspect.isabstract(item)]
    configured = tuple(_configured(module, {rule.key for rule in rules}))
    if not rules or not configured:
        return None
    text = module.__doc__ or ""
    name, _, title = text.strip().splitlines()[0].partition(":")
    title = (title or name).strip().rstrip(".")
    link = re.search(r"https://\S+[^\s,]", text)
    changes = dict.fromkeys((rule.__doc__ or "").strip().splitlines()[0] for rule in rules)
    return Algorithm(
        name,
        f"[{title}]({link[0]})" if link else title,
        Path(str(module.__file__)).relative_to(ROOT).as_posix(),
        " ".join(changes),
        configured,
        _checks(module, configured),
    )


def _configured(module: ModuleType, own: set[str]) -> list[str]:
    """Files of conf/method and conf/selection that are named after the module or use a rule of it and no other's."""
    if ".selection." in module.__name__:
        return [name for name in group_names("selection") if load_group("selection", name).get("name") in own]
    found = []
    for name in group_names("method"):
        used = _used(load_group("method", name))
        if name == _stem(module) or (used & own and used <= own | SHARED):
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
    names = "|".join(map(re.escape, {_stem(module), *configured}))
    stored = any(re.fullmatch(rf"({names})(_.*)?", path.stem) for path in GOLDEN.rglob("*.npz"))
    if ".selection." in module.__name__:
        return "golden" if stored else "by hand"
    return "golden, toy" if stored else "toy, by hand"


def _stem(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]
