"""Pages of docs/reference, made from the code: commands, keys of the configuration, data sets, methods and hooks."""

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

import datasets
from benchmark.cli import COMMANDS, entry
from benchmark.cli.list import described
from benchmark.cli.options import LaunchOptions, Word, accepts, words_of
from benchmark.cli.run import USAGE
from benchmark.config.compose import group_names, load_group
from benchmark.config.files import FileModel
from benchmark.config.schema import IDENTITY, RunConfig, declared_settings
from benchmark.experiments.figures import FigureSpec
from benchmark.experiments.selection import CommandOptions, TableQuery
from benchmark.experiments.spec import Column, Override, Row, TableSpec, WithSettings
from benchmark.experiments.tuning import SearchGrid
from benchmark.launch.settings import LocalSettings, SlurmSettings
from benchmark.models.base import networks
from benchmark.models.networks import model_names
from benchmark.papers.registry import ANALYSES
from benchmark.paths import ROOT
from benchmark.registry import BrokenFile, broken_files
from benchmark.reports.render.markdown import pipe_row
from benchmark.tracking import TrackingSettings
from datasets.core import registry as data_registry
from methods.core import method, rules
from partitions.core import registry as partition_registry

WRITTEN = "<!-- Written by: python -m benchmark document -->"
SHARED: Mapping[type[CommandOptions], str] = {
    TableQuery: "Options that select tables",
    LaunchOptions: "Options of launches",
}
"""Options that several commands take, and the title of their table."""

GROUPS_OF_COMMANDS: Mapping[str, type[BaseModel]] = {
    "launcher=local": LocalSettings,
    "launcher=slurm": SlurmSettings,
    "tracking=wandb": TrackingSettings,
}
"""What is set beside a command, ``launcher.KEY=VALUE``, by the choice that has it."""

SETTING_HEAD = ("key", "type", "default", "meaning")


def pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    return {
        "methods.md": methods(),
        "commands.md": commands(),
        "configuration.md": configuration(),
        "tables.md": files(),
        "datasets.md": choices(),
        "hooks.md": hooks(),
    }


def page(title: str, *parts: str) -> str:
    """A page that the command ``document`` writes."""
    return "\n\n".join([f"# {title}", WRITTEN, *parts]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return "\n".join(map(pipe_row, [head, ["---"] * len(head), *lines]))


# Commands ----------------------------------------------------------------------------------------


def commands() -> str:
    """What each command does, and its options."""
    parts = [
        "A command followed by `--help` prints its options on a terminal. `key=` without a value is "
        "ignored. Targets of make and their variables: `make help`."
    ]
    for name, (text, words) in COMMANDS.items():
        parts += [f"## {name}", f"{text[0].upper()}{text[1:]}.", *([f"`{name} {words}`"] if words else [])]
        parts += _options(name)
    parts += ["## Options of several commands"]
    for kind, title in SHARED.items():
        parts += [f"### {title}", option_table(words_of(kind))]
    return page("Commands", *parts)


def options_of(command: str) -> type[CommandOptions] | None:
    """The class of a command's options; None if it reads its words in another way."""
    return getattr(sys.modules[entry(command).__module__], f"{command.title()}Options", None)


def _options(command: str) -> Iterator[str]:
    """The options of a command: a table of those that are its own, and links to the others."""
    if command == "run":
        yield f"```text\n{USAGE.partition('Groups:')[0].strip()}\n```"
    if command == "analyse":
        yield "`analyse NAME --help` says what the options mean."
        rows = [
            (
                f"`{analysis.name}`",
                analysis.summary,
                ", ".join(f"`{key}`" for key in words_of(analysis.options)),
            )
            for analysis in ANALYSES
        ]
        yield table(["analysis", "what it is", "options"], rows)
    kind = options_of(command)
    if kind is None:
        return
    options, links = words_of(kind), list[str]()
    for shared, title in SHARED.items():
        if issubclass(kind, shared):
            common = words_of(shared)
            without = "".join(f" (without `{key}`)" for key in common if key not in options)
            links.append(f"[{title[0].lower()}{title[1:]}](#{title.lower().replace(' ', '-')}){without}")
            options = {key: word for key, word in options.items() if common.get(key) != word}
    if links:
        yield f"Takes {' and '.join(links)}."
    if options:
        yield option_table(options)


def option_table(words: Mapping[str, Word]) -> str:
    """Options with their defaults and meanings."""
    rows = []
    for key, word in words.items():
        default = f"`{word.default}`" if word.default else ""
        rows.append((f"`{key}`", _code(word.accepts), default, word.meaning))
    return table(["option", "values", "default", "meaning"], rows)


# Keys of the configuration -----------------------------------------------------------------------


def configuration() -> str:
    """Every key of a run's configuration, of the launchers and of tracking."""
    rows = list(setting_rows(RunConfig))
    hashed = [row for row in rows if row[0].strip("`").partition(".")[0] in IDENTITY]
    parts = [
        "`python -m benchmark run KEY=VALUE` sets these keys, and so do presets and tables. A preset has other "
        "defaults. The further keys of a data set, a partition or a model are those of the chosen file: "
        "[data sets, partitions and models](datasets.md). A method consists of [rules](methods.md#rules). "
        "`python -m benchmark run --help` prints the whole configuration as YAML, and `run --cfg job` and `show` print "
        "what set each value.",
        "## Keys that make another run",
        "Their values are part of a run's hash.",
        table(SETTING_HEAD, hashed),
        "## Keys that do not",
        table(SETTING_HEAD, [row for row in rows if row not in hashed]),
    ]
    for choice, model in GROUPS_OF_COMMANDS.items():
        group, _, name = choice.partition("=")
        rows = [row for row in setting_rows(model, f"{group}.") if row[0] != f"`{group}.name`"]
        parts += [f"## {choice}", described(group, name), table(SETTING_HEAD, rows)]
    return page("Configuration", *parts)


def setting_rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and meaning of every setting that a schema declares."""
    for key, field, schema in declared_settings(model, prefix):
        default = "" if field.is_required() or field.default == "" else f"`{as_yaml(field.default)}`"
        yield f"`{key}`", _code(field.title or accepts(schema)), default, field.description or ""


# Keys of table, figure and tune files ------------------------------------------------------------

EXAMPLES: Mapping[type[FileModel], tuple[str, str]] = {
    TableSpec: ("A table", "docs/template/conf/table/squeezing.yaml"),
    FigureSpec: ("A figure", "conf/figure/fedmr_figure4.yaml"),
    SearchGrid: ("A grid of `tune`", "conf/tune/fedmr.yaml"),
}
"""What a file describes, and a complete example."""

PARTS: Mapping[str, type[FileModel]] = {"rows": Row, "columns": Column, "overrides": Override}


def files() -> str:
    """Every key of the files in conf/table, conf/figure and conf/tune."""
    parts = [
        "A file whose key is misspelt, or whose value does not fit, is refused with a message that names file and "
        "key. `null` and `[]` stand for nothing. [Your table](../tutorials/table.md) shows how a table is made."
    ]
    for model, (title, example) in EXAMPLES.items():
        folder = Path(example).parent.name
        parts += [f"## {title}: `conf/{folder}/`", prose(inspect.getdoc(model) or "")]
        parts.append(table(SETTING_HEAD, setting_rows(model)))
        for key, part in PARTS.items() if model is TableSpec else ():
            rows = [row for row in setting_rows(part) if row[0].strip("`") in part.__annotations__]
            parts += [
                f"### An entry of `{key}`",
                prose(inspect.getdoc(part) or ""),
                table(SETTING_HEAD, rows),
            ]
        if model is TableSpec:
            parts += [
                "### Settings of rows, columns and overrides",
                prose(inspect.getdoc(WithSettings) or ""),
            ]
            parts.append(table(SETTING_HEAD, setting_rows(WithSettings)))
        parts += [f"Example, `{example}`:", f"```yaml\n{(ROOT / example).read_text().strip()}\n```"]
    return page("Tables, figures, grids", *parts)


def _code(values: str) -> str:
    """``a|b`` as `a`, `b`; other words as they are."""
    words = values.split("|")
    return (
        values
        if len(words) == 1
        else ", ".join(f"`{word}`" if re.fullmatch("[a-z0-9_]+", word) else word for word in words)
    )


def fields(model: type[BaseModel]) -> str:
    """The parameters of a pydantic model, one per line of a table's cell."""
    schema = model.model_json_schema()
    shown = []
    for name, part in schema.get("properties", {}).items():
        default = f" (default {as_yaml(part['default'])})" if part.get("default", "") != "" else ""
        shown.append(f"`{name}`: {_code(accepts(part))}{default}")
    return "<br>".join(shown)


def as_yaml(value: Any) -> str:
    """A value on one line."""
    return json.dumps(value).strip('"')


# Data sets, partitions, models -------------------------------------------------------------------


def choices() -> str:
    """The files of conf/dataset, conf/partition and conf/model, and the parameters of what they name."""
    parts = [
        "`python -m benchmark list datasets|partitions|models` prints the files of `conf/` on a terminal."
    ]
    builders = {name: data_registry.get(name).options for name in datasets.names()}
    schemes = {name: partition_registry.get(name) for name in partition_registry.names()}
    models = {name: networks[name] for name in model_names()}
    kinds: list[tuple[str, str, str, Mapping[str, type[BaseModel]]]] = [
        ("Data sets", "dataset", "dataset.options.KEY", builders),
        ("Partitions", "partition", "partition.KEY", schemes),
        ("Models", "model", "model.KEY", models),
    ]
    for title, group, key, models_of in kinds:
        rows = [(f"`{name}`", described(group, name)) for name in group_names(group)]
        parts += [f"## {title}", table([f"`{group}=`", "what it is"], rows)]
        parts.append(f"Parameters, set with `{key}=VALUE`, by `{group}.name`:")
        parts.append(
            table(["name", "parameters"], [(f"`{name}`", fields(model)) for name, model in models_of.items()])
        )
    return page("Data sets, partitions, models", *parts)


# Methods -----------------------------------------------------------------------------------------


class Algorithm(NamedTuple):
    """A file of ``methods/``: name and paper, what its rules change, and the files of ``conf`` that use it."""

    name: str
    paper: str
    file: str
    changes: str
    files: list[str]


def methods() -> str:
    """The methods with their papers and pages, and the rules that they consist of."""
    index = [
        (f"[{one.name}](methods/{Path(one.file).stem}.md)", one.paper, one.changes, quoted(one.files))
        for one in algorithms()
    ]
    return page(
        "Methods",
        "Each method is one file and has a page: equations, values, where paper and code differ, results beside FedAvg "
        "and costs. `tests/methods/` compares its code with stored outputs of public reference code, "
        "with its paper's update rule on quadratic clients whose optimum is known, or with values that were computed "
        "by hand.",
        table(["method", "paper", "what it changes", "in `conf/`"], index),
        "## Rules",
        "A method is made of rules. A hyper-parameter is set with `method.client.RULE.KEY=VALUE`, "
        "`method.server.SLOT.KEY=VALUE` or `selection.KEY=VALUE`. One without a default has its value, and the "
        "source of it, in the method's file in `conf/method/`.",
        rule_table(),
    )


def quoted(words: Iterable[str]) -> str:
    """Each word as code, with commas between."""
    return ", ".join(f"`{word}`" for word in words)


def rule_table(module: str = "") -> str:
    """The rules of a module, or all, with their hyper-parameters."""
    rows = [
        (f"`{slot}`", f"`{name}`", prose(method.describe(slot, name)), fields(registry.get(slot, name)))
        for slot, registry in method.registered.items()
        for name in method.names(slot)
        if module in ("", registry.get(slot, name).__module__)
    ]
    return table(["slot", "rule", "what it does", "hyper-parameters"], rows)


def algorithms() -> list[Algorithm]:
    """Methods by name, then selections. Raises `BrokenFile` if one cannot be imported."""
    for text in broken_files("methods").values():
        raise BrokenFile(text)
    rows = []
    for folder in ("", "selection/"):
        files = (ROOT / "methods" / folder).glob("[!_]*.py")
        rows += sorted((_algorithm(folder, path.stem) for path in files), key=lambda one: one.name.lower())
    return rows


def _algorithm(folder: str, stem: str) -> Algorithm:
    module = importlib.import_module(f"methods.{folder}{stem}".replace("/", "."))
    members = [item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__]
    classes = [item for item in members if inspect.isclass(item) and issubclass(item, rules.Rule)]
    changes = [inspect.getdoc(rule) or "" for rule in classes if not inspect.isabstract(rule)]
    text = module.__doc__ or ""
    name, _, title = text.strip().splitlines()[0].rstrip(".").partition(": ")
    link = re.search(r"https://\S+[^\s,]", text)
    if folder:
        files = [file for file in group_names("selection") if load_group("selection", file)["name"] == stem]
    else:
        words = {stem, *re.findall(r"\w+", name.lower())}
        files = []
        for file in group_names("method"):
            parts = {
                part.partition("_")[0] for part in file.split("+")
            }  # of fedavgm+fedprox: fedavgm, fedprox
            files += [file] if words & parts else []
    return Algorithm(
        name,
        f"[{title}]({link[0]})" if link else title,
        f"{folder}{stem}.py",
        " ".join(dict.fromkeys(change.splitlines()[0] for change in changes)),
        files,
    )


# Hooks -------------------------------------------------------------------------------------------


def hooks() -> str:
    """The hooks of every slot of a method, from the base classes."""
    parts = [
        "A method fills some of these slots; [the tutorial](../tutorials/method.md) shows how. A hook that a rule "
        "leaves out is neutral. Hooks marked \\* have no neutral value. `methods/core/contexts.py` describes what "
        "hooks receive and return."
    ]
    for slot, base in rules.SLOTS.items():
        parts += [f"## {slot}: {base.__name__}", prose(inspect.getdoc(base) or "")]
        parts.append(table(["hook", "meaning"], _hooks(base)))
    return page("Hooks of methods", *parts)


def _hooks(base: type[rules.Rule]) -> Iterator[tuple[str, str]]:
    classes = [cls for cls in reversed(base.__mro__) if cls.__module__ == rules.__name__]
    members = {
        name: value for cls in classes for name, value in vars(cls).items() if not name.startswith("_")
    }
    for name, value in members.items():
        function = value.fget if isinstance(value, property) else value
        if inspect.isfunction(function):
            names = ", ".join(list(inspect.signature(function).parameters)[1:])
            call = name if isinstance(value, property) else f"{name}({names})"
            star = " \\*" if getattr(function, "__isabstractmethod__", False) else ""
            yield f"`{call}`{star}", " ".join(prose(inspect.getdoc(function) or "").split())


def prose(docstring: str) -> str:
    """A docstring as Markdown: names as code, attributes as a list."""
    text = re.sub(r"(?::\w+:)?`{1,2}([^`]+)`{1,2}", r"`\1`", docstring)
    words, _, attributes = text.partition("\nAttributes:\n")
    items = re.sub(r"\n {8,}", " ", attributes)
    return (words.strip() + "\n\n" + re.sub(r"^ {4}(\w+):", r"- `\1`:", items, flags=re.MULTILINE)).strip()
