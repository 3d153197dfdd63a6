"""``python -m benchmark document``: write the pages of docs/reference from the code, or check them."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmark.cli.options import OutOption, parse
from benchmark.config.compose import group_names, load_group
from benchmark.paths import ROOT
from benchmark.registry import BrokenFile, broken_files
from benchmark.runs.files import write_with_folder

FOLDER = ROOT / "docs" / "reference"
FUNCTIONS = {
    "commands": "commands",
    "configuration": "configuration",
    "datasets": "choices",
    "hooks": "hooks",
}
"""Page -> its function in ``benchmark.cli.reference``."""

HEAD = ("method", "paper", "file in `methods/`", "what it changes", "in `conf/`")


class Algorithm(NamedTuple):
    """A file of ``methods`` or ``methods/selection``: one line of the table."""

    name: str
    paper: str
    path: str
    changes: str
    configured: tuple[str, ...]


def main(words: Sequence[str]) -> int:
    """Write the pages; ``check``: exit code 1 if one is out of date."""
    pages = {"methods": methods} | {page: partial(_made, name) for page, name in FUNCTIONS.items()}
    return write_pages(words, "document", FOLDER, pages)


def _made(function: str) -> str:
    from benchmark.cli import reference  # slow to import: with it PyTorch

    content: str = getattr(reference, function)()
    return content


def write_pages(
    words: Sequence[str], command: str, folder: Path, pages: Mapping[str, Callable[[], str]]
) -> int:
    """The command ``COMMAND [check] [out=FOLDER]``: write pages, or check them; exit code 1 if one is outdated."""
    checking = bool(words) and words[0] == "check"
    folder = parse(words[checking:], f"{command} [check]", OutOption).out or folder
    code = 0
    for name, content in pages.items():
        path, new = folder / f"{name}.md", content().encode()
        if not checking:
            write_with_folder(path, new)
            print(path)
        elif not path.is_file() or path.read_bytes() != new:
            state = "out of date" if path.is_file() else "missing"
            print(f"{path}: {state}; write it with: python -m benchmark {command}", file=sys.stderr)
            code = 1
        else:
            print(f"{path}: up to date")
    return code


def methods() -> str:
    """The page of methods: their papers and files, and the rules that they consist of."""
    from benchmark.cli import reference

    rows = [
        (
            one.name,
            one.paper,
            f"`{one.path.removeprefix('methods/')}`",
            one.changes,
            ", ".join(f"`{name}`" for name in one.configured),
        )
        for one in algorithms()
    ]
    return reference.page(
        "Methods",
        "Each method is one file. `tests/methods/` compares its code with stored outputs of public reference code, "
        "with its paper's update rule on quadratic clients whose optimum is known, or with values that were computed "
        "by hand.",
        reference.table(HEAD, rows),
        "## Rules",
        "A method is made of rules. A hyper-parameter is set with `method.client.RULE.KEY=VALUE`, "
        "`method.server.SLOT.KEY=VALUE` or `selection.KEY=VALUE`. One without a default has its value, and the "
        "source of it, in the method's file in `conf/method/`.",
        reference.rule_table(),
    )


def algorithms() -> list[Algorithm]:
    """The methods by name, then the selections. Raises `BrokenFile` if one cannot be imported."""
    for text in broken_files("methods").values():
        raise BrokenFile(text)
    rows: list[Algorithm] = []
    for package in ("methods", "methods.selection"):
        files = (ROOT / package.replace(".", "/")).glob("[!_]*.py")
        rows += sorted((_algorithm(package, path.stem) for path in files), key=lambda one: one.name.lower())
    return rows


def _algorithm(package: str, stem: str) -> Algorithm:
    from methods.core.rules import Rule

    module = importlib.import_module(f"{package}.{stem}")
    members = [item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__]
    rules = [item for item in members if inspect.isclass(item) and issubclass(item, Rule)]
    changes = [inspect.getdoc(rule) or "" for rule in rules if not inspect.isabstract(rule)]
    text = module.__doc__ or ""
    name, _, title = text.strip().splitlines()[0].rstrip(".").partition(": ")
    link = re.search(r"https://\S+[^\s,]", text)
    if package == "methods.selection":
        configured = [
            each for each in group_names("selection") if load_group("selection", each)["name"] == stem
        ]
    else:
        words = {stem, *re.findall(r"\w+", name.lower())}
        configured = [each for each in group_names("method") if words & _methods_in(each)]
    return Algorithm(
        name,
        f"[{title}]({link[0]})" if link else title,
        f"{package.replace('.', '/')}/{stem}.py",
        " ".join(dict.fromkeys(change.splitlines()[0] for change in changes)),
        tuple(configured),
    )


def _methods_in(name: str) -> set[str]:
    """The methods that the name of a file of conf/method consists of: fedavgm and fedprox of ``fedavgm+fedprox``."""
    return {part.partition("_")[0] for part in name.split("+")}
