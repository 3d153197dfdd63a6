"""``python -m benchmark partition show``: the clients of a partition as text and as a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmark.cli.options import parse, yaml_value
from benchmark.config.compose import compose, resolve
from benchmark.errors import ConfigError, wrong
from benchmark.runs.files import storage_error
from partitions.core.base import IntArray, Population
from partitions.core.store import Partition

BLOCK_WIDTH = 110  # characters; wider tables continue below


@dataclass(frozen=True)
class ShowOptions:
    """Options of the command, beside the keys of a run."""

    kind: Literal["bubble", "bars"] = "bubble"
    out: Annotated[Path | None, "FILE.png"] = None
    preset: str = "quick"


def main(words: Sequence[str]) -> int:
    """Print and draw the partition of a run with these keys (``dataset=... partition=... seed=...``); exit code 0."""
    if not words or words[0] != "show":
        raise ConfigError(wrong("partition", words[0] if words else "", "show"))
    own = [word for word in words[1:] if word.partition("=")[0] in ShowOptions.__dataclass_fields__]
    options = parse(own, "partition show", ShowOptions)
    from benchmark.reports.pictures import client_picture
    from benchmark.runs.data import load_data, population

    layers = [_nested(word) for word in words[1:] if word not in own]
    config = resolve(compose(options.preset, *layers))
    loaded = load_data(config, Path(config.paths.results) / "partitions")
    people = population(loaded.dataset, loaded.train)
    print(partition_text(loaded.partition, people), end="")
    out = options.out or Path(config.paths.results) / "figures" / f"{loaded.partition.id}.png"
    original = config.dataset.options.get("stands_for")
    data_name = f"digits standing in for {original}" if original else loaded.dataset.name
    title = f"{data_name}, {config.partition.name}, seed {config.seed}"
    counts, names = loaded.partition.counts, loaded.dataset.classes
    if loaded.partition.counts_attr is not None:
        # With attributes the groups are what differs between clients; classes alone would look alike.
        counts = loaded.partition.counts_attr.reshape(len(counts), -1)
        names = tuple(f"{c}, {a}" for c in loaded.dataset.classes for a in loaded.dataset.attributes)
    try:
        paths = client_picture(counts, out, kind=options.kind, class_names=names, title=title)
    except OSError as error:
        raise storage_error(error, out) from error
    for path in paths:
        print(path)
    return 0


def _nested(word: str) -> dict[str, object]:
    """``a.b=1`` as {"a": {"b": 1}}."""
    key, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(
            wrong("partition show", word, "key=value, like partition=dirichlet partition.alpha=0.1")
        )
    value = yaml_value(text, key)
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def partition_text(partition: Partition, population: Population) -> str:
    """Return the whole description of a partition as plain text.

    Parts: what it is, how much is given out, client x class counts, client x (class, attribute) counts where
    there are attributes, the six heterogeneity metrics. Tables wider than 110 characters continue in blocks
    below.
    """
    parts = [_head(partition), _class_table(partition, population)]
    if partition.counts_attr is not None:
        parts.append(_group_table(partition.counts_attr, population))
    parts.append(_metrics_text(partition))
    return "\n\n".join(parts) + "\n"


def _head(partition: Partition) -> str:
    params = ", ".join(
        f"{key}={value}" for key, value in partition.identity["params"].items() if value is not None
    )
    sizes = partition.sizes
    times = np.bincount(np.concatenate(partition.clients), minlength=partition.num_samples)
    return "\n".join(
        (
            f"partition {partition.id}",
            f"  scheme   {partition.identity['scheme']} ({params or 'no parameters'}), "
            f"seed {partition.identity['seed']}",
            f"  samples  {int((times > 0).sum())} of {partition.num_samples} given out, "
            f"{int((times == 0).sum())} unused, {int((times > 1).sum())} given out more than once",
            f"  clients  {len(sizes)}, sizes {sizes.min()} to {sizes.max()}, median {np.median(sizes):g}",
        )
    )


def _class_table(partition: Partition, population: Population) -> str:
    counts = partition.counts
    names = population.class_names or [str(label) for label in range(counts.shape[1])]
    held = (counts > 0).sum(axis=1)
    left: dict[str, Sequence[object]] = {
        "client": _client_names(counts),
        "samples": _with_total(counts.sum(axis=1)),
        "classes": [*held, ""],
    }
    return "samples per client and class\n" + _blocks(left, names, _with_total_row(counts))


def _group_table(groups: IntArray, population: Population) -> str:
    clients, classes, attributes = groups.shape
    class_names = population.class_names or [str(label) for label in range(classes)]
    attribute_names = population.attribute_names or [str(attribute) for attribute in range(attributes)]
    names = [f"{label}/{attribute}" for label in class_names for attribute in attribute_names]
    flat = groups.reshape(clients, classes * attributes)
    left = {"client": _client_names(flat)}
    return "samples per client and class/attribute\n" + _blocks(left, names, _with_total_row(flat))


def _metrics_text(partition: Partition) -> str:
    values = (
        f"{name} {'-' if value is None else f'{value:.3f}'}" for name, value in partition.metrics.items()
    )
    note = "" if partition.counts_attr is not None else "  (no attributes)"
    return f"heterogeneity (0 none, 1 most; G pooled, C mean over clients)\n  {'  '.join(values)}{note}"


def _client_names(counts: IntArray) -> list[str]:
    return [*map(str, range(len(counts))), "all"]


def _with_total(values: IntArray) -> list[int]:
    return [*values.tolist(), int(values.sum())]


def _with_total_row(counts: IntArray) -> IntArray:
    return np.concatenate([counts, counts.sum(axis=0, keepdims=True)])


def _blocks(left: Mapping[str, Sequence[object]], names: Sequence[str], columns: IntArray) -> str:
    """Return tables of the `left` columns and as many of `columns` [rows, names] as fit, in blocks."""
    gap = 2
    widths = [max(len(name), len(str(columns[:, index].max()))) + gap for index, name in enumerate(names)]
    room = BLOCK_WIDTH - sum(
        max(len(head), *(len(str(cell)) for cell in cells)) + gap for head, cells in left.items()
    )
    blocks: list[list[int]] = [[]]
    for index, width in enumerate(widths):
        if blocks[-1] and sum(widths[other] for other in blocks[-1]) + width > room:
            blocks.append([])
        blocks[-1].append(index)
    return "\n\n".join(_table(left, [names[index] for index in block], columns[:, block]) for block in blocks)


def _table(left: Mapping[str, Sequence[object]], names: Sequence[str], columns: IntArray) -> str:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name in (*left, *names):
        table.add_column(name, justify="right", no_wrap=True)
    for row, cells in enumerate(zip(*left.values(), strict=True)):
        # A dot reads as "none" at a glance, where a page of zeros hides the pattern.
        table.add_row(*map(str, cells), *(str(count) if count else "." for count in columns[row]))
    out = io.StringIO()
    Console(file=out, width=10_000, color_system=None, highlight=False, markup=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())
