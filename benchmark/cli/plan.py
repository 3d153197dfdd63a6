"""``python -m benchmark plan``: runs, hours, disk space, data and weights that tables still need."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table as TextTable

from benchmark.cli.options import parse
from benchmark.cli.planning import plans_of
from benchmark.config.schema import RunConfig
from benchmark.experiments.estimate import (
    Block,
    DataNeed,
    Pace,
    Shape,
    blocks,
    data_needs,
    paces,
    timed,
    weights_needed,
)
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.launch.overview import RunOverview
from benchmark.runs.store import Results

if TYPE_CHECKING:
    from benchmark.models.pretrained import Weights


@dataclass(frozen=True, kw_only=True)
class PlanOptions(TableQuery):
    """Options of the command."""

    timing: Literal["on", "off"] = "on"
    device: str = "auto"


def main(words: Sequence[str]) -> int:
    """Print what the chosen tables need; exit code 0."""
    options = parse(words, "plan", PlanOptions)
    plans = plans_of(options)
    results = Results(options.results).existing()
    overview = RunOverview(results)
    runs = unique_runs([cells for _, cells in plans])
    overview.refresh(runs)
    states = {key: overview.state(key) for key in runs}
    console = Console(width=None if sys.stdout.isatty() else 150)
    seen: set[str] = set()
    found: list[Block] = []
    by_shape: dict[Shape, RunConfig] = {}
    uncounted = 0
    for spec, cells in plans:
        mine = {run.key: run for cell in cells.values() for run in cell.runs}
        missing = [
            run for key, run in mine.items() if states[key] not in ("done", "diverged") and key not in seen
        ]
        seen |= set(mine)
        some = blocks(spec.name, missing)
        hashes = {run.hash: run for run in missing}
        found += some
        uncounted += len(missing) - sum(block.runs for block in some)
        by_shape |= {block.shape: hashes[block.hash] for block in some}
        absent = sorted({cell.state for cell in cells.values() if cell.state != "ok"})
        done = sum(states[key] in ("done", "diverged") for key in mine)
        gaps = f"; cells without runs: {', '.join(absent)}" if absent else ""
        console.print(f"{spec.name}: {len(mine)} runs, {done} ended{gaps}", highlight=False)
    device, known = "not timed", dict[Shape, Pace | str]()
    if options.timing == "on" and found:
        device = _device(options.device)
        known = paces(found, by_shape, lambda run, shape: timed(run, shape, options.device), _tell)
    console.print(_table(found, known, device))
    if uncounted:
        console.print(f"and {uncounted:,} runs on data of whose size nothing is known before they are there")
    chosen = list(runs.values())
    _print_needs(console, data_needs(chosen))
    _print_weights(console, weights_needed(chosen))
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
        groups.setdefault((block.table, block.dataset, block.model), []).append(block)
    for (table, data, model), group in groups.items():
        rounds = sorted({block.rounds for block in group})
        samples = sorted({block.samples_per_round for block in group})
        view.add_row(
            table,
            data,
            model,
            f"{sum(block.runs for block in group):,}",
            _span(rounds),
            _span(samples),
            _hours(group, known),
            _size(sum(block.result_bytes for block in group)),
        )
    view.add_section()
    total = sum(block.runs for block in found)
    view.add_row(
        "all", "", "", f"{total:,}", "", "", _hours(found, known), _size(sum(b.result_bytes for b in found))
    )
    return view


def _hours(group: Sequence[Block], known: Mapping[Shape, Pace | str]) -> str:
    total, unknown = 0.0, False
    for block in group:
        pace = known.get(block.shape)
        if isinstance(pace, Pace):
            total += block.hours(pace)
        else:
            unknown = True
    if unknown:
        return f"> {total:,.1f}" if total else "?"
    return f"{total:,.1f}" if total >= 0.1 else f"{60 * total:,.1f} min"


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:,.0f} {unit}" if number >= 10 or unit == "B" else f"{number:,.1f} {unit}"
        number /= 1000
    raise AssertionError


def _print_needs(console: Console, needs: Sequence[DataNeed]) -> None:
    total = sum(need.prepared_bytes for need in needs)
    console.print(f"data sets, {_size(total)} when prepared:", highlight=False)
    for need in needs:
        size = f", {_size(need.prepared_bytes)} prepared" if need.prepared_bytes else ""
        if "\n" not in need.state and len(need.state) < 40:
            console.print(f"  {need.name}: {need.state}{size}", highlight=False, markup=False)
            continue
        console.print(f"  {need.name}: missing{size}", highlight=False, markup=False)
        for line in need.state.splitlines():
            console.print(f"    {line.strip()}", highlight=False, markup=False, soft_wrap=True)


def _print_weights(console: Console, needed: Sequence[tuple[Path, Weights]]) -> None:
    for path, source in needed:
        there = (
            "there"
            if path.exists()
            else f"not there; downloads by itself ({source.megabytes} MB, {source.page})"
        )
        console.print(f"weights {path}: {there}", highlight=False, markup=False, soft_wrap=True)
