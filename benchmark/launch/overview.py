"""States of runs as tables and people see them: what their folders say, and what waits in the queue of a cluster."""

from collections.abc import Collection

from benchmark.launch.slurm.queue import QueuedTask, SlurmQueue, waiting_reasons
from benchmark.launch.slurm.submission_log import SubmissionLog
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.runs.store import Results

SHOWN_STATES = (
    RunState.DONE,
    RunState.RUNNING,
    RunState.WAITING,
    RunState.FAILED,
    RunState.DIVERGED,
    RunState.STALE,
    RunState.DAMAGED,
    RunState.MISSING,
)
"""The states that `RunOverview.state` returns, in the order in which they are shown."""


class RunOverview:
    """States of many runs: the index of their folders, and the queue of a cluster, asked once per `refresh`."""

    def __init__(self, results: Results) -> None:
        self.index, self._log = RunIndex(results), SubmissionLog(results)
        self._queued: dict[str, QueuedTask] = {}

    def refresh(self, keys: Collection[str]) -> None:
        """Read again what may have changed of ``keys``. The queue is asked if anything was ever submitted."""
        # The queue first: a run that ends between the two looks would otherwise be in neither.
        queue = SlurmQueue.tasks() if self._log.batches() else None
        self._queued = {} if queue is None else self._log.living(queue)
        self.index.refresh(keys)

    def state(self, key: str) -> RunState:
        """One of `SHOWN_STATES`. A failed run that waits for another try is waiting."""
        state = self.index.state(key)
        waits = key in self._queued and not state.ended and state is not RunState.RUNNING
        return RunState.WAITING if waits else state

    def queue(self) -> str:
        """What is in the cluster's queue: ``; SLURM: 1 tasks running, 2 waiting (Priority)``, or nothing."""
        tasks = {task.id: task for task in self._queued.values()}.values()
        running = sum(task.running for task in tasks)
        counts = f"; SLURM: {running} tasks running, {len(tasks) - running} waiting"
        return counts + waiting_reasons(tasks) if tasks else ""
