"""Signals that ask a run to save its state and end: of a terminal, of a scheduler, and submitit's own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that the run writes a checkpoint and ends by itself."""
    event = threading.Event()
    old = {
        number: signal.signal(number, lambda *_: event.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield event
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def in_submitit_job() -> bool:
    """Whether this process is a job that submitit started."""
    return "SUBMITIT_FOLDER" in os.environ


class Requeue:
    """Puts off submitit's answer to its signal (time is up, or the place is wanted) until the run has saved its state.

    submitit answers at once: it queues the job again and ends the process, in the middle of a round. Inside the
    ``with`` the signal only sets ``stop``; :meth:`go` then lets submitit answer. A run that has not come to a point
    where it can stop within ``grace`` seconds is ended as submitit does it, and goes on from its last checkpoint.
    """

    def __init__(self, stop: threading.Event, grace: float) -> None:
        self.asked = False
        self._stop, self._grace = stop, grace
        self._number: signal.Signals | None = None
        self._answer: Callable[[int, FrameType | None], Any] | None = None
        self._alarm: Any = signal.SIG_DFL

    def __enter__(self) -> Requeue:
        """Take the signal over; outside of a submitit job nothing."""
        if in_submitit_job():
            from submitit import JobEnvironment

            number = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
            answer = signal.getsignal(number)
            if callable(answer):
                self._number, self._answer = number, answer
                self._alarm = signal.signal(signal.SIGALRM, self._too_late)
                signal.signal(number, self._ask)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give it back."""
        if self._number is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(self._number, self._answer)
            signal.signal(signal.SIGALRM, self._alarm)

    def go(self) -> None:
        """Let submitit queue the job again, which ends this process; nothing if it was not asked to."""
        if self.asked and self._number is not None and self._answer is not None:
            self._answer(self._number, None)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked = True
            signal.setitimer(signal.ITIMER_REAL, self._grace)
        self._stop.set()

    def _too_late(self, number: int, frame: FrameType | None) -> None:
        self.go()
