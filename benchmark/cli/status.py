"""``python -m benchmark status``: how many runs are done, running, waiting, failed, diverged or missing."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as TextTable
from rich.text import Text

from benchmark.cli.launching import SHOWN
from benchmark.cli.options import parse
from benchmark.cli.planning import plans_of
from benchmark.experiments.plan import Cells, unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.spec import TableSpec
from benchmark.launch.overview import SHOWN_STATES, RunOverview
from benchmark.launch.slurm.submission_log import SubmissionLog
from benchmark.runs.status import RunState
from benchmark.runs.store import Results

SECONDS = 5.0
"""Between two looks of --watch."""


@dataclass(frozen=True, kw_only=True)
class StatusOptions(TableQuery):
    """Options of the command. ``watch``: look again until nothing runs or waits."""

    watch: bool = False


def main(words: Sequence[str]) -> int:
    """Print the states of the selected tables' runs or, if none is selected, of all runs; exit code 0."""
    options = parse(words, "status", StatusOptions)
    plans = plans_of(options)
    results = Results(options.results).existing()
    others = other_runs(options, results, plans)
    overview = RunOverview(results)
    title = f"preset {options.preset}, {results.root}/runs"
    console = Console(width=None if sys.stdout.isatty() else 140)
    if not options.watch:
        console.print(_view(title, plans, others, overview)[0])
        return 0
    return _watch(console, lambda: _view(title, plans, others, overview))


def other_runs(query: TableQuery, results: Results, plans: Sequence[tuple[TableSpec, Cells]]) -> list[str]:
    """Keys of the runs of no planned table: sweeps, single runs, other presets. Empty if tables are selected."""
    if any(given is not None for given in (query.paper, query.table, query.name, query.rows, query.columns)):
        return []
    folders = sorted((results.root / "runs").glob("*/seed*"))
    there = dict.fromkeys("/".join(folder.parts[-2:]) for folder in folders)
    for batch in SubmissionLog(results).batches():
        there |= dict.fromkeys(key for pack in batch.packs for key in pack)
    return list(there.keys() - unique_runs([cells for _, cells in plans]).keys())


def _view(
    title: str, plans: Sequence[tuple[TableSpec, Cells]], others: Collection[str], overview: RunOverview
) -> tuple[RenderableType, str, bool]:
    """(the view, its counts as one line, whether anything is on its way)."""
    keys = [*unique_runs([cells for _, cells in plans]), *others]
    overview.refresh(keys)
    states = {key: overview.state(key) for key in keys}
    view = TextTable(title=title)
    view.add_column("table")
    for state in SHOWN_STATES:
        view.add_column(state, justify="right")
    view.add_column("cells without runs")
    for spec, cells in plans:
        counts = Counter(states[run.key] for cell in cells.values() for run in cell.runs)
        gaps = Counter(cell.state for cell in cells.values() if cell.state != "ok")
        words = ", ".join(f"{number} {state}" for state, number in sorted(gaps.items()))
        view.add_row(spec.name, *(str(counts[state]) for state in SHOWN_STATES), words)
    if others:
        counts = Counter(states[key] for key in others)
        view.add_row("other runs", *(str(counts[state]) for state in SHOWN_STATES), "")
    total = Counter(states.values())
    line = f"{len(states)} runs: " + (
        ", ".join(f"{total[state]} {state}" for state in SHOWN_STATES if total[state]) or "none"
    )
    tasks = overview.tasks()
    queue = (
        f"; SLURM: {tasks[RunState.RUNNING]} tasks running, {tasks[RunState.WAITING]} waiting{overview.reasons()}"
        if tasks
        else ""
    )
    below = [Text(f"{line}{queue}"), *_failures(overview.failures)]
    return Group(view, *below), f"{line}{queue}", bool(total[RunState.RUNNING] or total[RunState.WAITING])


def _failures(failures: Mapping[str, str]) -> Iterable[Text]:
    for key, message in list(failures.items())[:SHOWN]:
        yield Text(f"failed: {key}: {message.strip().partition(chr(10))[0]}", style="red")
    if len(failures) > SHOWN:
        yield Text(f"and {len(failures) - SHOWN} more", style="red")
    if failures:
        yield Text("python -m benchmark logs RUN shows why, retry --failed tries them again")


def _watch(console: Console, look: Callable[[], tuple[RenderableType, str, bool]]) -> int:
    """Show what ``look`` sees until nothing is on its way; on a terminal in place, elsewhere a line per change."""
    live = Live(console=console, auto_refresh=False, vertical_overflow="crop", transient=True)
    told = ""
    with live if console.is_terminal else nullcontext():
        while True:
            view, line, busy = look()
            if console.is_terminal:
                live.update(view, refresh=True)
            elif line != told:
                print(told := line, flush=True)
            if not busy:
                break
            time.sleep(SECONDS)
    console.print(view)
    return 0
