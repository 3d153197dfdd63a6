"""Runs on a cluster: packed into the tasks of job arrays, submitted, and followed by their folders.

The state of a run is in its folder. The scheduler is only asked which tasks wait or run. A batch is noted in the
submission log before it is submitted, so that a launcher that dies in between leaves nothing that the next one cannot
find.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import secrets
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmark.errors import ConfigError, StorageError
from benchmark.launch.slurm.batch_job import BatchJob
from benchmark.launch.slurm.packing import known_seconds, pack_tasks
from benchmark.launch.slurm.preflight import PreflightCheck, environment, refused
from benchmark.launch.slurm.queue import (
    Queued,
    QueueFullError,
    SchedulerUnavailableError,
    SlurmQueue,
    waiting_reasons,
)
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.slurm.submission_log import Batch, SubmissionLog, task_log
from benchmark.launch.tasks import Task
from benchmark.runs.files import write_atomically
from benchmark.runs.lease import holder_of
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import Results
from benchmark.tracking.settings import TrackedRun, TrackingSettings

ROWS = 12
"""Runs at work that a snapshot names."""


@dataclass(frozen=True)
class Snapshot:
    """States of a set of runs. ``current``: (key, round, rounds) of the first few runs at work."""

    total: int
    counts: Mapping[RunState, int]
    current: Sequence[tuple[str, int, int]] = ()
    waiting_for: str = ""

    @property
    def ended(self) -> int:
        """Runs that are done or have diverged."""
        return sum(number for state, number in self.counts.items() if state.ended)

    def __str__(self) -> str:
        """``12/72 runs ended: 8 running, 52 waiting, 11 done, 1 diverged``."""
        counts = ", ".join(f"{self.counts[state]} {state}" for state in RunState if self.counts.get(state))
        return f"{self.ended}/{self.total} runs ended: {counts}{self.waiting_for}"


class View(Protocol):
    """Shows snapshots."""

    def show(self, snapshot: Snapshot) -> None:
        """Called whenever something may have changed."""


@dataclass(frozen=True)
class Lost:
    """A run that has not ended and that no task carries out any more: its state and the reason."""

    key: str
    state: RunState
    why: str


class Cluster:
    """Submits runs that are missing and not in the queue, and follows them."""

    def __init__(
        self,
        results: Results,
        queue: SlurmQueue,
        settings: SlurmSettings,
        work: str,
        tracking: tuple[TrackingSettings, Mapping[str, TrackedRun]] | None = None,
    ) -> None:
        """``work`` is the name of the work function; ``tracking``: how jobs track, and the tracked runs by key."""
        self.results, self.queue, self.settings, self.work = results, queue, settings, work
        self.tracking, self.tracked = tracking or (TrackingSettings(), {})
        self.log = SubmissionLog(results)
        self._tries: Counter[str] = Counter()
        self._ended: dict[str, RunState] = {}
        self._preflight: tuple[PreflightCheck, str] | None = None
        self._full_at: int | None = None

    # Submitting

    def submit(self, tasks: Sequence[Task]) -> int:
        """Submit tasks that have not ended and are not in the queue; their number. Other launchers wait meanwhile."""
        with self.results.submission_lease():
            queued = self.queue.tasks()
            if self._full_at is not None and _size(queued) >= self._full_at:
                return 0
            self._full_at = None
            alive = self.log.living(queued)
            there = self.results.there([task.key for task in tasks if task.key not in alive])
            todo = [
                task
                for task in tasks
                if task.key not in alive
                and not (task.key in there and (self.ended(task.key) or self._held(task.key)))
            ]
            if not todo:
                return 0
            known = known_seconds(self.results)
            default = self.settings.minutes_per_run * 60
            packs = pack_tasks(todo, lambda task: known(task.key) or default, self.settings)
            try:
                after = self._start_preflight(queued or {}) if self.settings.probe else None
            except QueueFullError:
                self._full_at = _size(queued) or None
                return 0
            return self._submit_arrays(packs, after)

    def ended(self, key: str) -> bool:
        """Whether a run has ended. Its folder is not read again then."""
        if key not in self._ended:
            folder = self.results.run(key)
            status = folder.status()
            if status is None or not status.ended or not folder.complete(status):
                return False
            self._ended[key] = status.state
        return True

    def _submit_arrays(self, packs: Sequence[tuple[Task, ...]], after: str | None) -> int:
        """Submit arrays of the size that the cluster allows while there is room; number of runs."""
        size = self.queue.largest_array()
        parallel = max(1, self.settings.max_parallel // -(-len(packs) // size))
        start = 0
        while start < len(packs):
            array = packs[start : start + size]
            try:
                self._submit_array(array, parallel, after)
            except QueueFullError:
                # The limit may be smaller than an array. The rest finds room when some tasks have ended.
                if start or len(array) == 1:
                    break
                size = len(array) // 2
                continue
            start += len(array)
            self._tries.update(task.key for pack in array for task in pack)
        if start < len(packs):
            # The queue is not asked again before a task has ended. If there is none, others take the room.
            self._full_at = _size(self.queue.tasks()) or None
        return sum(map(len, packs[:start]))

    def _submit_array(self, array: Sequence[tuple[Task, ...]], parallel: int, after: str | None) -> None:
        """Submit one array. After `QueueFullError` and `ConfigError` nothing of it is noted."""
        batch = Batch.new([task.key for task in pack] for pack in array)
        self.log.write(batch)
        try:
            self.queue.submit(batch.name, [self._job(pack) for pack in array], parallel, after)
        except SchedulerUnavailableError:
            raise  # The note stays: if the job was taken, it is found by its name.
        except (QueueFullError, ConfigError):
            self.log.remove(batch)
            raise

    def _job(self, pack: tuple[Task, ...]) -> BatchJob:
        s, tracking = self.settings, None
        if self.tracking.active:
            runs = tuple(self.tracked.get(task.key, TrackedRun(task.key)) for task in pack)
            tracking = (self.tracking, self.results.root.absolute(), runs)
        return BatchJob(
            pack,
            self.work,
            workers=s.runs_at_a_time,
            gpu_gb=s.gpu_gb_per_run,
            threads=s.threads,
            grace=s.grace,
            retries=s.retries,
            seconds=s.time * 60 - s.signal_delay,
            environment=environment(),
            tracking=tracking,
        )

    # Preflight check

    def _start_preflight(self, queued: Queued) -> str | None:
        """The job that all others wait for; None if the check was passed before."""
        s = self.settings
        where = json.dumps([s.place, s.slurm, s.preparation], sort_keys=True, default=str)
        check = PreflightCheck.of(self.results.root, where, s.gpus_per_job)
        if check.message() == "":
            return None
        if queued.get(check.name):  # submitted by another launcher
            job = queued[check.name][0].id
        else:
            check.prepare()
            job = self.queue.submit_preflight(check.name, check.script(s.preparation))
        self._preflight = check, job
        return job

    def _end_preflight(self, tasks: Sequence[Task]) -> None:
        """Forget a check that was passed. `ConfigError` for one that failed, and what waits for it is cancelled."""
        if self._preflight is None:
            return
        check, job = self._preflight
        message = check.message()
        if message is None:
            queued = self.queue.tasks()
            if queued is None or check.name in queued:
                return
            # It left the queue, perhaps since the last look. A network file system may show its file later.
            time.sleep(self.settings.poll)
            message = check.message()
            if message is None:
                message = check.explain(self.queue.ending(job)[1])
        self._preflight = None
        if message:
            with self.results.submission_lease():
                cancelled, _ = self.log.cancel(self.queue.tasks() or {}, {task.key for task in tasks})
            self.queue.cancel(cancelled)
            raise refused(message)

    # Following

    def follow(self, tasks: Sequence[Task], view: View) -> list[Lost]:
        """Return when all runs have ended, or those that have not are lost; the lost ones.

        Raises:
            ConfigError: A node failed the preflight check.
        """
        lost_before: set[str] = set()
        looked: set[str] = set()
        while True:
            alive = self.log.living(self.queue.tasks())
            self._end_preflight(tasks)
            # A run whose task waits has not changed. Reading the folders of thousands would load a file server.
            waiting = {key for key, task in alive.items() if not task.running} & looked
            open_ = [task for task in tasks if task.key in waiting or not self.ended(task.key)]
            looked = {task.key for task in tasks}
            lost = {task.key for task in open_ if task.key not in alive and not self._held(task.key)}
            reasons = waiting_reasons(task for key, task in alive.items() if key in waiting)
            view.show(self._snapshot(tasks, open_, waiting, lost, reasons))
            if not open_:
                return []
            # A network file system may show the end of a run later than the scheduler: a task counts as lost after
            # two looks.
            again = [task for task in open_ if task.key in lost & lost_before and self._may_try(task.key)]
            if again:
                with contextlib.suppress(SchedulerUnavailableError):  # It is asked again at the next look.
                    self.submit(again)
            elif lost == lost_before and len(lost) == len(open_):
                return self._explain(sorted(lost))
            lost_before = lost
            time.sleep(self.settings.poll)

    def _snapshot(
        self,
        tasks: Sequence[Task],
        open_: Iterable[Task],
        waiting: Collection[str],
        lost: Collection[str],
        reasons: str,
    ) -> Snapshot:
        counts = Counter(self._ended[task.key] for task in tasks if task.key in self._ended)
        current: list[tuple[str, int, int]] = []
        for task in open_:
            if task.key in waiting or task.key in lost:
                counts[RunState.WAITING if task.key in waiting else RunState.MISSING] += 1
                continue
            status = self._status(task.key)
            working = status is not None and status.state in (RunState.RUNNING, RunState.FAILED)
            state = status.state if status is not None and working else RunState.WAITING
            counts[state] += 1
            if state is RunState.RUNNING and len(current) < ROWS:
                current.append((task.key, self.results.run(task.key).last_round(), task.rounds))
        return Snapshot(len(tasks), counts, current, reasons)

    def _status(self, key: str) -> Status | None:
        return self.results.run(key).status()

    def _held(self, key: str) -> bool:
        return holder_of(self.results.run(key).path) is not None

    def _may_try(self, key: str) -> bool:
        """Whether to submit a lost run again. A run that failed by itself was tried again in its job."""
        place = self.log.places().get(key)
        if place is not None and place.cancelled:
            return False
        if self._tries[key] == 0:
            return True
        status = self._status(key)
        failed = status is not None and status.state is RunState.FAILED
        return not failed and self._tries[key] <= self.settings.retries

    # What went wrong

    def _explain(self, keys: Sequence[str]) -> list[Lost]:
        places, full = self.log.places(), self._full_disk()
        found = []
        for key in keys:
            status, place = self._status(key), places.get(key)
            state = RunState.MISSING if status is None else status.state
            if status is not None and state is RunState.FAILED:
                why = status.message
            elif place is not None and place.cancelled:
                why = "its task was cancelled; the same command submits it again"
            else:
                log = None if place is None else task_log(self.queue.folder, place)
                why = full or (self._end_of_task(log) if log else "its task never began")
            found.append(Lost(key, state, why))
        return found

    def _full_disk(self) -> str:
        """The message of a disk that has no room for a megabyte, or an empty string."""
        try:
            path = self.results.root / "launcher" / f".room-{secrets.token_hex(4)}"
            write_atomically(path, bytes(1 << 20))
            path.unlink(missing_ok=True)
        except StorageError as error:
            return str(error)
        return ""

    def _end_of_task(self, log: Path) -> str:
        """How a task ended: its error, or what the scheduler says; and its log."""
        job = log.name.removesuffix("_0_log.out")
        error = _last_line_of_error(log.with_name(f"{job}_0_result.pkl"))
        if not error:
            state, code = self.queue.ending(job)
            error = f"its task {job} ended" + (f" as {state} (exit code {code})" if state else "")
        return f"{error}; log: {log}"


def _size(queued: Queued | None) -> int:
    """Number of tasks that wait or run."""
    return sum(map(len, (queued or {}).values()))


def _last_line_of_error(result: Path) -> str:
    """The last line of the error that submitit wrote for a task, or an empty string."""
    try:
        kind, content = pickle.loads(result.read_bytes())
    except Exception:  # noqa: BLE001 - half written, or by another version
        return ""
    return str(content).strip().splitlines()[-1] if kind == "error" else ""
