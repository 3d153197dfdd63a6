"""``python -m benchmark plan``: runs, hours, disk space, data and weights that tables still need."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

from pydantic import Field
from rich.table import Table as TextTable

from benchmark.cli.launching import plans_of
from benchmark.cli.options import parse
from benchmark.config.schema import Device, RunConfig, RuntimeConfig, declared
from benchmark.experiments import estimate
from benchmark.experiments.estimate import Rate, RunBlock
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.reports.render.console import TextConsole
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

MUCH = 5e8
"""Bytes of clients' states that are worth a line."""


class PlanOptions(TableQuery):
    """Options of the command."""

    timing: Literal["on", "again", "off"] = Field(
        "on",
        description="whether a round of each kind of run is measured on this device, if it has not been yet",
    )
    device: Device = declared(RuntimeConfig, "device")


def main(words: Sequence[str]) -> int:
    """Print what the chosen tables need; exit code 0."""
    options = parse(words, "plan", PlanOptions)
    plans = plans_of(options)
    index = RunIndex(ResultsFolder(options.results, options.stale).existing())
    runs = unique_runs([cells for _, cells in plans])
    index.refresh(runs)
    ended = {key for key in runs if index.has_ended(key)}
    seen = set(ended)
    blocks: list[RunBlock] = []
    for spec, cells in plans:
        mine = unique_runs([cells])
        blocks += estimate.blocks(spec.name, [run for key, run in mine.items() if key not in seen])
        seen |= set(mine)
        print(f"{spec.name}: {len(mine)} runs, {len(ended & set(mine))} ended")
    rates: Mapping[Hashable, Rate] = {}
    if options.timing != "off":
        store = options.results / "rates.json"
        rates = estimate.rates(blocks, options.device, store, options.timing == "again")
    TextConsole().print(_table(blocks, rates))
    _print_states(blocks, rates)
    times = [block.hours(rates[block.shape].seconds) for block in blocks if block.shape in rates]
    if sum(times) > estimate.YEAR:
        print(f"this needs GPUs (device=cuda, or launcher=slurm); the load here is {os.getloadavg()[0]:.1f}")
    uncounted = len(seen - ended) - sum(block.runs for block in blocks)
    if uncounted:
        print(f"and {uncounted:,} runs on data of whose size nothing is known before they are there")
    _print_files(list(runs.values()))
    return 0


def _print_files(runs: Sequence[RunConfig]) -> None:
    """Print the data sets and trained weights that the runs need."""
    needs = estimate.data_needs(runs)
    print(f"data sets, {_size(sum(need.prepared_bytes for need in needs))} when prepared:")
    for need in needs:
        size = f" ({_size(need.prepared_bytes)} when prepared)" if need.prepared_bytes else ""
        first, *rest = need.state.splitlines()
        print("\n    ".join([f"  {need.name}{size}: {first}", *map(str.strip, rest)]))
    for path, source in estimate.weights_needed(runs).items():
        absent = f"not there; downloads by itself ({source.megabytes} MB, {source.url})"
        if source.is_exported:
            absent = f"not there. {source.source}"
        print(f"weights {path}: {'there' if path.exists() else absent}")


def _print_states(blocks: Sequence[RunBlock], rates: Mapping[Hashable, Rate]) -> None:
    """Print which methods need much memory for what their clients keep."""
    for block in blocks:
        size = block.clients * rates[block.shape].client_bytes if block.shape in rates else 0
        if size >= MUCH:
            print(
                f"{block.table}, {block.run.method.get('name')}: the states of its {block.clients:,} clients take "
                f"{_size(size)}; a run needs up to four times as much memory, and a checkpoint has this size"
            )


def _table(blocks: Sequence[RunBlock], rates: Mapping[Hashable, Rate]) -> TextTable:
    """One line per table, data and model; hours of all methods together."""
    view = TextTable(title="missing runs; hours on this device, one run at a time")
    for name in ("table", "data", "model"):
        view.add_column(name)
    for name in ("runs", "hours", "results"):
        view.add_column(name, justify="right")
    groups: dict[tuple[str, str, str], list[RunBlock]] = {}
    for block in blocks:
        key = (block.table, block.run.dataset.name, block.run.model.name)
        groups.setdefault(key, []).append(block)
    for names, group in groups.items():
        view.add_row(*names, *_totals(group, rates))
    view.add_section()
    view.add_row("all", "", "", *_totals(blocks, rates))
    return view


def _totals(group: Sequence[RunBlock], rates: Mapping[Hashable, Rate]) -> tuple[str, str, str]:
    runs, space = sum(block.runs for block in group), sum(block.result_bytes for block in group)
    times = [block.hours(rates[block.shape].seconds) for block in group if block.shape in rates]
    hours = estimate.in_words(sum(times)) if times or not group else "?"
    more = "> " if 0 < len(times) < len(group) else ""
    return f"{runs:,}", f"{more}{hours}", _size(space)


def _size(number: float) -> str:
    units = ["B", "kB", "MB", "GB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        del units[0]
    return f"{number:,.{0 if number >= 10 or units[0] == 'B' else 1}f} {units[0]}"
