"""What the runs of tables have come to."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmark.commands.launching import plans_of
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.launch import slurm
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState


@dataclass(frozen=True)
class States:
    """The states of runs.

    Attributes:
        tables: Table -> how many of its runs are in each state.
        gaps: Table -> how many of its cells have no runs, and why.
        others: Of the runs that belong to no selected table: sweeps, single runs, other presets.
        runs: Run -> state, each once.
        failed: Run -> (the first line of its error, its log).
        differs: Run -> in what it differs from what the command would make.
        queue: Tasks of the results folder on a cluster: waiting, running.
    """

    tables: dict[str, Counter[RunState]]
    gaps: dict[str, Counter[str]]
    others: Counter[RunState]
    runs: dict[str, RunState]
    failed: dict[str, tuple[str, Path]]
    differs: dict[str, str]
    queue: Counter[str]

    @property
    def counts(self) -> Counter[RunState]:
        """How many runs are in each state."""
        return Counter(self.runs.values())


def states_of(query: TableQuery) -> States:
    """The states of the selected tables' runs or, if none is selected, of all runs of the results folder."""
    results = ResultsFolder(query.results, query.stale).existing()
    plans = plans_of(query)
    planned = unique_runs([cells for _, cells in plans])
    index = RunIndex(results)
    others = [] if query.selects else sorted(set(index.keys()) - planned.keys())
    index.refresh([*planned, *others])
    states = {key: index.state(key) for key in [*planned, *others]}
    tables, gaps, failed = {}, {}, {}
    for spec, cells in plans:
        tables[spec.name] = Counter(states[run.key] for cell in cells.values() for run in cell.runs)
        gaps[spec.name] = Counter(cell.state for cell in cells.values() if cell.state != "ok")
    for key in (key for key, state in states.items() if state is RunState.FAILED):
        message, folder = results.run(key).last_failure() or ("", results.run(key).path)
        failed[key] = (message.strip().partition("\n")[0], folder / "log.txt")
    differs = {key: index.why(key) for key, state in states.items() if state is RunState.DIFFERS}
    tasks = slurm.queued(slurm.name_of(results.root)) or {}
    queue = Counter("waiting" if state in slurm.WAITS else "running" for state in tasks.values())
    return States(tables, gaps, Counter(states[key] for key in others), states, failed, differs, queue)
