"""What comes of a sweep: ``results/sweeps/<name>/``, its table, a picture, and what was swept."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmark.experiments.sweeps import COLUMN, Sweep
from benchmark.reports.collect import collect
from benchmark.reports.layout import as_table
from benchmark.reports.pictures import save
from benchmark.reports.results import TableResults
from benchmark.reports.tables import Table
from benchmark.reports.write import write
from benchmark.runs.files import write_with_folder
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

SWEPT = "sweep.json"
"""The values of each setting, and the command that repeats the sweep."""


def write_sweep(sweep: Sweep, command: str, index: RunIndex) -> tuple[Table, str]:
    """Write the table of a sweep and, if one number was swept, the metric against it; the table, and where it is.

    ``command`` repeats the sweep.
    """
    spec, cells = sweep.table()
    (preset,) = spec.presets
    results = collect(spec, preset, cells, index)
    folder = index.results.root / "sweeps" / sweep.name
    table = as_table(results)
    table = replace(table, blocks=tuple(replace(block, head="Setting") for block in table.blocks))
    where = write(table, folder)
    swept = json.dumps({"axes": sweep.axes, "command": command}, default=str)
    write_with_folder(folder / SWEPT, swept.encode(), durable=False)
    if sweep.numbers:
        _draw(sweep, results, folder / sweep.name)
        where += f", {sweep.name}.png"
    return table, where


def read_sweeps(results: ResultsFolder) -> list[tuple[dict[str, list[Any]], str]]:
    """What was swept in a results folder, and the commands; a damaged file counts as none."""
    found = []
    for path in sorted((results.root / "sweeps").glob(f"*/{SWEPT}")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            swept = json.loads(path.read_bytes())
            found.append((swept["axes"], swept["command"]))
    return found


def _draw(sweep: Sweep, results: TableResults, stem: Path) -> None:
    """Draw the metric against the one number that was swept: means and standard deviations over the seeds."""
    summaries = [(number, results.cells[row, COLUMN].summary) for row, number in sweep.numbers.items()]
    points = sorted((number, found.mean, found.std or 0.0) for number, found in summaries if found)
    figure = Figure(figsize=(4.0, 3.0), layout="constrained")
    axes = figure.subplots()
    numbers, means, spreads = zip(*points, strict=True) if points else ((), (), ())
    axes.errorbar(numbers, means, spreads, marker="o", capsize=3)
    if points and numbers[0] > 0 and numbers[-1] >= 100 * numbers[0]:
        axes.set_xscale("log")
    axes.set(xlabel=sweep.keys[0], ylabel=results.spec.metric_format.axis)
    save(figure, stem, formats=[".png"])
