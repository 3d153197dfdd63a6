"""``python -m benchmark document``: write docs/methods.md, the table of methods, from their files, or check it."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from benchmark.cli.options import parse
from benchmark.config.compose import group_names, load_group
from benchmark.paths import ROOT
from benchmark.registry import BrokenFile, broken_files
from benchmark.runs.files import write_with_folder

PAGE = ROOT / "docs" / "methods.md"
HEADING = """# Methods

<!-- Written by: python -m benchmark document -->

Each method is one file. `tests/methods/` compares its code with stored outputs of public reference code, with its
paper's update rule on quadratic clients whose optimum is known, or with values that were computed by hand.

A new method is one Python file and one YAML file: see [CONTRIBUTING.md](../CONTRIBUTING.md).

"""
HEAD = ("method", "paper", "file", "what it changes", "in `conf/`")


@dataclass(frozen=True)
class PageOptions:
    """Options of a command that writes a page. None: its place in docs/."""

    out: Annotated[Path | None, "FILE"] = None


class Algorithm(NamedTuple):
    """A file of ``methods`` or ``methods/selection``: one line of the table."""

    name: str
    paper: str
    path: str
    changes: str
    configured: tuple[str, ...]


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
        rows.append((one.name, one.paper, f"`{one.path}`", one.changes, names))
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(HEAD) + "|", *lines[1:]])


def algorithms() -> list[Algorithm]:
    """The methods by name, then the selections. Raises `BrokenFile` if one cannot be imported."""
    for text in broken_files("methods").values():
        raise BrokenFile(text)
    found: list[Algorithm] = []
    for package in ("methods", "methods.selection"):
        files = (ROOT / package.replace(".", "/")).glob("[!_]*.py")
        found += sorted((_algorithm(package, path.stem) for path in files), key=lambda one: one.name.lower())
    return found


def _algorithm(package: str, stem: str) -> Algorithm:
    from methods.core.rules import Rule

    module = importlib.import_module(f"{package}.{stem}")
    own = [item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__]
    rules = [item for item in own if inspect.isclass(item) and issubclass(item, Rule)]
    changes = [inspect.getdoc(rule) or "" for rule in rules if not inspect.isabstract(rule)]
    text = module.__doc__ or ""
    name, _, title = text.strip().splitlines()[0].rstrip(".").partition(": ")
    link = re.search(r"https://\S+[^\s,]", text)
    if package == "methods.selection":
        chosen = [each for each in group_names("selection") if load_group("selection", each)["name"] == stem]
    else:
        words = {stem, *re.findall(r"\w+", name.lower())}
        chosen = [each for each in group_names("method") if words & _methods_in(each)]
    return Algorithm(
        name,
        f"[{title}]({link[0]})" if link else title,
        f"{package.replace('.', '/')}/{stem}.py",
        " ".join(dict.fromkeys(change.splitlines()[0] for change in changes)),
        tuple(chosen),
    )


def _methods_in(name: str) -> set[str]:
    """The methods that the name of a file of conf/method consists of: fedavgm and fedprox of ``fedavgm+fedprox``."""
    return {part.partition("_")[0] for part in name.split("+")}
