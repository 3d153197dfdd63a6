"""The body of a batch job: several runs, some side by side, that save their state when the scheduler wants its place.

submitit calls a `BatchJob` on the node, and its `checkpoint` when SIGUSR2 says that time is up or that somebody else
is to have the place; the job is then queued again with what that returns. A job that is killed without a word is
queued again as it was. Both ways its runs go on from their own checkpoints, and those that have ended are not touched:
what a job has done stands in the folders of its runs, and nothing about it is kept here.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.launch.local import launch
from benchmark.launch.resources import gpu_memory, usable_cores
from benchmark.launch.slurm.preflight import differences
from benchmark.launch.tasks import Listener, Outcome, Rounds, StopRequest, Task
from benchmark.runs.lease import BEAT_SECONDS, STALE_SECONDS
from benchmark.runs.status import RunState
from benchmark.tracking.settings import TrackedRun, TrackingSettings, tracking

WAIT_SECONDS = STALE_SECONDS + 2 * BEAT_SECONDS
"""A run that another process holds is tried again for so long: the one before may be dead, and not yet known to be."""


@dataclass(frozen=True)
class Tracking:
    """What a job tracks of its runs (`benchmark.tracking.settings`)."""

    settings: TrackingSettings
    root: Path
    runs: tuple[TrackedRun, ...]


@dataclass
class BatchJob:
    """Runs that share a job.

    Attributes:
        tasks: the runs, in the order in which they are begun.
        work: ``module:function`` that carries one out.
        workers: how many side by side; null for one per GPU or core of the job.
        threads: threads of each.
        grace: seconds that runs have to save their state.
        retries: how often a run that failed by itself, or whose worker died, is tried again in this job.
        gpu_gb: memory of a GPU that a run needs, in GB; with it as many run side by side as fit.
        seconds: from the beginning of the job to the signal that its time is up; None: not known.
        environment: versions that the job must find (`preflight.environment`); None: whatever there is.
        tracking: how the runs are tracked; None: not at all.
    """

    tasks: tuple[Task, ...]
    work: str
    workers: int | None = None
    threads: int = 1
    grace: float = 60.0
    retries: int = 1
    gpu_gb: float | None = None
    seconds: float | None = None
    environment: Mapping[str, str] | None = None
    tracking: Tracking | None = None
    _log: Log | None = field(default=None, repr=False, compare=False)
    _began: float = field(default=0.0, repr=False, compare=False)
    _stop: StopRequest | None = field(default=None, repr=False, compare=False)
    _thread: threading.Thread | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to the process that is at work."""
        return self.__dict__ | {"_stop": None, "_thread": None, "_log": None}

    def __call__(self) -> dict[str, int]:
        """Carry out what has not ended; how many runs ended in which way.

        RuntimeError if no worker can be started, or if the packages of this machine are other ones than expected.
        """
        unlike = differences(self.environment or {})
        if unlike:
            raise RuntimeError(
                f"{socket.gethostname()} has other versions: {unlike}. Exclude the node (launcher.slurm), or make "
                ".venv anew for it."
            )
        self._log, self._began = Log(), time.monotonic()
        outcomes: dict[str, Outcome] = {}
        errors: list[BaseException] = []
        with self._tracked(), contextlib.closing(StopRequest()) as stop:
            # The runs are watched by a thread, so that the main one is free for signals.
            thread = threading.Thread(target=self._watch, args=(stop, outcomes, errors))
            self._stop, self._thread = stop, thread
            before = signal.signal(signal.SIGTERM, self._terminated)
            thread.start()
            try:
                while thread.is_alive():
                    # Short: a signal that another thread of the process receives is looked at when this wait ends.
                    thread.join(0.1)
            finally:
                signal.signal(signal.SIGTERM, before)
                self._stop = self._thread = None  # a signal from here on finds nothing to stop
        if errors:
            raise errors[0]
        counts: dict[str, int] = {}
        for task in self.tasks:
            state = outcomes[task.key].state if task.key in outcomes else RunState.INTERRUPTED
            counts[state] = counts.get(state, 0) + 1
        return counts

    def _tracked(self) -> contextlib.AbstractContextManager[object]:
        if self.tracking is None:
            return contextlib.nullcontext()
        return tracking(self.tracking.settings, self.tracking.root, self.tracking.runs)

    def checkpoint(self) -> Any:
        """Let all runs save their state; the submission that goes on from there."""
        from submitit.helpers import DelayedSubmission

        if self._stop is not None and self._thread is not None:
            self._stop.request("SIGUSR2")
            self._thread.join(self.grace + 10)
        if self._in_vain():
            raise RuntimeError(
                f"no run of this task finished one round before its time was up ({self.seconds:.0f} s); it would be "
                "queued again for ever. Raise launcher.time."
            )
        return DelayedSubmission(self)

    def _in_vain(self) -> bool:
        """Whether the whole time of the job has passed without a round."""
        time_is_up = self.seconds is not None and time.monotonic() - self._began > 0.9 * self.seconds
        return time_is_up and self._log is not None and not self._log.gained

    def _terminated(self, *_: object) -> None:
        if self._stop is not None:
            self._stop.request("SIGTERM")

    def _watch(self, stop: StopRequest, outcomes: dict[str, Outcome], errors: list[BaseException]) -> None:
        try:
            self._carry_out(stop, outcomes)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            errors.append(error)

    def _carry_out(self, stop: StopRequest, outcomes: dict[str, Outcome]) -> None:
        left, tries = list(self.tasks), dict.fromkeys((task.key for task in self.tasks), 0)
        waited, workers = 0.0, self._workers()
        while left and not stop.reason:
            found = {outcome.key: outcome for outcome in self._launch(left, stop, workers)}
            outcomes |= found
            if any("OutOfMemoryError" in outcome.message for outcome in found.values()):
                workers = max(1, len(gpu_memory()))  # what did not fit beside others may fit alone
            for key, outcome in found.items():
                tries[key] += outcome.state is RunState.FAILED
            left = [task for task in left if self._again(found.get(task.key), tries[task.key], waited)]
            if left and all(found[task.key].state is RunState.RUNNING for task in left if task.key in found):
                began = time.monotonic()
                while not stop.reason and time.monotonic() - began < BEAT_SECONDS:
                    time.sleep(0.2)
                waited += BEAT_SECONDS

    def _again(self, outcome: Outcome | None, tries: int, waited: float) -> bool:
        """Whether a run is to be tried once more; one without an outcome was not begun."""
        if outcome is None or outcome.state is RunState.INTERRUPTED:
            return True
        if outcome.state is RunState.RUNNING:
            return waited < WAIT_SECONDS
        return outcome.state is RunState.FAILED and tries <= self.retries

    def _launch(self, tasks: Sequence[Task], stop: StopRequest, workers: int | None) -> list[Outcome]:
        return launch(
            tasks,
            self.work,
            kind="local",
            workers=workers,
            threads=self.threads,
            grace=self.grace,
            listener=self._log or Log(),
            stop=stop,
        )

    def _workers(self) -> int | None:
        if self.workers is not None or self.gpu_gb is None:
            return self.workers
        fitting = sum(max(1, int(memory // self.gpu_gb)) for memory in gpu_memory())
        return max(1, min(fitting, usable_cores() // self.threads))


class Log(Listener):
    """One line for each run that begins or ends: the log of a batch job. ``gained``: whether any run got further."""

    def __init__(self) -> None:
        self.gained = False
        self._first: dict[str, int] = {}

    def started(self, tasks: Sequence[Task]) -> None:
        """Nothing has happened yet."""

    def task_started(self, key: str) -> None:
        """Say so."""
        self._say(f"begins      {key}")

    def progress(self, key: str, rounds: Rounds) -> None:
        """Stands in the run's folder; here only whether there is any."""
        self.gained = self.gained or rounds.done > rounds.first

    def task_ended(self, outcome: Outcome) -> None:
        """Say how, with the whole message of what went wrong."""
        self.gained = self.gained or outcome.state.ended
        self._say(f"{outcome.state:<11} {outcome.key} ({outcome.seconds:.0f} s) {outcome.message}".rstrip())

    def stopping(self, message: str) -> None:
        """Say why."""
        self._say(f"stopping    {message}")

    def finished(self, outcomes: Sequence[Outcome]) -> None:
        """All has been said."""

    def _say(self, line: str) -> None:
        print(f"{time.strftime('%F %T')} {line}", flush=True)
