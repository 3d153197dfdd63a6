"""States of runs as tables and people see them: what their folders say, and what waits in the queue of a cluster."""

from collections.abc import Collection, Mapping

from benchmark.launch.slurm.queue import Queued, QueuedTask, SlurmQueue, waiting_reasons
from benchmark.launch.slurm.submission_log import SubmissionLog
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState

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
    """States of many runs: the index of their folders, and the queue of a cluster, asked once per `refresh`.

    Attributes:
        queued: What the scheduler answered; None if it does not answer.
        alive: Run -> its task that waits or runs. If the scheduler does not answer, all that was ever submitted.
    """

    def __init__(self, index: RunIndex, queue: type[SlurmQueue] | SlurmQueue = SlurmQueue) -> None:
        self.index, self.log, self._queue = index, SubmissionLog(index.results), queue
        self.queued: Queued | None = {}
        self.alive: dict[str, QueuedTask] = {}

    def refresh(self, keys: Collection[str]) -> None:
        """Read again what may have changed of ``keys``. The queue is asked if anything was ever submitted."""
        # The queue first: a run that ends between the two looks would otherwise be in neither.
        self.queued = self._queue.tasks() if self.log.batches() else {}
        self.alive = self.log.living(self.queued)
        # A run whose task waits has not changed. Reading the folders of thousands would load a file server.
        self.index.refresh([key for key in keys if key not in self.alive or self.alive[key].running])

    def may_run(self, key: str) -> bool:
        """Whether a run is in the queue or at work."""
        return key in self.alive or self.index.results.run(key).is_held()

    def state(self, key: str) -> RunState:
        """One of `SHOWN_STATES`. A failed run that waits for another try is waiting."""
        task, status = self._tasks.get(key), self.index.status(key)
        if task is None or self.index.has_ended(key):
            return self.index.state(key)
        runs = task.running and status is not None and status.state is RunState.RUNNING
        return RunState.RUNNING if runs else RunState.WAITING

    @property
    def _tasks(self) -> Mapping[str, QueuedTask]:
        return {} if self.queued is None else self.alive

    def waiting_for(self) -> str:
        """What tasks in the queue wait for: `` (Priority)``, or nothing."""
        return waiting_reasons(task for task in self._tasks.values() if not task.running)

    def queue(self) -> str:
        """What is in the cluster's queue: ``; SLURM: 1 tasks running, 2 waiting (Priority)``, or nothing."""
        tasks = {task.id: task for task in self._tasks.values()}.values()
        running = sum(task.running for task in tasks)
        counts = f"; SLURM: {running} tasks running, {len(tasks) - running} waiting"
        return counts + self.waiting_for() if tasks else ""
