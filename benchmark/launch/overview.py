"""States of runs as tables and people see them, from the folders of the runs and the queue of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from benchmark.errors import StorageError
from benchmark.launch.slurm.queue import QueuedTask, queued
from benchmark.launch.slurm.submissions import SubmissionLog, reasons
from benchmark.runs.status import Status
from benchmark.runs.store import Results, RunFolder

STATES = ("done", "running", "waiting", "failed", "diverged", "missing")

SHOWN_AS = {
    "done": "done",
    "diverged": "diverged",
    "failed": "failed",
    "running": "running",
    "interrupted": "missing",
}


def run_state(folder: RunFolder, status: Status | None) -> str:
    """done, running, failed, diverged or missing, as a table shows it."""
    if status is None:
        return "missing"
    state = SHOWN_AS.get(status.state, "missing")
    if state == "running" and not folder.is_held():
        return "missing"  # its process was killed; the next launch goes on from its checkpoint
    if status.ended and not folder.complete(status):
        raise StorageError(
            f"{folder.records_path.absolute()}: not the {status.records_bytes} bytes that were written. "
            f"Delete {folder.path} to run it again."
        )
    return state


@dataclass
class RunOverview:
    """States of many runs. Those that have ended are read once, and the queue is asked once for each look."""

    results: Results
    _ended: dict[str, str] = field(default_factory=dict)
    _living: dict[str, QueuedTask] = field(default_factory=dict)
    _there: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)

    def look(self, keys: Collection[str]) -> None:
        """See which of the runs have a folder; ask the queue, where something was ever submitted."""
        self._there = self.results.there([key for key in keys if key not in self._ended])
        notes = SubmissionLog(self.results)
        asked = queued() if notes.batches() else None
        self._living = notes.living(asked) if asked is not None else {}

    def state(self, key: str) -> str:
        """One of `STATES`; a failed one that waits for another try is waiting."""
        if key in self._ended:
            return self._ended[key]
        folder = self.results.run(key)
        status = folder.status() if key in self._there else None
        state = run_state(folder, status)
        self.failures.pop(key, None)
        if status is not None and status.ended:
            self._ended[key] = state
        elif state != "running" and key in self._living:
            state = "waiting"
        elif status is not None and state == "failed":
            self.failures[key] = status.message
        return state

    def reasons(self) -> str:
        """What waiting tasks wait for, in the scheduler's words: `` (Priority, Resources)``, or nothing."""
        return reasons(self._living.values())

    def tasks(self) -> Counter[str]:
        """Tasks of a cluster that run and that wait."""
        return Counter(
            "running" if task.running else "waiting"
            for task in {task.id: task for task in self._living.values()}.values()
        )
