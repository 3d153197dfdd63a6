"""What every launcher shares: tasks, their outcomes, who listens to them, and the request to stop.

A task is a key and a payload. A work function, named as ``module:function``, carries it out. Nothing here knows
configurations, results or torch, so launchers can be tested with work functions of three lines.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from benchmark.errors import printable
from benchmark.runs.status import RunState

RUN_WORK = "benchmark.runs.execute:work"
"""The work function that carries out one run; its payload is a plain configuration."""

Work = Callable[[Any, Callable[[], bool]], tuple[str, ...]]
"""``work(payload, stop())`` returns the fields of a `benchmark.runs.status.RunResult`. An exception is a failure."""

WORKER_DIED = "WorkerDied"
"""Errors of an `Outcome` that come from the system, and may not come again: the second one is torch's."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ctrl-C, the end by a batch system or `timeout`, a closed terminal, and Ctrl-\\."""

SECOND_PRESS = 1.0
"""Seconds between a first and a second Ctrl-C. `make` and other wrappers deliver one press twice within less."""


@dataclass(frozen=True)
class Task:
    """One thing to do: a unique readable key, and a picklable payload."""

    key: str
    payload: Any


@dataclass(frozen=True)
class Outcome:
    """How a task ended.

    Attributes:
        key: Key of the task.
        state: `RunState.RUNNING` means that another process works on the run. `RunState.FAILED` is also the state of a
            task whose worker process died; the message says so.
        message: The reason in its first line. A traceback or the last output of a worker may follow.
        seconds: Time that the task took.
        error: Name of the class of the exception by which the task failed, or an empty string.
    """

    key: str
    state: RunState
    message: str
    seconds: float
    error: str = ""


class Listener:
    """Is told what happens, in the thread of the launcher. Calls must be quick; an exception stops the launch.

    It is not told how far runs are: the folders of the runs say it.
    """

    def started(self, tasks: Sequence[Task]) -> None:
        """Called before the first task."""

    def task_started(self, key: str) -> None:
        """Called when a task begins, perhaps for another time."""

    def task_ended(self, outcome: Outcome) -> None:
        """Called when a task has ended. One that failed may begin once more."""

    def look(self) -> None:
        """Called many times a second while tasks are carried out."""

    def stopping(self, message: str) -> None:
        """Called when a stop was requested. Tasks that have begun save their state."""

    def finished(self) -> None:
        """Called last, also if the launch ends by an error."""


def say(line: str, end: str = "\n") -> None:
    """Print a line about how far runs are. They go on if it cannot be printed; the end of the command says so."""
    with contextlib.suppress(OSError):
        print(printable(line), end=end, flush=True)


@dataclass
class StopRequest:
    """A request to stop, from a signal or another thread.

    Attributes:
        reason: Why to stop; None if nobody has asked for it.
        urgent: Whether to stop at once, without saving.
    """

    reason: str | None = None
    urgent: bool = False
    _requested_at: float = 0.0

    def request(self, reason: str, again: bool = False) -> None:
        """Ask to stop; ``again``, `SECOND_PRESS` seconds after the first request, asks to stop at once."""
        now = time.monotonic()
        if self.reason is None:
            self.reason, self._requested_at = reason, now
        elif again and now - self._requested_at >= SECOND_PRESS:
            self.urgent = True


@contextlib.contextmanager
def signals_request_stop(stop: StopRequest, raises: bool = False) -> Iterator[None]:
    """Inside the ``with``, the signals of `STOP_SIGNALS` request a stop. Only the main thread can catch signals.

    A signal that is ignored stays ignored, since `nohup` and background jobs of scripts ask for that.

    Args:
        stop: The request.
        raises: Raise KeyboardInterrupt for an urgent request.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        stop.request(signal.Signals(number).name, again=number == signal.SIGINT)
        if raises and stop.urgent:
            raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
