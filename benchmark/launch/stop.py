"""The request to stop, from a signal or another thread."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ctrl-C, the end by a batch system or `timeout`, a closed terminal, and Ctrl-\\."""

SECOND_PRESS = 1.0
"""Seconds between a first and a second Ctrl-C. `make` and other wrappers deliver one press twice within less."""


@dataclass
class StopRequest:
    """Whether to stop.

    Attributes:
        reason: Why; empty if nobody has asked for it.
        urgent: Whether to stop at once, without saving.
    """

    reason: str = ""
    urgent: bool = False
    _requested_at: float = 0.0

    def __call__(self) -> bool:
        return bool(self.reason)

    def request(self, reason: str, again: bool = False) -> None:
        """Ask to stop; ``again``, `SECOND_PRESS` seconds after the first request, asks to stop at once."""
        now = time.monotonic()
        if not self.reason:
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
