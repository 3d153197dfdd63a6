"""``list``, ``data`` and ``partition``: what there is, and what it looks like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table as TextTable

from benchmark.cli.arguments import read, value_of
from benchmark.config.compose import compose, group_names, load_group, resolve
from benchmark.errors import ConfigError, nearest
from benchmark.paths import CONF

OF_RUNS = ("train_per_class", "test_per_class", "rest")
"""Keys of conf/dataset that say what a run takes of the prepared data."""

KINDS = (
    "methods",
    "datasets",
    "partitions",
    "selections",
    "tables",
    "figures",
    "analyses",
    "models",
    "rules",
)


def _comment(path: Path) -> str:
    """The comment at the top of a configuration file, as one line."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @"):
            lines.append(line.lstrip("# "))
    return " ".join(lines)


def listing(words: Sequence[str]) -> int:
    """Print what is registered under one kind, or everything."""
    for word in words:
        if word not in KINDS:
            raise ConfigError(f"list: came {word!r}.{nearest(word, KINDS)} Allowed: {', '.join(KINDS)}.")
    console = Console(width=140)
    for kind in words or KINDS:
        view = TextTable("name", "what it is", title=kind)
        for name, text in _entries(kind):
            view.add_row(name, text)
        console.print(view)
    return 0


def _entries(kind: str) -> list[tuple[str, str]]:
    if kind == "rules":
        from methods.core import registry

        return [
            (f"{slot}: {name}", registry.describe(slot, name))
            for slot in registry.SLOTS
            for name in registry.names(slot)
        ]
    if kind == "tables":
        from benchmark.experiments.tables import find_specs

        return [(spec.name, spec.title) for spec in find_specs()]
    if kind == "figures":
        from benchmark.experiments.figures import find_figures

        return [(figure.name, figure.title) for figure in find_figures()]
    if kind == "analyses":
        from benchmark.analyses.registry import analyses

        return [(entry.name, entry.summary) for entry in analyses().values()]
    group = kind.rstrip("s")
    return [(name, _comment(CONF / group / f"{name}.yaml")) for name in group_names(group)]


def data(words: Sequence[str]) -> int:
    """``data list``, ``data prepare NAME [KEY=VALUE]``, ``data check NAME [KEY=VALUE] [out=FILE.png]``.

    NAME is a file of conf/dataset, and KEY an option of its data set, on top of those in the file. ``check`` also draws
    a contact sheet of a set that is prepared and whole, to ``results/data/NAME.png`` by default.
    """
    from benchmark.cli.data import data_check, data_list, data_prepare

    actions = ("list", "prepare", "check")
    if not words or words[0] not in actions:
        came = words[0] if words else ""
        raise ConfigError(f"data: came {came!r}.{nearest(came, actions)} Allowed: {', '.join(actions)}.")
    action, rest = words[0], list(words[1:])
    names = [word for word in rest if "=" not in word]
    if action != "list" and not names:
        raise ConfigError(f"data {action}: name a data set. Known: {', '.join(group_names('dataset'))}.")
    nodes = {name: load_group("dataset", name) for name in (names if action != "list" else ())}
    places, options = _places_and_options(action, [word for word in rest if "=" in word], nodes)
    root = Path(places["data"]) if "data" in places else None
    cache = Path(places["cache"]) if "cache" in places else None
    if action == "list":
        print(data_list(root=root, cache=cache), end="")
        return 0
    if "out" in places and len(names) > 1:
        raise ConfigError(
            f"out: came {places['out']!r} for {len(names)} data sets; it is one file. Name one set, or give "
            "results=FOLDER."
        )
    if not places.get("out", ".png").lower().endswith(".png"):
        raise ConfigError(f"out: came {places['out']!r}. Allowed: a file that ends in .png.")
    code = 0
    for name, node in nodes.items():
        node["options"] = {**(node.get("options") or {}), **options}
        if action == "prepare":
            print(data_prepare(node["name"], node["options"], root=root, cache=cache), end="")
        else:
            text, ok = data_check(node["name"], node["options"], root=root, cache=cache)
            print(text, end="")
            if ok:
                out = places.get("out") or Path(places.get("results", "results")) / "data" / f"{name}.png"
                print(f"contact sheet: {_contact_sheet(name, node, root, cache, Path(out))}")
            code = code if ok else 1
    return code


def _places_and_options(
    action: str, words: Sequence[str], nodes: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], dict[str, Any]]:
    """(folders and files of the command, options of the data sets), from ``key=value`` words; `ConfigError` as `read`.

    An option may be spelled as for runs, ``dataset.options.KEY=VALUE``. It has to be one of every data set named.
    """
    from datasets.core.registry import option_values

    known = {"data": "FOLDER", "cache": "FOLDER"}
    if action == "check":
        known |= {"out": "FILE.png", "results": "FOLDER"}
    allowed = [option_values(node["name"]) for node in nodes.values()]
    options = {key: what for key, what in (allowed or [{}])[0].items() if all(key in own for own in allowed)}
    plain = [word.removeprefix("+").removeprefix("dataset.options.") for word in words]
    for word in plain:
        key = word.partition("=")[0].removeprefix("dataset.")
        if nodes and key in OF_RUNS:
            raise ConfigError(
                f"data {action}: {key} is of runs (run dataset.{key}=...); what is prepared does not depend on it. "
                f"Allowed: {', '.join([*known, *options])}."
            )
    values = read(plain, {**known, **options}, f"data {action} {' '.join(nodes)}".rstrip())
    chosen = {key: value_of(text, key) for key, text in values.items() if key in options and key not in known}
    return {key: text for key, text in values.items() if key in known}, chosen


def _contact_sheet(
    name: str, node: Mapping[str, Any], root: Path | None, cache: Path | None, out: Path
) -> Path:
    """Draw the contact sheet of a prepared set; `ConfigError` if it cannot be written."""
    from benchmark.reports.contact_sheet import contact_sheet
    from datasets.core.prepare import load

    data = load(node["name"], node.get("options"), root, cache)
    original = (node.get("options") or {}).get("stands_for")
    title = f"{name}: digits standing in for {original}" if original else name
    try:
        return contact_sheet(data, out, title)
    except OSError as error:
        raise ConfigError(f"out: {out} cannot be written ({error.strerror or error}).") from error


def partition(words: Sequence[str]) -> int:
    """``partition show [dataset=...] [partition=...] [key=value ...] [seed=0] [kind=bubble|bars] [out=FILE.png]``."""
    from benchmark.cli.partition import partition_text
    from benchmark.reports.pictures import client_picture
    from benchmark.runs.data import load_data, population

    if not words or words[0] != "show":
        raise ConfigError(f"partition: came {words[0] if words else ''!r}. Allowed: show.")
    own = {"kind": "bubble|bars", "out": "FILE.png", "preset": "quick|small|paper"}
    mine = [word for word in words[1:] if word.partition("=")[0] in own]
    values = read(mine, own, "partition show")
    kinds: dict[str, Literal["bubble", "bars"]] = {"bubble": "bubble", "bars": "bars"}
    kind = kinds.get(values.get("kind", "bubble"))
    if kind is None:
        raise ConfigError(f"kind: came {values['kind']!r}. Allowed: {', '.join(kinds)}.")
    layers = [_nested(word) for word in words[1:] if word not in mine]
    config = resolve(compose(values.get("preset", "quick"), *layers))
    loaded = load_data(config, Path(config.paths.results) / "partitions")
    people = population(loaded.dataset, loaded.train)
    print(partition_text(loaded.partition, people), end="")
    out = Path(values.get("out") or Path(config.paths.results) / "figures" / f"{loaded.partition.id}.png")
    original = config.dataset.options.get("stands_for")
    data_name = f"digits standing in for {original}" if original else loaded.dataset.name
    title = f"{data_name}, {config.partition.name}, seed {config.seed}"
    counts, names = loaded.partition.counts, loaded.dataset.classes
    if loaded.partition.counts_attr is not None:
        # With attributes the groups are what differs between clients; classes alone would look alike.
        counts = loaded.partition.counts_attr.reshape(len(counts), -1)
        names = tuple(f"{c}, {a}" for c in loaded.dataset.classes for a in loaded.dataset.attributes)
    try:
        paths = client_picture(counts, out, kind=kind, class_names=names, title=title)
    except OSError as error:
        raise ConfigError(f"out: {out} cannot be written ({error.strerror or error}).") from error
    for path in paths:
        print(path)
    return 0


def _nested(word: str) -> dict[str, object]:
    """``a.b=1`` as {"a": {"b": 1}}."""
    key, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(
            f"partition show: came {word!r}; expected key=value, like partition=dirichlet partition.alpha=0.1."
        )
    value = value_of(text, key)
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)
