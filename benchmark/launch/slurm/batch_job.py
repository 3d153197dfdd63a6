"""The body of a batch job: several runs, some side by side, that save their state when the job has to end.

submitit calls a `BatchJob` on the node, and its `checkpoint` when SIGUSR2 announces the end of the time or preemption.
The job is then queued again with what `checkpoint` returns. A job that is killed without a signal is queued again as it
was. In both cases runs continue from their own checkpoints, and those that have ended are not touched: everything about
a run is in its folder, and a job keeps nothing.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections import Counter
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
from benchmark.tracking.process import tracking
from benchmark.tracking.settings import TrackedRun, TrackingSettings

WAIT_SECONDS = STALE_SECONDS + 2 * BEAT_SECONDS
"""How long a run that another process holds is tried again: that process may be dead and not yet known to be."""


@dataclass
class BatchJob:
    """Runs that share a job.

    Attributes:
        tasks: The runs, in the order in which they begin.
        work: Name of the work function, ``module:function``.
        workers: Number of runs side by side; None for one per GPU or core of the job.
        threads: Threads of each run.
        grace: Seconds that runs have to save their state.
        retries: How often a run that failed is tried again in this job.
        gpu_gb: Memory of a GPU that a run needs, in GB. As many runs as fit are carried out side by side.
        seconds: Time from the beginning of the job to the signal that its time is up; None if not known.
        environment: Versions that the job must find (`preflight.environment`); None for any.
        tracking: How the runs are tracked: settings, results folder, runs; None for not at all.
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
    tracking: tuple[TrackingSettings, Path, tuple[TrackedRun, ...]] | None = None
    _log: Log | None = field(default=None, repr=False, compare=False)
    _began: float = field(default=0.0, repr=False, compare=False)
    _stop: StopRequest | None = field(default=None, repr=False, compare=False)
    _thread: threading.Thread | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to the process at work."""
        return self.__dict__ | {"_stop": None, "_thread": None, "_log": None}

    def __call__(self) -> dict[str, int]:
        """Carry out what has not ended; number of runs by state.

        Raises:
            RuntimeError: No worker can be started, or this machine has other packages than expected.
        """
        other = differences(self.environment or {})
        if other:
            raise RuntimeError(
                f"{socket.gethostname()} has other versions: {other}. Exclude the node (launcher.slurm), or make "
                ".venv anew for it."
            )
        self._log, self._began = Log(), time.monotonic()
        outcomes: dict[str, Outcome] = {}
        errors: list[BaseException] = []
        tracked = tracking(*self.tracking) if self.tracking else contextlib.nullcontext()
        with tracked, contextlib.closing(StopRequest()) as stop:
            # A thread carries out the runs, so that the main thread is free for signals.
            thread = threading.Thread(target=self._in_thread, args=(stop, outcomes, errors))
            self._stop, self._thread = stop, thread
            before = signal.signal(signal.SIGTERM, lambda *_: stop.request("SIGTERM"))
            thread.start()
            try:
                while thread.is_alive():
                    # A signal that another thread receives is handled when this wait ends, so it is short.
                    thread.join(0.1)
            finally:
                signal.signal(signal.SIGTERM, before)
                self._stop = self._thread = None
        if errors:
            raise errors[0]
        states = [outcomes[t.key].state if t.key in outcomes else RunState.INTERRUPTED for t in self.tasks]
        return {str(state): number for state, number in Counter(states).items()}

    def checkpoint(self) -> Any:
        """Let all runs save their state; the submission that continues from there."""
        from submitit.helpers import DelayedSubmission

        if self._stop is not None and self._thread is not None:
            self._stop.request("SIGUSR2")
            self._thread.join(self.grace + 10)
        time_is_up = self.seconds is not None and time.monotonic() - self._began > 0.9 * self.seconds
        if time_is_up and self._log is not None and not self._log.gained:
            raise RuntimeError(
                f"no run of this task finished one round before its time was up ({self.seconds:.0f} s), and it would "
                "be queued again for ever. Raise launcher.time."
            )
        return DelayedSubmission(self)

    def _in_thread(
        self, stop: StopRequest, outcomes: dict[str, Outcome], errors: list[BaseException]
    ) -> None:
        try:
            self._carry_out(stop, outcomes)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            errors.append(error)

    def _carry_out(self, stop: StopRequest, outcomes: dict[str, Outcome]) -> None:
        left, failures = list(self.tasks), Counter[str]()
        waited, workers = 0.0, self._workers()
        while left and not stop.reason:
            found = {outcome.key: outcome for outcome in self._launch(left, stop, workers)}
            outcomes |= found
            if any("OutOfMemoryError" in outcome.message for outcome in found.values()):
                workers = max(1, len(gpu_memory()))  # What did not fit beside others may fit alone.
            failures.update(key for key, outcome in found.items() if outcome.state is RunState.FAILED)
            left = [task for task in left if self._again(found.get(task.key), failures[task.key], waited)]
            if left and all(found[task.key].state is RunState.RUNNING for task in left if task.key in found):
                began = time.monotonic()
                while not stop.reason and time.monotonic() - began < BEAT_SECONDS:
                    time.sleep(0.2)
                waited += BEAT_SECONDS

    def _again(self, outcome: Outcome | None, failures: int, waited: float) -> bool:
        """Whether to try a run once more. A run without an outcome was not begun."""
        if outcome is None or outcome.state is RunState.INTERRUPTED:
            return True
        if outcome.state is RunState.RUNNING:
            return waited < WAIT_SECONDS
        return outcome.state is RunState.FAILED and failures <= self.retries

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
    """Prints one line for each run that begins or ends: the log of a batch job.

    Attributes:
        gained: Whether any run finished a round.
    """

    def __init__(self) -> None:
        self.gained = False

    def task_started(self, key: str) -> None:
        """Print the key."""
        self._print(f"begins      {key}")

    def progress(self, key: str, rounds: Rounds) -> None:
        """Note that a run makes progress."""
        self.gained = self.gained or rounds.done > rounds.first

    def task_ended(self, outcome: Outcome) -> None:
        """Print the state, with the whole message."""
        self.gained = self.gained or outcome.state.ended
        self._print(f"{outcome.state:<11} {outcome.key} ({outcome.seconds:.0f} s) {outcome.message}".rstrip())

    def stopping(self, message: str) -> None:
        """Print the reason."""
        self._print(f"stopping    {message}")

    def _print(self, line: str) -> None:
        print(f"{time.strftime('%F %T')} {line}", flush=True)
