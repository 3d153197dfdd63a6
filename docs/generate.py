"""Pages of the documentation that are made from the code.

``python docs/generate.py`` writes docs/methods.md and the tables of docs/fidelity.md, docs/results.md and
results/leaderboard/README.md, which are in git. The site (``make docs``) has further pages, which mkdocs-gen-files
makes with this script: commands, configuration, data sets, hooks, and a page for each method.
"""

import contextlib
import importlib
import inspect
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel

from benchmark.__main__ import main
from benchmark.cli import COMMANDS
from benchmark.cli.options import accepts
from benchmark.config.compose import group_names, load_group
from benchmark.config.schema import IDENTITY, RunConfig, declared_settings
from benchmark.experiments import figures, parts, spec, tuning
from benchmark.experiments.metrics import METRICS
from benchmark.launch.settings import LocalSettings, SlurmSettings
from benchmark.models.networks import networks
from benchmark.papers import evidence
from benchmark.papers.ledger import EFFECTS, Value, load
from benchmark.paths import ROOT, conf_files
from benchmark.tracking import TrackingSettings
from datasets.core import registry as data_registry
from methods.core import rules
from partitions.core import registry as partition_registry

METHODS = """\
Each method is one file in `methods/`, or a selection of clients in `methods/selection/`. Its values, with their
sources, are in `conf/`. The site (`make docs`) has a page for each: equations, values, code."""


def page(*parts: str) -> str:
    """Paragraphs of Markdown."""
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    """A table of Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    cells = [[str(cell).replace("|", r"\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def documented(name: str, **options: object) -> str:
    """What mkdocstrings makes of an object's docstrings."""
    return f"::: {name}\n    options: {json.dumps(options)}"


def commands() -> str:
    """What each command prints with --help."""
    parts = ["# Commands", "`make help` lists the targets of make. Every command prints its options:"]
    for name in COMMANDS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([name, "--help"])
        parts += [f"## {name}", f"```text\n{printed.getvalue().partition('Groups:')[0].strip()}\n```"]
    return page(*parts)


def settings(*models: type[BaseModel], prefix: str = "") -> list[tuple[str, ...]]:
    """Key, values, default and meaning of each setting that schemas declare."""
    found = {}
    for key, field, schema in (each for model in models for each in declared_settings(model, prefix)):
        default = "" if field.is_required() or field.default == "" else f"`{json.dumps(field.default)}`"
        found[key] = (
            f"`{key}`",
            (field.title or accepts(schema)).replace("|", ", "),
            default,
            field.description or "",
        )
    return list(found.values())


def configuration() -> str:
    """The settings of runs, launchers and tracking, and the keys of the files in conf/."""
    sections = {
        "Runs": settings(RunConfig),
        "launcher=local": settings(LocalSettings, prefix="launcher."),
        "launcher=slurm": settings(SlurmSettings, prefix="launcher."),
        "tracking=wandb": settings(TrackingSettings, prefix="tracking."),
        "Files in conf/table": settings(spec.TableSpec),
        "Rows, columns and overrides of a table": settings(parts.Row, parts.Column, parts.Override),
        "Files in conf/figure": settings(figures.FigureSpec),
        "Files in conf/tune": settings(tuning.SearchGrid),
    }
    text = f"Runs that differ in {', '.join(IDENTITY)} or seed are others. The other keys change no result."
    sections_of = [
        part
        for title, lines in sections.items()
        for part in (f"## {title}", table(("key", "values", "default", "meaning"), lines))
    ]
    return page("# Configuration", text, *sections_of)


def choices() -> str:
    """Data sets, partitions and models: the files of conf/, and the parameters of what they name."""
    kinds: dict[str, Callable[[str], type[BaseModel]]] = {
        "dataset": lambda name: data_registry.get(name).options,
        "partition": partition_registry.get,
        "model": lambda name: networks.get("model.name", name),
    }
    parts = ["# Data sets, partitions, models"]
    for group, model in kinds.items():
        lines = []
        for name in group_names(group):
            text = conf_files(group)[name].read_text(encoding="utf-8").splitlines()
            about = " ".join(line.lstrip("# ") for line in text if line.startswith("# ") and "@" not in line)
            schema = model(load_group(group, name)["name"]).model_json_schema().get("properties", {})
            options = (f"`{key}`: {accepts(part)}" for key, part in schema.items())
            lines.append((f"`{name}`", about, "<br>".join(options)))
        parts += [f"## {group.capitalize()}", table([f"`{group}=`", "what it is", "options"], lines)]
    return page(*parts)


class Algorithm(NamedTuple):
    """A file of methods/, and the files of a group of conf/ that use it."""

    path: Path
    title: str
    paper: str
    changes: str
    rules: list[type[rules.Rule]]
    group: str
    files: list[str]


@cache
def algorithms() -> list[Algorithm]:
    """Methods by name, then selections."""
    paths = [*(ROOT / "methods").glob("[!_]*.py"), *(ROOT / "methods" / "selection").glob("[!_]*.py")]
    return sorted(map(_read, paths), key=lambda one: (one.group, one.title.lower()))


def _read(path: Path) -> Algorithm:
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    classes = [item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__]
    kinds = [item for item in classes if inspect.isclass(item) and issubclass(item, rules.Rule)]
    own = [rule for rule in kinds if not inspect.isabstract(rule)]
    changes = " ".join(dict.fromkeys((inspect.getdoc(rule) or "").splitlines()[0] for rule in own))
    title, _, paper = (module.__doc__ or "").splitlines()[0].rstrip(".").partition(": ")
    link = re.search(r"https://\S+[^\s,]", module.__doc__ or "")
    group = "selection" if path.parent.name == "selection" else "method"
    if group == "selection":
        files = [file for file in group_names(group) if load_group(group, file)["name"] == path.stem]
    else:  # fedavgm+fedprox is of fedavgm and of fedprox, fedmr_intra of fedmr
        words = {path.stem, *re.findall(r"\w+", title.lower())}
        parts = {file: {part.partition("_")[0] for part in file.split("+")} for file in group_names(group)}
        files = [file for file in parts if words & {file, *parts[file]}]
    return Algorithm(path, title, f"[{paper}]({link[0]})" if link else paper, changes, own, group, files)


def methods(linked: bool = False) -> str:
    """The table of all methods; in the site each is a link to its page."""
    lines = []
    for one in algorithms():
        name = f"[{one.title}](methods/{one.path.stem}.md)" if linked else one.title
        lines.append((name, one.paper, one.changes, ", ".join(f"`{file}`" for file in one.files)))
    head = ("method", "paper", "what it changes", "in `conf/`")
    return page("# Methods", "<!-- Written by docs/generate.py -->", METHODS, table(head, lines))


def method_page(one: Algorithm) -> str:
    """Equations, values, differences of paper and code, and the code of one method."""
    path, module = one.path.relative_to(ROOT), one.rules[0].__module__
    parts = [f"# {one.title}", f"{one.changes} Paper: {one.paper}. Code: `{path}`."]
    parts += [documented(module, members=False, show_root_heading=False), "## Values"]
    for file in one.files:
        text = conf_files(one.group)[file].read_text(encoding="utf-8").strip()
        parts.append(f"`{one.group}={file}`:\n\n```yaml\n{text}\n```")
    parts.append("## Where paper and code differ")
    for paper, entry in [(chapter.paper, entry) for chapter in load() for entry in chapter.entries]:
        other = entry.base.selection or entry.base.method
        named = re.search(rf"\b{re.escape(one.title)}(?!\w)", entry.title)
        if other in one.files or named or (other is None and paper == one.path.stem):
            lines = [f"- Paper: {entry.paper}", f"- Code: {entry.code}", f"- Here: {entry.default}"]
            switches = [f"- Switch: `{key}`: `{json.dumps(tried)}`" for key, tried in entry.switch.items()]
            parts += [f"**{entry.title}**", "\n".join(lines + switches)]
    parts += ["[Fidelity](../fidelity.md) lists all differences and measured effects.", "## Code"]
    parts += [documented(f"{module}.{rule.__name__}", show_source=True) for rule in one.rules]
    return page(*parts)


def fidelity() -> str:
    """docs/fidelity.md: its introduction as it is there, and a table of the ledger for each paper."""
    text = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    effects = pd.concat(map(pd.read_csv, sorted(EFFECTS.glob("switches_*.csv")))).dropna(
        subset=["difference"]
    )
    parts = [text.partition("\n## ")[0].strip()]
    for chapter in load():
        code = [
            f"[{at.repository}](https://github.com/{at.repository}) ({at.commit})" for at in chapter.sources
        ]
        lines = []
        for entry in chapter.entries:
            switches = (f"`{key}`: {', '.join(map(_yaml, tried))}" for key, tried in entry.switch.items())
            measured = [_effect(line) for _, line in effects[effects["row"] == entry.id].iterrows()]
            about = f'<a id="{entry.id}"></a>{entry.title}', entry.paper, entry.code, entry.default
            lines.append((*about, "<br>".join(switches), "<br>".join(measured)))
        head = ("about", "paper", "authors' code", "here", "switch", "effect")
        parts += [f"## {chapter.title}", f"Code that was read: {', '.join(code)}.", table(head, lines)]
    return page(*parts)


def _yaml(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _effect(line: "pd.Series[Any]") -> str:
    """``+2.12 [0.50, 3.74] points``: the metric with the switch minus the metric without it, and its 95 % interval."""
    unit = METRICS[line["metric"]].unit.replace("%", " points")
    return "{difference:+.2f} [{difference_low:.2f}, {difference_high:.2f}]".format(**line) + unit


def pages() -> dict[str, str]:
    """The pages of the site that are not in git, and docs/methods.md with links, by the names of their files."""
    found = {"reference/commands.md": commands(), "reference/configuration.md": configuration()}
    found |= {"reference/datasets.md": choices(), "methods.md": methods(True)}
    bases = [f"methods.core.rules.{base.__name__}" for base in rules.SLOTS.values()]
    text = "A rule overrides hooks of its slot's class. A hook that is left out makes FedAvg."
    found["reference/hooks.md"] = page("# Hooks", text, *map(documented, [*bases, "methods.core.contexts"]))
    found["reference/python.md"] = page("# Python interface", documented("benchmark.api"))
    for one in algorithms():
        found[f"methods/{one.path.stem}.md"] = method_page(one)
    return found


if __name__ == "__main__":
    texts = {"methods": methods(), "fidelity": fidelity(), "results": evidence.results()}
    pages_in_git = {ROOT / "docs" / f"{name}.md": text for name, text in texts.items()}
    for path, text in (pages_in_git | {evidence.LEADERBOARD: evidence.leaderboard()}).items():
        path.write_text(text, encoding="utf-8")
    evidence.draw()
elif __name__ == "<run_path>":  # mkdocs-gen-files
    import mkdocs_gen_files

    for name, text in pages().items():
        with mkdocs_gen_files.open(name, "w") as file:
            file.write(text)
