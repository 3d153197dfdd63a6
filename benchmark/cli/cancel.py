"""``python -m benchmark cancel``: end what waits or runs on a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.cli.options import parse
from benchmark.cli.planning import plans_of
from benchmark.errors import ConfigError
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.launch.slurm.queue import SlurmQueue
from benchmark.launch.slurm.submission_log import SubmissionLog
from benchmark.runs.store import Results


@dataclass(frozen=True, kw_only=True)
class CancelOptions(TableQuery):
    """Options of the command. ``all``: everything that was submitted from the results folder, sweeps too."""

    all: bool = False


def main(words: Sequence[str]) -> int:
    """Cancel the cluster's tasks that carry out runs of the selected tables, or all tasks; exit code 0."""
    options = parse(words, "cancel", CancelOptions)
    if not options.all and options.paper is None and options.table is None and options.name is None:
        raise ConfigError("cancel: say which: paper=..., table=... or name=..., or --all for everything.")
    results = Results(options.results).existing()
    notes = SubmissionLog(results)
    keys = {key for batch in notes.batches() for pack in batch.packs for key in pack}
    if not keys:
        print("nothing was submitted to a cluster from this results folder")
        return 0
    if not options.all:
        keys &= set(unique_runs([cells for _, cells in plans_of(options)]))
    asked = SlurmQueue.tasks()
    if asked is None:
        there = (
            "there is no `squeue` on this machine"
            if shutil.which("squeue") is None
            else "SLURM does not answer"
        )
        raise ConfigError(f"cancel: {there}. Give the command on a login node, when it does.")
    # Noted first: a launcher that follows these runs would take them for lost and submit them again.
    with results.submission_lease():
        tasks, others = notes.cancel(asked, keys)
    SlurmQueue.cancel(tasks)
    shared = f"; with them {others} runs that share a task with these" if others else ""
    print(
        f"{len(tasks)} tasks cancelled{shared}. Runs at work save their state; the same command goes on with them."
    )
    return 0
