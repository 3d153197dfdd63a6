"""A worker of the local launcher: a process that does one task after another until its launcher lets go of it.

Over one duplex connection the launcher sends pickled payloads, or nothing (a message of no bytes) to ask for a stop;
the worker answers with ``("ready",)``, ``("progress", first, round, rounds)`` and
``("ended", status, message, seconds, (first, round, rounds) | None, leaving)``. A closed connection means that the
launcher is gone, and counts as a request to stop. Nothing here knows what a task is.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Work = Callable[[Any, Callable[[int, int], None], Callable[[], bool]], tuple[str, str]]
"""``work(payload, progress(round, rounds), stop()) -> (status, message)``; an exception is a failure of the task."""

STATUSES = ("done", "diverged", "failed", "interrupted", "busy")
"""What a work function may return."""

PROGRESS_SECONDS = 0.2
"""Time between two progress reports of a worker: however short a round, 64 workers send 320 a second."""

Rounds = tuple[int, int, int]
"""First reported round, last reported round, all rounds of the task."""


class Reporter:
    """The ``progress`` argument of a work function: hands on at most one report in `PROGRESS_SECONDS`.

    Every report carries the first round that the task named, so that what a resumed run did before counts as no speed.
    """

    def __init__(self, send: Callable[[Rounds], None]) -> None:
        self._send = send
        self._sent_at = -PROGRESS_SECONDS
        self.seen: Rounds | None = None

    def begin(self) -> None:
        """Forget the task before."""
        self.seen = None

    def __call__(self, round: int, rounds: int) -> None:
        """Note that ``round`` of ``rounds`` rounds are done."""
        self.seen = (self.seen[0] if self.seen else round, round, rounds)
        now = time.monotonic()
        if now - self._sent_at >= PROGRESS_SECONDS:
            self._sent_at = now
            self._send(self.seen)


def load(work: str) -> Work:
    """Import ``module:function``; whatever the import raises, and AttributeError for a function that is not there."""
    module, _, name = work.partition(":")
    function: Work = getattr(importlib.import_module(module), name)
    return function


def set_threads(threads: int) -> None:
    """Give torch ``threads`` threads, if anything has imported torch; the number decides about the last bits."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def attempt(
    work: Work, payload: Any, progress: Callable[[int, int], None], stop: Callable[[], bool]
) -> tuple[str, str, bool]:
    """Call a work function: (status, message, whether it raised).

    After an exception the status is ``failed``; the message's first line names the exception, its traceback follows.
    """
    try:
        status, message = work(payload, progress, stop)
        if status not in STATUSES:
            raise ValueError(f"the work function returned {status!r}; allowed: {', '.join(STATUSES)}")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever one task raises, the tasks after it go on
        summary = f"{type(error).__name__}: {error}".strip().rstrip(":").splitlines()[0]
        return "failed", f"{summary}\n{''.join(traceback.format_exception(error)).rstrip()}", True
    return status, str(message), False


def _cuda_in_use() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


class _Server:
    """The worker's side of the connection. A thread reads it, so that asking ``stop`` costs no system call."""

    def __init__(self, connection: Connection, grace: float) -> None:
        self.connection = connection
        self.grace = grace
        self.stop = threading.Event()
        self.inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def leave(self, *_: object) -> None:
        """Stop the current task and take no other one; also the handler of SIGTERM."""
        self.stop.set()
        self.inbox.put(None)

    def listen(self) -> None:
        """Read until the launcher closes the connection or dies."""
        try:
            while True:
                message = self.connection.recv_bytes()
                if message:
                    self.inbox.put(message)
                else:
                    self.leave()
        except (EOFError, OSError):
            self.leave()
        # Nobody waits for this process any more. A task that does not look at `stop` must not outlive its launcher
        # for hours, unseen, in the way of the next launch.
        time.sleep(self.grace)
        os._exit(1)

    def send(self, *message: object) -> None:
        """Tell the launcher; if it is gone, stop, but let the task save its state first."""
        try:
            self.connection.send(message)
        except OSError:
            self.leave()

    def serve(self, work: Work, threads: int) -> None:
        """Do tasks until told to leave."""
        reporter = Reporter(lambda rounds: self.send("progress", *rounds))
        self.send("ready")
        while (content := self.inbox.get()) is not None:
            began = time.perf_counter()
            reporter.begin()
            set_threads(threads)
            # Unpickled where a failure is the task's, not the worker's.
            status, message, raised = attempt(
                lambda raw, progress, stop: work(pickle.loads(raw), progress, stop),
                content,
                reporter,
                self.stop.is_set,
            )
            # After an error on a GPU its context may be unusable, and its memory taken, for all tasks to come.
            leaving = self.stop.is_set() or (raised and _cuda_in_use())
            self.send("ended", status, message, time.perf_counter() - began, reporter.seen, leaving)
            if leaving:
                break


def serve(connection: Connection, work: str, threads: int, grace: float) -> None:
    """Be a worker: the whole life of a process that the launcher started."""
    # A terminal sends Ctrl-C and hang-ups to every process of the group; the launcher decides what they mean.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    faulthandler.enable()
    server = _Server(connection, grace)
    # SIGTERM reaches workers too where a whole job is ended (a batch system, `timeout`): save, then leave.
    signal.signal(signal.SIGTERM, server.leave)
    threading.Thread(target=server.listen, name="launcher", daemon=True).start()
    server.serve(load(work), threads)
