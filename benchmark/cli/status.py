"""``python -m benchmark status``: what the runs of tables have come to."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table as TextTable

from benchmark.cli.launching import SHOWN, in_words, plans_of
from benchmark.cli.options import parse
from benchmark.errors import printable
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.launch import slurm
from benchmark.reports.render.console import TextConsole
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState


def main(words: Sequence[str]) -> int:
    """Print the states of the selected tables' runs or, if none is selected, of all runs; exit code 0."""
    options = parse(words, "status", TableQuery)
    results = ResultsFolder(options.results, options.stale).existing()
    plans = plans_of(options)
    planned = unique_runs([cells for _, cells in plans])
    # Sweeps, single runs, other presets.
    others = [] if options.selects else sorted(set(results.run_keys()) - planned.keys())
    index = RunIndex(results)
    index.refresh([*planned, *others])
    states = {key: index.state(key) for key in [*planned, *others]}
    view = TextTable(title=f"preset {options.preset}, {results.root}/runs")
    view.add_column("table")
    for state in RunState:
        view.add_column(state, justify="right")
    view.add_column("cells without runs")
    for spec, cells in plans:
        counts = Counter(states[run.key] for cell in cells.values() for run in cell.runs)
        gaps = Counter(cell.state for cell in cells.values() if cell.state != "ok")
        told = ", ".join(f"{number} {state}" for state, number in sorted(gaps.items()))
        view.add_row(spec.name, *(str(counts[state]) for state in RunState), told)
    if others:
        counts = Counter(states[key] for key in others)
        view.add_row("other runs", *(str(counts[state]) for state in RunState), "")
    TextConsole().print(view)
    print(f"{len(states)} runs: {in_words(Counter(states.values())) or 'none'}{_queue(results)}")
    failed = [key for key, state in states.items() if state is RunState.FAILED]
    for key in failed[:SHOWN]:
        message, folder = results.run(key).last_failure() or ("", results.run(key).path)
        print(printable(f"failed: {key}: {message.strip().partition(chr(10))[0]} ({folder / 'log.txt'})"))
    if len(failed) > SHOWN:
        print(f"and {len(failed) - SHOWN} more")
    for key in [key for key, state in states.items() if state is RunState.DIFFERS][:SHOWN]:
        print(printable(f"differs: {key}: {index.why(key)}"))
    return 0


def _queue(results: ResultsFolder) -> str:
    """How many tasks of the results folder are on a cluster."""
    tasks = slurm.queued(slurm.name_of(results.root))
    counts = Counter("waiting" if state in slurm.WAITS else "running" for state in (tasks or {}).values())
    return "".join(f"; {number} tasks {state}" for state, number in counts.items())
