"""Runs on a cluster: packed into the tasks of job arrays, submitted, and followed by their folders.

The state of a run is in its folder. The scheduler is only asked which tasks wait or run. A batch is noted in the
submission log before it is submitted, so that a launcher that dies in between leaves nothing that the next one cannot
find.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from benchmark.errors import ConfigError
from benchmark.launch.slurm.batch_job import BatchJob, Tracker
from benchmark.launch.slurm.overview import RunOverview
from benchmark.launch.slurm.packing import known_seconds, pack_tasks
from benchmark.launch.slurm.preflight import PreflightCheck, environment
from benchmark.launch.slurm.queue import Queued, QueueFullError, SchedulerUnavailableError, SlurmQueue
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.slurm.submission_log import Batch, Place, task_log
from benchmark.launch.tasks import Outcome, Task
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState

Show = Callable[[Mapping[str, RunState], str], None]
"""``show(states, waiting_for)``: states of runs, and what those that wait are waiting for, as `` (Priority)``."""


class Cluster:
    """Submits runs that are missing and not in the queue, and follows them."""

    def __init__(
        self,
        index: RunIndex,
        queue: SlurmQueue,
        settings: SlurmSettings,
        work: str,
        tracker: Callable[[Sequence[str]], Tracker] = lambda keys: nullcontext,
    ) -> None:
        """``work`` is the name of the work function; ``tracker`` gives a job what tracks its runs, by their keys."""
        self.index, self.queue, self.settings, self.work = index, queue, settings, work
        self.results, self.tracker = index.results, tracker
        self.overview = RunOverview(index, queue)
        self.log = self.overview.log
        self._tries: Counter[str] = Counter()
        self._preflight: tuple[PreflightCheck, str] | None = None
        self._full_at: int | None = None

    # Submitting

    def submit(self, tasks: Sequence[Task]) -> int:
        """Submit tasks that have not ended and are not in the queue; their number. Other launchers wait meanwhile."""
        with self.results.submission_lease():
            self.overview.refresh([task.key for task in tasks])
            if self._full_at is not None and _size(self.overview.queued) >= self._full_at:
                return 0
            self._full_at = None
            todo = self._lost(tasks)
            return self._submit_arrays(todo) if todo else 0

    def _lost(self, tasks: Sequence[Task]) -> list[Task]:
        """Those that have not ended and that nobody carries out."""
        return [t for t in tasks if not self.index.has_ended(t.key) and not self.overview.may_run(t.key)]

    def _submit_arrays(self, tasks: Sequence[Task]) -> int:
        """Submit arrays of the size that the cluster allows while there is room; number of runs."""
        seconds = known_seconds(self.index)
        default = self.settings.minutes_per_run * 60
        packs = pack_tasks(tasks, lambda task: seconds(task.key) or default, self.settings)
        size, start = self.queue.largest_array(), 0
        parallel = max(1, self.settings.max_parallel // -(-len(packs) // size))
        try:
            after = self._start_preflight() if self.settings.probe else None
            while start < len(packs):
                array = packs[start : start + size]
                try:
                    self._submit_array(array, parallel, after)
                except QueueFullError:
                    if start or len(array) == 1:
                        raise
                    size = len(array) // 2  # The limit may be smaller than an array.
                else:
                    start += len(array)
        except QueueFullError:
            # The queue is not asked again before a task has ended. If there is none, others take the room.
            self._full_at = _size(self.queue.tasks()) or None
        return sum(map(len, packs[:start]))

    def _submit_array(self, array: Sequence[Sequence[Task]], parallel: int, after: str | None) -> None:
        """Submit one array. After `QueueFullError` and `ConfigError` nothing of it is noted."""
        batch = Batch.new([[task.key for task in pack] for pack in array])
        self.log.write(batch)
        try:
            self.queue.submit(batch.name, [self._job(pack) for pack in array], parallel, after)
        except SchedulerUnavailableError:
            raise  # The note stays: if the job was taken, it is found by its name.
        except (QueueFullError, ConfigError):
            self.log.remove(batch)
            raise
        self._tries.update(task.key for pack in array for task in pack)

    def _job(self, pack: Sequence[Task]) -> BatchJob:
        tracker = self.tracker([task.key for task in pack])
        return BatchJob(self.results, tuple(pack), self.work, self.settings, environment(), tracker)

    # Preflight check

    def _start_preflight(self) -> str | None:
        """The job that all others wait for; None if the check was passed before."""
        check = PreflightCheck.of(self.results.root, self.settings)
        if check.message() == "":
            return None
        queued = (self.queue.tasks() or {}).get(check.name)
        if queued:  # submitted by another launcher
            job = queued[0].id
        else:
            check.path.unlink(missing_ok=True)
            job = self.queue.submit_preflight(check)
        self._preflight = check, job
        return job

    def _end_preflight(self, tasks: Sequence[Task]) -> None:
        """Forget a check that was passed. `ConfigError` for one that failed, and what waits for it is cancelled."""
        if self._preflight is None:
            return
        check, job = self._preflight
        log = self.queue.folder / check.name / f"{job}_0_log.err"
        message = check.outcome(self.queue.tasks, log, self.settings.poll)
        if message is None:
            return
        self._preflight = None
        if message:
            with self.results.submission_lease():
                cancelled, _ = self.log.cancel(self.queue.tasks() or {}, {task.key for task in tasks})
            self.queue.cancel(cancelled)
            raise ConfigError(
                f"a node cannot carry out the runs: {message} What was submitted was cancelled. (launcher.probe=false "
                "leaves this check out.)"
            )

    # Following

    def follow(self, tasks: Sequence[Task], show: Show) -> list[Outcome]:
        """Return when all runs have ended, or no task carries out those that have not; why, for each of these.

        Args:
            tasks: The runs.
            show: Called whenever something may have changed.

        Raises:
            ConfigError: A node failed the preflight check.
        """
        keys = [task.key for task in tasks]
        lost_before: set[str] = set()
        while True:
            self.overview.refresh(keys)
            self._end_preflight(tasks)
            show({key: self.overview.state(key) for key in keys}, self.overview.waiting_for())
            open_ = [task for task in tasks if not self.index.has_ended(task.key)]
            if not open_:
                return []
            lost = {task.key for task in self._lost(tasks)}
            # A network file system may show the end of a run later than the scheduler: a task counts as lost after
            # two looks.
            twice = lost & lost_before
            places = self.log.places() if twice else {}
            again = [task for task in open_ if task.key in twice and self._may_try(task.key, places)]
            if again:
                with suppress(SchedulerUnavailableError):  # It is asked again at the next look.
                    self.submit(again)
            elif lost == lost_before and len(lost) == len(open_):
                return self._explain(sorted(lost))
            lost_before = lost
            time.sleep(self.settings.poll)

    def _may_try(self, key: str, places: Mapping[str, Place]) -> bool:
        """Whether to submit a lost run again. A run that failed by itself was tried again in its job."""
        if key in places and places[key].cancelled:
            return False
        if self._tries[key] == 0:
            return True
        status = self.index.status(key)
        failed = status is not None and status.state is RunState.FAILED
        return not failed and self._tries[key] <= self.settings.retries

    # What went wrong

    def _explain(self, keys: Sequence[str]) -> list[Outcome]:
        places = self.log.places()
        outcomes = []
        for key in keys:
            status, place = self.index.status(key), places.get(key)
            if status is not None and status.state is RunState.FAILED:
                why = status.message
            elif place is not None and place.cancelled:
                why = "its task was cancelled; the same command submits it again"
            else:
                log = None if place is None else task_log(self.queue.folder, place)
                why = _end_of_task(log) if log else "its task never began"
            outcomes.append(Outcome(key, RunState.MISSING if status is None else status.state, why, 0.0))
        return outcomes


def _size(queued: Queued | None) -> int:
    """Number of tasks that wait or run."""
    return sum(map(len, (queued or {}).values()))


def _end_of_task(log: Path) -> str:
    """How a task ended: the last line of its error output, from the task or the scheduler; and its log."""
    errors = log.with_suffix(".err")
    lines = errors.read_text(errors="replace").splitlines() if errors.exists() else []
    said = [line.strip() for line in lines if line.strip() and "Exited with exit code" not in line]
    return f"{said[-1] if said else 'its task ended'}; log: {log}"
