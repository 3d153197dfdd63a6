"""A worker of the local launcher: a process that carries out one task after another.

Over one duplex connection the launcher sends tasks, or None to ask for a stop. The worker answers with ``("ready",)``,
``("progress", done)`` and ``("ended", outcome, leaving)``. A closed connection means that the launcher is gone, and
counts as a request to stop.
"""

import faulthandler
import importlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

from benchmark.launch.tasks import Outcome, Task, Work
from benchmark.runs.status import RunResult, RunState
from benchmark.system import explain

PROGRESS_SECONDS = 0.2
"""Time between two progress reports of a worker."""


def _throttled(send: Callable[[int], None]) -> Callable[[int, int], None]:
    """The ``progress`` argument of a work function. Sends at most one report in `PROGRESS_SECONDS`."""
    sent_at = -PROGRESS_SECONDS

    def progress(round: int, rounds: int) -> None:
        nonlocal sent_at
        now = time.monotonic()
        if now - sent_at >= PROGRESS_SECONDS:
            sent_at = now
            send(round)

    return progress


def load(work: str) -> Work:
    """Import ``module:function``. Raises whatever the import raises, and AttributeError for a missing function."""
    module, _, name = work.partition(":")
    function: Work = getattr(importlib.import_module(module), name)
    return function


def attempt(work: Work, task: Task, report: Callable[[int], None], stop: Callable[[], bool]) -> Outcome:
    """Carry out one task in this process.

    After an exception the state is failed. The first line of the message names the exception, its traceback follows.
    """
    began = time.perf_counter()
    try:
        state, message, *error = work(task.payload, _throttled(report), stop)
        result = RunResult(RunState(state), message, *error)
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - other tasks must go on, whatever one raises
        name = type(raised).__name__
        summary = f"{name}: {raised}".strip().rstrip(":").splitlines()[0]
        trace = "".join(traceback.format_exception(raised)).rstrip()
        result = RunResult(RunState.FAILED, f"{summary}\n{trace}", name)
    return Outcome(task.key, result.state, result.message, time.perf_counter() - began, result.error)


def _cuda_in_use() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


class _Server:
    """The worker's side of the connection. A thread reads it, so that a look at ``stop`` is cheap."""

    def __init__(self, connection: Connection, grace: float) -> None:
        self.connection = connection
        self.grace = grace
        self.stop = threading.Event()
        self.inbox: queue.SimpleQueue[Task | None] = queue.SimpleQueue()

    def leave(self, *_: object) -> None:
        """Stop the current task and take no other one. Also the handler of SIGTERM."""
        self.stop.set()
        self.inbox.put(None)

    def listen(self) -> None:
        """Read until the launcher closes the connection or dies."""
        try:
            while True:
                task = self.connection.recv()
                if task is None:
                    self.leave()
                else:
                    self.inbox.put(task)
        except Exception:  # noqa: BLE001 - the connection is closed, or the task cannot be unpickled
            self.leave()
        # Nobody waits for this process any more. A task that ignores `stop` must not outlive its launcher for hours.
        time.sleep(self.grace)
        os._exit(1)

    def send(self, *message: object) -> None:
        """Send to the launcher. If it is gone, stop, but let the task save its state first."""
        try:
            self.connection.send(message)
        except OSError:
            self.leave()

    def serve(self, work: Work) -> None:
        """Carry out tasks until told to leave."""
        self.send("ready")
        while (task := self.inbox.get()) is not None:
            outcome = attempt(work, task, lambda done: self.send("progress", done), self.stop.is_set)
            # After an error on a GPU, its context may be unusable and its memory lost for all later tasks.
            leaving = self.stop.is_set() or bool(outcome.error and _cuda_in_use())
            self.send("ended", outcome, leaving)
            if leaving:
                break


def serve(connection: Connection, work: str, grace: float) -> None:
    """Be a worker: the main function of a process that the launcher started."""
    # A terminal sends these to every process of the group. The launcher decides what they mean.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    server = _Server(connection, grace)
    # A batch system or `timeout` sends SIGTERM to workers too: save the state, then leave.
    signal.signal(signal.SIGTERM, server.leave)
    threading.Thread(target=server.listen, name="launcher", daemon=True).start()
    try:
        function = load(work)
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        sys.exit(message)
    server.serve(function)
