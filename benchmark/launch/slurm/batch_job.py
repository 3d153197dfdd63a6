"""The body of a batch job: several runs, some side by side, that save their state when the job has to end.

submitit calls a `BatchJob` on the node, and its `checkpoint` when SIGUSR2 announces the end of the time or preemption.
The job is then queued again with what `checkpoint` returns. A job that is killed without a signal is queued again as it
was. In both cases runs continue from their own checkpoints, and those that have ended are not touched: everything about
a run is in its folder, and a job keeps nothing.
"""

import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from benchmark.launch.local import launch
from benchmark.launch.resources import gpu_memory, usable_cores
from benchmark.launch.slurm.preflight import differences
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.tasks import Listener, Outcome, StopRequest, Task, say, signals_request_stop
from benchmark.runs.lease import BEAT_SECONDS, STALE_SECONDS
from benchmark.runs.status import RunState

Tracker = Callable[[], AbstractContextManager[None]]

WAIT_SECONDS = STALE_SECONDS + 2 * BEAT_SECONDS
"""How long a run that another process holds is tried again: that process may be dead and not yet known to be."""


@dataclass
class BatchJob:
    """Runs that share a job.

    Attributes:
        tasks: The runs, in the order in which they begin.
        work: Name of the work function, ``module:function``.
        settings: Settings of the submission.
        environment: Versions that the job must find (`preflight.environment`); empty for any.
        tracker: Tracks the runs inside its ``with``.
    """

    tasks: tuple[Task, ...]
    work: str
    settings: SlurmSettings
    environment: Mapping[str, str] = field(default_factory=dict)
    tracker: Tracker = nullcontext
    _session: "_Session | None" = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to the process at work."""
        return self.__dict__ | {"_session": None}

    def __call__(self) -> dict[str, int]:
        """Carry out what has not ended; number of runs by state.

        Raises:
            LaunchError: No worker can be started.
            RuntimeError: This machine has other packages than expected.
        """
        other = differences(self.environment)
        if other:
            raise RuntimeError(
                f"{socket.gethostname()} has other versions: {other}. Exclude the node (launcher.slurm), or make "
                ".venv anew for it."
            )
        # A thread carries out the runs, so that the main thread is free for signals.
        with self.tracker(), ThreadPoolExecutor(1) as thread:
            self._session = session = _Session(self)
            with signals_request_stop(session.stop):
                session.future = thread.submit(session.carry_out)
                try:
                    # A signal that another thread receives is handled when this wait ends, so it is short.
                    while not session.future.done():
                        wait([session.future], 0.1)
                finally:
                    self._session = None
        states = session.future.result()
        return dict(Counter(str(states.get(task.key, RunState.INTERRUPTED)) for task in self.tasks))

    def checkpoint(self) -> Any:
        """Let all runs save their state; the submission that continues from there."""
        from submitit.helpers import DelayedSubmission

        session, seconds = self._session, self.settings.seconds_to_signal
        if session is not None:
            session.stop.request("SIGUSR2")
            wait([session.future] if session.future else [], self.settings.grace + 10)
            if time.monotonic() - session.began > 0.9 * seconds and not session.log.gained:
                raise RuntimeError(
                    f"no run of this task finished one round before its time was up ({seconds:.0f} s), and it would "
                    "be queued again for ever. Raise launcher.time."
                )
        return DelayedSubmission(self)


class _Session:
    """One process at work on a job."""

    def __init__(self, job: BatchJob) -> None:
        self.job = job
        self.stop, self.log, self.began = StopRequest(), Log(), time.monotonic()
        self.future: Future[dict[str, RunState]] | None = None

    def carry_out(self) -> dict[str, RunState]:
        """Carry out the runs, some of them several times; state of each that was begun."""
        settings, stop = self.job.settings, self.stop
        states: dict[str, RunState] = {}
        failures: Counter[str] = Counter()
        left, waited, workers = list(self.job.tasks), 0.0, runs_at_a_time(settings)
        while left and not stop.reason:
            outcomes = launch(
                left,
                self.job.work,
                kind="local",
                workers=workers,
                threads=settings.threads,
                grace=settings.grace,
                listener=self.log,
                stop=stop,
            )
            found = {outcome.key: outcome for outcome in outcomes}
            states |= {key: outcome.state for key, outcome in found.items()}
            if any(outcome.error == "OutOfMemoryError" for outcome in outcomes):
                workers = max(1, len(gpu_memory()))  # What did not fit beside others may fit alone.
            failures.update(outcome.key for outcome in outcomes if outcome.state is RunState.FAILED)
            left = [task for task in left if self._again(found.get(task.key), failures[task.key], waited)]
            if left and all(found[task.key].state is RunState.RUNNING for task in left if task.key in found):
                began = time.monotonic()
                while not stop.reason and time.monotonic() - began < BEAT_SECONDS:
                    time.sleep(0.2)
                waited += BEAT_SECONDS
        return states

    def _again(self, outcome: Outcome | None, failures: int, waited: float) -> bool:
        """Whether to try a run once more. A run without an outcome was not begun."""
        if outcome is None or outcome.state is RunState.INTERRUPTED:
            return True
        if outcome.state is RunState.RUNNING:
            return waited < WAIT_SECONDS
        return outcome.state is RunState.FAILED and failures <= self.job.settings.retries


def runs_at_a_time(settings: SlurmSettings) -> int:
    """Runs side by side on this node: as many as the settings say, or as fit on its GPUs and cores."""
    if settings.workers is not None or settings.gpu_gb_per_run is None:
        return settings.side_by_side
    fitting = sum(max(1, int(memory // settings.gpu_gb_per_run)) for memory in gpu_memory())
    return max(1, min(fitting, usable_cores() // settings.threads))


class Log(Listener):
    """Prints one line for each run that begins or ends: the log of a batch job.

    Attributes:
        gained: Whether any run finished a round.
    """

    def __init__(self) -> None:
        self.gained = False
        self._first: dict[str, int] = {}

    def task_started(self, key: str) -> None:
        """Print the key."""
        self._first.pop(key, None)
        self._print(f"begins      {key}")

    def progress(self, key: str, done: int) -> None:
        """Note that a run makes progress."""
        self.gained = self.gained or done > self._first.setdefault(key, done)

    def task_ended(self, outcome: Outcome) -> None:
        """Print the state, with the whole message."""
        self.gained = self.gained or outcome.state.ended
        self._print(f"{outcome.state:<11} {outcome.key} ({outcome.seconds:.0f} s) {outcome.message}".rstrip())

    def stopping(self, message: str) -> None:
        """Print the reason."""
        self._print(f"stopping    {message}")

    def _print(self, line: str) -> None:
        say(f"{time.strftime('%F %T')} {line}")
