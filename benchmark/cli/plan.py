"""``python -m benchmark plan``: runs, hours, disk space, data and weights that tables still need."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table as TextTable

from benchmark.cli.launching import plans_of
from benchmark.cli.options import parse
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.launch.overview import RunOverview
from benchmark.runs.store import Results

if TYPE_CHECKING:
    from benchmark.experiments.estimate import Block, Pace, Shape


@dataclass(frozen=True, kw_only=True)
class PlanOptions(TableQuery):
    """Options of the command."""

    timing: Literal["on", "off"] = "on"
    device: str = "auto"


def main(words: Sequence[str]) -> int:
    """Print what the chosen tables need; exit code 0."""
    options = parse(words, "plan", PlanOptions)
    plans = plans_of(options)
    from benchmark.experiments import estimate

    overview = RunOverview(Results(options.results).existing())
    runs = unique_runs([cells for _, cells in plans])
    overview.refresh(runs)
    ended = {key for key in runs if overview.state(key).ended}
    width = None if sys.stdout.isatty() else 150
    console = Console(width=width, highlight=False, markup=False, soft_wrap=True)
    seen = set(ended)
    found: list[Block] = []
    for spec, cells in plans:
        mine = unique_runs([cells])
        found += estimate.blocks(spec.name, [run for key, run in mine.items() if key not in seen])
        seen |= set(mine)
        absent = sorted({cell.state for cell in cells.values() if cell.state != "ok"})
        gaps = f"; cells without runs: {', '.join(absent)}" if absent else ""
        console.print(f"{spec.name}: {len(mine)} runs, {len(ended & set(mine))} ended{gaps}")
    device, known = "not timed", dict[estimate.Shape, estimate.Pace | str]()
    if options.timing == "on" and found:
        device = _device(options.device)
        tell = partial(print, file=sys.stderr, flush=True)
        known = estimate.paces(found, lambda run, shape: estimate.timed(run, shape, options.device), tell)
    console.print(_table(found, known, device), soft_wrap=False)
    uncounted = len(seen - ended) - sum(block.runs for block in found)
    if uncounted:
        console.print(f"and {uncounted:,} runs on data of whose size nothing is known before they are there")
    needs = estimate.data_needs(list(runs.values()))
    console.print(f"data sets, {_size(sum(need.prepared_bytes for need in needs))} when prepared:")
    for need in needs:
        size = f", {_size(need.prepared_bytes)} prepared" if need.prepared_bytes else ""
        short = "\n" not in need.state and len(need.state) < 40
        console.print(f"  {need.name}: {need.state if short else 'missing'}{size}")
        for line in () if short else need.state.splitlines():
            console.print(f"    {line.strip()}")
    for path, source in estimate.weights_needed(list(runs.values())):
        absent_text = f"not there; downloads by itself ({source.megabytes} MB, {source.url})"
        console.print(f"weights {path}: {'there' if path.exists() else absent_text}")
    return 0


def _device(name: str) -> str:
    import torch

    from benchmark.runs.build import choose_device

    device = choose_device(name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "one CPU thread"


def _table(found: Sequence[Block], known: Mapping[Shape, Pace | str], device: str) -> TextTable:
    """One line per table, data and model; hours of all methods together."""
    view = TextTable(title=f"missing runs; hours on this device ({device}), one run at a time")
    for name in ("table", "data", "model"):
        view.add_column(name)
    for name in ("runs", "rounds", "samples a round", "hours", "results"):
        view.add_column(name, justify="right")
    groups: dict[tuple[str, str, str], list[Block]] = {}
    for block in found:
        key = (block.table, block.run.dataset.name, block.run.model.name)
        groups.setdefault(key, []).append(block)
    for names, group in groups.items():
        rounds = _span([block.run.train.rounds for block in group])
        samples = _span([block.samples_per_round for block in group])
        view.add_row(*names, *_totals(group, known, rounds, samples))
    view.add_section()
    view.add_row("all", "", "", *_totals(found, known))
    return view


def _totals(
    group: Sequence[Block], known: Mapping[Shape, Pace | str], rounds: str = "", samples: str = ""
) -> list[str]:
    runs, space = sum(block.runs for block in group), sum(block.result_bytes for block in group)
    times = [
        block.hours(pace)
        for block in group
        if (pace := known.get(block.shape)) is not None and not isinstance(pace, str)
    ]
    total = sum(times)
    if len(times) < len(group):
        hours = f"> {total:,.1f}" if total else "?"
    else:
        hours = f"{total:,.1f}" if total >= 0.1 else f"{60 * total:,.1f} min"
    return [f"{runs:,}", rounds, samples, hours, _size(space)]


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _size(number: float) -> str:
    units = ["B", "kB", "MB", "GB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        del units[0]
    return f"{number:,.{0 if number >= 10 or units[0] == 'B' else 1}f} {units[0]}"
