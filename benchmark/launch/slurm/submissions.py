"""Runs on a cluster: packed into tasks of job arrays, submitted, followed by their folders.

What a run has come to stands in its folder; the scheduler is only asked which tasks still wait or run. What is
submitted is noted in ``results/launcher/batches`` before, under a name that the jobs carry too: a launcher that dies in
between leaves nothing behind that the next one could not find.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from benchmark.errors import ConfigError, StorageError
from benchmark.launch.slurm.batch_job import BatchJob, Tracking
from benchmark.launch.slurm.preflight import PreflightCheck, environment, refused
from benchmark.launch.slurm.queue import Away, Queue, Queued, QueuedTask, QueueFullError, SlurmSettings
from benchmark.launch.tasks import Task
from benchmark.runs.files import write_atomically
from benchmark.runs.lease import holder_of
from benchmark.runs.status import Status
from benchmark.runs.store import Results
from benchmark.tracking.settings import TrackedRun, TrackingSettings

FILL = 0.7
"""Share of a task's time that is filled with runs, as far as their times are known."""

ROWS = 12
"""Runs at work that are told one by one."""


@dataclass(frozen=True)
class Batch:
    """One job array: its name, which its jobs carry too, the runs of each task, and the tasks that a user cancelled."""

    name: str
    packs: tuple[tuple[str, ...], ...]
    cancelled: tuple[int, ...] = ()

    @classmethod
    def new(cls, packs: Iterable[Iterable[str]]) -> Batch:
        """With a new name; names sort by time."""
        now = time.time_ns()
        stamp = f"{time.strftime('%y%m%d%H%M%S', time.gmtime(now // 10**9))}.{now % 10**9 // 1000:06d}"
        return cls(f"fedtables-{stamp}-{secrets.token_hex(2)}", tuple(map(tuple, packs)))


@dataclass(frozen=True)
class Place:
    """Where a run was submitted last."""

    batch: str
    index: int


class SubmissionLog:
    """The batches of a results folder, in the order in which they were submitted."""

    def __init__(self, results: Results) -> None:
        """Of ``results``; nothing is read yet."""
        self.folder = results.root / "launcher" / "batches"
        self._read: dict[Path, tuple[int, Batch]] = {}

    def write(self, batch: Batch) -> None:
        """Note a batch down, or what has changed of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / f"{batch.name}.json", json.dumps(asdict(batch)).encode())

    def forget(self, batch: Batch) -> None:
        """It was not submitted."""
        (self.folder / f"{batch.name}.json").unlink(missing_ok=True)

    def batches(self) -> list[Batch]:
        """All of them; only what has changed since the last call is read."""
        found = []
        for path in sorted(self.folder.glob("*.json")) if self.folder.exists() else ():
            changed = path.stat().st_mtime_ns
            known = self._read.get(path)
            if known is None or known[0] != changed:
                plain = json.loads(path.read_bytes())
                plain["packs"] = tuple(map(tuple, plain["packs"]))
                known = changed, Batch(**plain | {"cancelled": tuple(plain["cancelled"])})
                self._read[path] = known
            found.append(known[1])
        return found

    def living(self, queued: Queued | None) -> dict[str, QueuedTask]:
        """Run -> its task that waits or runs; where the queue is not known, all that was ever submitted may run."""
        alive: dict[str, QueuedTask] = {}
        for batch in self.batches():
            if queued is None:
                tasks = {index: QueuedTask("", True) for index in range(len(batch.packs))}
            else:
                tasks = queued.get(batch.name, {})
            for index, task in tasks.items():
                if index < len(batch.packs):
                    alive.update(dict.fromkeys(batch.packs[index], task))
        return alive

    def places(self) -> dict[str, Place]:
        """Run -> where it was submitted last."""
        return {
            key: Place(batch.name, index)
            for batch in self.batches()
            for index, pack in enumerate(batch.packs)
            for key in pack
        }

    def cancel(self, queued: Queued, keys: Collection[str]) -> tuple[list[QueuedTask], int]:
        """Note as cancelled the living tasks with any of these runs: (the tasks, number of other runs in them)."""
        tasks, others = [], 0
        for batch in self.batches():
            alive = queued.get(batch.name, {})
            hit = [i for i in alive if i < len(batch.packs) and not set(keys).isdisjoint(batch.packs[i])]
            if hit:
                self.write(replace(batch, cancelled=tuple(sorted({*batch.cancelled, *hit}))))
            tasks += [alive[index] for index in hit]
            others += sum(key not in keys for index in hit for key in batch.packs[index])
        return tasks, others


def packed(
    tasks: Sequence[Task], seconds: Callable[[Task], float], settings: SlurmSettings
) -> list[tuple[Task, ...]]:
    """Tasks of the array: consecutive runs, as many as fill the time (or ``runs_per_job``)."""
    room = FILL * settings.time * 60 * settings.side_by_side
    packs: list[list[Task]] = []
    used = 0.0
    for task in tasks:
        needed = seconds(task)
        full = (
            len(packs[-1]) >= settings.runs_per_job
            if packs and settings.runs_per_job
            else used + needed > room
        )
        if not packs or full:
            packs.append([])
            used = 0.0
        packs[-1].append(task)
        used += needed
    return [tuple(pack) for pack in packs]


@dataclass(frozen=True)
class Snapshot:
    """How far a set of runs is. ``current``: (key, round, rounds) of runs at work, the first few."""

    total: int
    counts: Mapping[str, int]
    current: Sequence[tuple[str, int, int]] = ()
    waiting_for: str = ""

    @property
    def ended(self) -> int:
        """Runs that are done or diverged."""
        return self.counts.get("done", 0) + self.counts.get("diverged", 0)

    def __str__(self) -> str:
        """``12/72 runs ended: 11 done, 1 diverged, 8 running, 52 waiting``."""
        order = ("done", "diverged", "running", "waiting", "failed", "lost")
        counts = ", ".join(f"{self.counts[state]} {state}" for state in order if self.counts.get(state))
        return f"{self.ended}/{self.total} runs ended: {counts}{self.waiting_for}"


class View(Protocol):
    """Is told how far the runs are."""

    def show(self, snapshot: Snapshot) -> None:
        """Whenever it may have changed."""


@dataclass(frozen=True)
class Lost:
    """A run that has not ended and that no task carries out any more: its state and why."""

    key: str
    state: str
    why: str


class Cluster:
    """Submits what is missing, never what lives, and looks after it."""

    def __init__(
        self,
        results: Results,
        queue: Queue,
        settings: SlurmSettings,
        work: str,
        jobs: Path | None = None,
        tracking: tuple[TrackingSettings, Mapping[str, TrackedRun]] | None = None,
    ) -> None:
        """How runs are carried out.

        ``work``: ``module:function`` that carries one out; ``jobs``: the folder of submitit's files; ``tracking``: how
        the jobs track, and the description of each run by its key.
        """
        self.results, self.queue, self.settings, self.work = results, queue, settings, work
        self.tracking, self.tracked = tracking or (TrackingSettings(), {})
        self.notes = SubmissionLog(results)
        self.jobs = jobs or results.root / "launcher" / "jobs"
        self._tries: Counter[str] = Counter()
        self._statuses: dict[str, Status] = {}
        self._probe: tuple[PreflightCheck, str] | None = None
        self._full_at: int | None = None

    # What there is

    def ended(self, key: str) -> bool:
        """Whether a run has ended; once it has, its folder is not read again."""
        if key not in self._statuses:
            folder = self.results.run(key)
            status = folder.status()
            if status is None or not status.ended or not folder.complete(status):
                return False
            self._statuses[key] = status
        return True

    # Submitting

    def submit(self, tasks: Sequence[Task]) -> int:
        """Submit those that neither ended nor live; how many. Another launcher waits for its turn meanwhile."""
        with self.results.submission_lease():
            queued = self.queue.tasks()
            if self._full_at is not None and _number(queued) >= self._full_at:
                return 0
            self._full_at = None
            alive = self.notes.living(queued)
            there = self.results.there([task.key for task in tasks if task.key not in alive])
            todo = [
                task
                for task in tasks
                if task.key not in alive
                and not (task.key in there and (self.ended(task.key) or self._held(task.key)))
            ]
            if not todo:
                return 0
            packs = packed(todo, self._seconds(), self.settings)
            try:
                after = self._ask_first(queued or {}) if self.settings.probe else None
            except QueueFullError:
                self._full_at = _number(queued) or None
                return 0
            return self._submit_arrays(packs, after)

    def _submit_arrays(self, packs: Sequence[tuple[Task, ...]], after: str | None) -> int:
        """Submit in arrays of the cluster's size, as far as there is room; number of runs."""
        size = self.queue.largest_array()
        parallel = max(1, self.settings.max_parallel // -(-len(packs) // size))
        start = 0
        while start < len(packs):
            array = packs[start : start + size]
            try:
                self._submit(array, parallel, after)
            except QueueFullError:
                # The limit may be below the size of an array; what finds no room now finds it when some have ended.
                if start or len(array) == 1:
                    break
                size = len(array) // 2
                continue
            start += len(array)
            self._tries.update(task.key for pack in array for task in pack)
        if start < len(packs):
            # Not asked again before one of ours has ended; where there are none, others take the room.
            self._full_at = _number(self.queue.tasks()) or None
        return sum(map(len, packs[:start]))

    def _submit(self, array: Sequence[tuple[Task, ...]], parallel: int, after: str | None) -> None:
        """Submit one array. Raises `QueueFullError` and `ConfigError`, and then nothing of it is noted."""
        s = self.settings
        batch = Batch.new([task.key for task in pack] for pack in array)
        self.notes.write(batch)
        jobs = [
            BatchJob(
                pack,
                self.work,
                workers=s.runs_at_a_time,
                gpu_gb=s.gpu_gb_per_run,
                threads=s.threads,
                grace=s.grace,
                retries=s.retries,
                seconds=s.time * 60 - s.signal_delay,
                environment=environment(),
                tracking=self._tracking(pack),
            )
            for pack in array
        ]
        try:
            self.queue.submit(batch.name, jobs, parallel, after)
        except Away:
            raise  # the note stays: if there is such a job, it will be found by it
        except (QueueFullError, ConfigError):
            self.notes.forget(batch)
            raise

    def _tracking(self, pack: Sequence[Task]) -> Tracking | None:
        if not self.tracking.active:
            return None
        runs = [self.tracked.get(task.key, TrackedRun(task.key)) for task in pack]
        return Tracking(self.tracking, self.results.root.absolute(), tuple(runs))

    def _ask_first(self, queued: Queued) -> str | None:
        """The job that everything else waits for; None if the question was answered before."""
        s = self.settings
        where = json.dumps([s.place, s.slurm, s.preparation], sort_keys=True, default=str)
        probe = PreflightCheck.of(self.results.root, where, s.gpus_per_job)
        if probe.passed():
            return None
        asked = queued.get(probe.name)
        if asked:  # another launcher's
            job = asked[0].id
        else:
            probe.prepare()
            job = self.queue.submit_probe(probe.name, probe.script(s.preparation))
        self._probe = probe, job
        return job

    def _seconds(self) -> Callable[[Task], float]:
        """Time of a run: what another seed of the same configuration took."""
        known = known_seconds(self.results)
        return lambda task: known(task.key) or self.settings.minutes_per_run * 60

    # Looking after

    def follow(self, tasks: Sequence[Task], view: View) -> list[Lost]:
        """Until all runs have ended, or those that have not do not live any more, which are returned.

        Raises `ConfigError` if a node that was asked first cannot carry them out.
        """
        lost_before: set[str] = set()
        looked: set[str] = set()
        while True:
            alive = self.notes.living(self.queue.tasks())
            self._hear_probe(tasks)
            # A run whose task waits has not changed; reading the folders of thousands is what a file server feels.
            waiting = {key for key, task in alive.items() if not task.running} & looked
            open_ = [task for task in tasks if task.key in waiting or not self.ended(task.key)]
            looked = {task.key for task in tasks}
            lost = {task.key for task in open_ if task.key not in alive and not self._held(task.key)}
            why = reasons(task for key, task in alive.items() if key in waiting)
            view.show(replace(self._snapshot(tasks, open_, waiting, lost), waiting_for=why))
            if not open_:
                return []
            # A network file system may show the end of a run later than the scheduler: lost is what is lost twice.
            again = [task for task in open_ if task.key in lost & lost_before and self._may_try(task.key)]
            if again:
                with contextlib.suppress(Away):  # it is asked again at the next look
                    self.submit(again)
            elif lost == lost_before and len(lost) == len(open_):
                return self._lost(sorted(lost))
            lost_before = lost
            time.sleep(self.settings.poll)

    def _snapshot(
        self, tasks: Sequence[Task], open_: Sequence[Task], waiting: Collection[str], lost: Collection[str]
    ) -> Snapshot:
        ended = len(tasks) - len(open_)
        diverged = sum(status.state == "diverged" for status in self._statuses.values())
        counts = Counter({"done": ended - diverged, "diverged": diverged})
        current: list[tuple[str, int, int]] = []
        for task in open_:
            if task.key in waiting or task.key in lost:
                counts["waiting" if task.key in waiting else "lost"] += 1
                continue
            folder = self.results.run(task.key)
            status = folder.status()
            state = status.state if status is not None else "waiting"
            counts[state if state in ("running", "failed") else "waiting"] += 1
            if state == "running" and len(current) < ROWS:
                current.append((task.key, folder.last_round(), task.rounds))
        return Snapshot(len(tasks), counts, current)

    def _hear_probe(self, tasks: Sequence[Task]) -> None:
        """Forget a probe that has passed; `ConfigError` for one that has not, and nothing waits for it any more."""
        if self._probe is None:
            return
        probe, job = self._probe
        message = probe.message()
        if message is None:
            queued = self.queue.tasks()
            if queued is None or probe.name in queued:
                return
            # It has left the queue, perhaps between our two looks, and a network file system may be late.
            time.sleep(self.settings.poll)
            message = probe.message()
            if message is None:
                message = probe.explain(self.queue.ending(job)[1])
        self._probe = None
        if message:
            with self.results.submission_lease():
                cancelled, _ = self.notes.cancel(self.queue.tasks() or {}, {task.key for task in tasks})
            self.queue.cancel(cancelled)
            raise refused(message)

    def _held(self, key: str) -> bool:
        return holder_of(self.results.run(key).path) is not None

    def _may_try(self, key: str) -> bool:
        """Runs that failed by themselves were tried again in their job; the others are for what killed the job."""
        if self._tries[key] == 0:
            return not self._is_cancelled(key)
        status = self.results.run(key).status()
        failed = status is not None and status.state == "failed"
        return not failed and self._tries[key] <= self.settings.retries and not self._is_cancelled(key)

    def _is_cancelled(self, key: str) -> bool:
        place = self.notes.places().get(key)
        return place is not None and any(
            place.index in batch.cancelled for batch in self.notes.batches() if batch.name == place.batch
        )

    # What went wrong

    def _lost(self, keys: Sequence[str]) -> list[Lost]:
        places = self.notes.places()
        full = self._full_disk()
        found = []
        for key in keys:
            status = self.results.run(key).status()
            if status is not None and status.state == "failed":
                found.append(Lost(key, "failed", status.message))
            elif self._is_cancelled(key):
                found.append(
                    Lost(key, "cancelled", "its task was cancelled; the same command submits it anew")
                )
            else:
                why = full or (self._why(places[key]) if key in places else "no task carried it out")
                found.append(Lost(key, status.state if status is not None else "missing", why))
        return found

    def _full_disk(self) -> str:
        """The message of a disk that takes no megabyte more; "" where it does."""
        try:
            path = self.results.root / "launcher" / f".room-{secrets.token_hex(4)}"
            write_atomically(path, bytes(1 << 20))
            path.unlink(missing_ok=True)
        except StorageError as error:
            return str(error)
        return ""

    def _why(self, place: Place) -> str:
        """What a task left behind: the error that ended it, or the scheduler's word for its end; and its log."""
        log = task_log(self.jobs, place)
        if log is None:
            return "its task was never begun"
        job = log.name.removesuffix("_0_log.out")
        error = _last_words(log.with_name(f"{job}_0_result.pkl"))
        if not error:
            state, code = self.queue.ending(job)
            error = (
                f"its task {job} ended as {state} (exit code {code})" if state else f"its task {job} ended"
            )
        return f"{error}; log: {log}"


def reasons(tasks: Iterable[QueuedTask]) -> str:
    """What tasks wait for, in the scheduler's words: `` (Priority, Resources)``, or nothing."""
    found = sorted({task.reason for task in tasks} - {"", "None"})
    return f" ({', '.join(found)})" if found else ""


def _number(queued: Queued | None) -> int:
    """Tasks that wait or run."""
    return sum(map(len, (queued or {}).values()))


def task_log(jobs: Path, place: Place) -> Path | None:
    """The log of a task below ``jobs``, submitit's folder; None as long as it has not begun."""
    # The only task of a batch is no array to submitit: its number stands alone.
    alone = r"|\d+_0_log\.out" if place.index == 0 else ""
    pattern = re.compile(rf"\d+_{place.index}_0_log\.out{alone}")
    folder = jobs / place.batch
    found = sorted(path for path in folder.glob("*_log.out") if pattern.fullmatch(path.name))
    return found[-1] if found else None


def _last_words(result: Path) -> str:
    """The last line of the error that submitit wrote for a task; "" if there is none."""
    try:
        kind, content = pickle.loads(result.read_bytes())
    except Exception:  # noqa: BLE001 - half written, or by another version: no words
        return ""
    return str(content).strip().splitlines()[-1] if kind == "error" else ""


def known_seconds(results: Results) -> Callable[[str], float | None]:
    """Seconds that a run takes, by its key: what another seed of its configuration took; None if none has ended."""
    known: dict[str, float | None] = {}

    def seconds(key: str) -> float | None:
        name = key.partition("/")[0]
        if name not in known:
            paths = sorted((results.root / "runs" / name).glob("seed*"))
            statuses = (results.run(f"{name}/{path.name}").status() for path in paths)
            known[name] = next((s.seconds for s in statuses if s is not None and s.ended), None)
        return known[name]

    return seconds


def check_time(
    settings: SlurmSettings, intervals: Mapping[str, float], seconds: Callable[[str], float | None]
) -> None:
    """Refuse a time in which a run cannot get from one checkpoint to the next.

    ``intervals``: run -> share of it between two checkpoints, 0 to 1. Raises `ConfigError` for the longest known one.
    """
    needed = {key: share * (seconds(key) or 0.0) for key, share in intervals.items()}
    key = max(needed, key=lambda key: needed[key], default="")
    if key and needed[key] > settings.seconds_of_work:
        raise ConfigError(
            f"launcher.time: came {settings.time} minutes, of which {settings.seconds_of_work:.0f} s are for work; "
            f"from one checkpoint to the next {key} takes {needed[key]:.0f} s, as another seed of it did. Set "
            f"launcher.time to at least {int((needed[key] + settings.signal_delay + settings.grace) / 60) + 1}, or "
            "runtime.checkpoint_every (conf/config.yaml) to fewer rounds."
        )
