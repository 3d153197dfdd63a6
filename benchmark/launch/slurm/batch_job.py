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
from typing import TYPE_CHECKING, Any

from benchmark.launch.local import launch
from benchmark.launch.slurm.preflight import differences
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.tasks import Listener, Outcome, StopRequest, Task, say, signals_request_stop
from benchmark.runs.index import RunIndex
from benchmark.runs.lease import BEAT_SECONDS, STALE_SECONDS
from benchmark.runs.status import RunState
from benchmark.runs.store import ResultsFolder

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

Tracker = Callable[[], AbstractContextManager[None]]

PATIENCE = STALE_SECONDS + 2 * BEAT_SECONDS
"""How long a run that another process holds is tried again: that process may be dead and not yet known to be."""


@dataclass
class BatchJob:
    """Runs that share a job.

    Attributes:
        results: The results folder.
        tasks: The runs, in the order in which they begin.
        work: Name of the work function, ``module:function``.
        settings: Settings of the submission.
        environment: Versions that the job must find (`preflight.environment`); empty for any.
        tracker: Tracks the runs inside its ``with``.
    """

    results: ResultsFolder
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
        stop = StopRequest()
        with self.tracker(), ThreadPoolExecutor(1) as thread, signals_request_stop(stop):
            future = thread.submit(self._carry_out, stop)
            self._session = _Session(stop, future, self.rounds())
            try:
                # A signal that another thread receives is handled when this wait ends, so it is short.
                while not future.done():
                    wait([future], 0.1)
            finally:
                self._session = None
        states = {outcome.key: outcome.state for outcome in future.result()}
        return dict(Counter(str(states.get(task.key, RunState.INTERRUPTED)) for task in self.tasks))

    def _carry_out(self, stop: StopRequest) -> list[Outcome]:
        here, retries = self.settings.on_node, self.settings.retries
        return launch(
            self.tasks, self.work, here, retries=retries, patience=PATIENCE, listener=Log(), stop=stop
        )

    def rounds(self) -> list[tuple[bool, int]]:
        """(whether it has ended, the round that its folder states) of each run."""
        index = RunIndex(self.results)
        statuses = (index.status(task.key) for task in self.tasks)
        return [(False, 0) if status is None else (status.ended, status.round) for status in statuses]

    def checkpoint(self) -> "DelayedSubmission":
        """Let all runs save their state; the submission that continues from there."""
        session, seconds = self._session, self.settings.seconds_to_signal
        if session is not None:
            session.stop.request("SIGUSR2")
            wait([session.future], self.settings.grace + 10)
            if time.monotonic() - session.began > 0.9 * seconds and self.rounds() == session.rounds:
                raise RuntimeError(
                    f"no run of this task finished one round before its time was up ({seconds:.0f} s), and it would "
                    "be queued again for ever. Raise launcher.time."
                )
        from submitit.helpers import DelayedSubmission  # slow, and only a job needs it

        return DelayedSubmission(self)


@dataclass(frozen=True)
class _Session:
    """One process at work on a job. ``rounds`` are those of its runs when it began."""

    stop: StopRequest
    future: Future[list[Outcome]]
    rounds: list[tuple[bool, int]]
    began: float = field(default_factory=time.monotonic)


class Log(Listener):
    """Prints one line for each run that begins or ends: the log of a batch job."""

    def task_started(self, key: str) -> None:
        """Print the key."""
        self._print(f"begins      {key}")

    def task_ended(self, outcome: Outcome) -> None:
        """Print the state, with the whole message."""
        self._print(f"{outcome.state:<11} {outcome.key} ({outcome.seconds:.0f} s) {outcome.message}".rstrip())

    def stopping(self, message: str) -> None:
        """Print the reason."""
        self._print(f"stopping    {message}")

    def _print(self, line: str) -> None:
        say(f"{time.strftime('%F %T')} {line}")
