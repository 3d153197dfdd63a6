"""``python -m benchmark data partition``: the clients of a partition as text and as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from benchmark.cli.options import parse
from benchmark.commands.options import checked
from benchmark.config.compose import configured, resolve
from benchmark.errors import ConfigError, wrong
from benchmark.experiments.plan import check_names
from benchmark.experiments.selection import CommandOptions
from benchmark.runs.files import storing
from partitions.core.base import IntArray, Population
from partitions.core.partition import Partition

BLOCK_WIDTH = 110  # characters; wider tables continue below


class PartitionOptions(CommandOptions):
    """Options of the command, beside the keys of a run."""

    out: Path | None = Field(
        None,
        title="FILE.png",
        description="the picture; if left out: a file in figures of the results folder",
    )


def main(argv: Sequence[str]) -> int:
    """Print and draw the partition of a run with these keys (``dataset=... partition=... seed=...``); exit code 0."""
    ours = [word for word in argv if word.partition("=")[0] in ("out", "-h", "--help")]
    options = checked(
        PartitionOptions, parse(ours, "data partition", PartitionOptions, "[KEY=VALUE of a run ...]")
    )
    settings = [word for word in argv if word not in ours]
    for word in settings:
        if "=" not in word:
            example = "key=value, like partition=dirichlet partition.alpha=0.1"
            raise ConfigError(wrong("data partition", word, example))
    from benchmark.cli.grammar import settings_of  # with it Hydra

    # A key is set whether the file of its group has it or not.
    given = settings_of([f"+{word}" if "." in word.partition("=")[0] else word for word in settings])
    config = resolve(configured(given))
    check_names(config)
    from benchmark.reports.pictures import client_picture
    from benchmark.runs.data import load_data, population

    loaded = load_data(config)
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
    with storing(out):
        paths = client_picture(counts, out, names, title, client_names(loaded.partition, people))
    for path in paths:
        print(path)
    return 0


def client_names(partition: Partition, population: Population) -> list[str]:
    """The names of the sources where each client is one or a part of one, else the clients' numbers."""
    if partition.identity["scheme"] == "natural" and population.source_names:
        parts = range(1, partition.identity["params"]["clients_per_source"] + 1)
        numbers = [f" {part}" for part in parts] if len(parts) > 1 else [""]
        return [name + number for name in population.source_names for number in numbers]
    return [str(number) for number in range(len(partition.clients))]


def partition_text(partition: Partition, population: Population) -> str:
    """What a partition is, its counts per client and class (and attribute), and the six heterogeneity metrics."""
    counts, groups = partition.counts, partition.counts_attr
    class_names = population.class_names or [str(label) for label in range(counts.shape[1])]
    clients = client_names(partition, population)
    totals = {"samples": [*counts.sum(axis=1), counts.sum()], "classes": [*(counts > 0).sum(axis=1), ""]}
    table = _table(counts, class_names, clients, totals)
    parts = [_head(partition), f"samples per client and class\n{table}"]
    if groups is not None:
        attribute_names = population.attribute_names or [str(number) for number in range(groups.shape[2])]
        names = [f"{label}/{attribute}" for label in class_names for attribute in attribute_names]
        table = _table(groups.reshape(len(groups), -1), names, clients, {})
        parts.append(f"samples per client and class/attribute\n{table}")
    values = (
        f"{name} {'-' if value is None else f'{value:.3f}'}" for name, value in partition.metrics.items()
    )
    note = "" if groups is not None else "  (no attributes)"
    title = "heterogeneity (0 none, 1 most; G pooled, C mean over clients)"
    return "\n\n".join([*parts, f"{title}\n  {'  '.join(values)}{note}"]) + "\n"


def _head(partition: Partition) -> str:
    identity, sizes = partition.identity, partition.sizes
    params = ", ".join(f"{key}={value}" for key, value in identity["params"].items() if value is not None)
    times = np.bincount(np.concatenate(partition.clients), minlength=partition.num_samples)
    return (
        f"partition {partition.id}\n"
        f"  scheme   {identity['scheme']} ({params or 'no parameters'}), seed {identity['seed']}\n"
        f"  samples  {(times > 0).sum()} of {len(times)} given out, {(times == 0).sum()} unused, "
        f"{(times > 1).sum()} given out more than once\n"
        f"  clients  {len(sizes)}, sizes {sizes.min()} to {sizes.max()}, median {np.median(sizes):g}"
    )


def _table(
    counts: IntArray, names: Sequence[str], clients: Sequence[str], totals: Mapping[str, Sequence[Any]]
) -> str:
    """Counts [clients, columns] behind ``totals``, with sums below. A dot is easier to read than a page of zeros."""
    import pandas as pd

    rows = [[str(count or ".") for count in row] for row in [*counts.tolist(), counts.sum(axis=0).tolist()]]
    table = pd.DataFrame(rows, index=pd.Index([*clients, "all"]), columns=pd.Index(names, name="client"))
    for place, (name, values) in enumerate(totals.items()):
        table.insert(place, name, values)
    return table.to_string(line_width=BLOCK_WIDTH)
